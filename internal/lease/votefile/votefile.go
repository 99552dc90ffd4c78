// Package votefile keeps a node's vote and claim in votes.json, beside node.key and not in
// node.db: a store that is rebuilt must not forget what the node promised.
package votefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// Name is the file's.
const Name = "votes.json"

// State is what a node keeps durably about its site's lease.
type State struct {
	Site   fleet.SiteName `json:"site"`
	Node   fleet.NodeName `json:"node"`
	Record lease.Record   `json:"record"`
	Claim  lease.Claim    `json:"claim"`
	// Known is the highest epoch that the region told of; losing it is safe.
	Known int64 `json:"known"`
	// Resets is the number of the last reset that this vote followed, ResetFrom what it had promised before.
	Resets    int64 `json:"resets,omitempty"`
	ResetFrom int64 `json:"resetFrom,omitempty"`
}

// file is the JSON of votes.json. The sum tells a file that was changed or half written from
// one that says what the node wrote.
type file struct {
	State json.RawMessage `json:"state"`
	Sum   string          `json:"sum"`
}

// Past says what is known of the node before it looks for its file.
type Past string

// The pasts. A name that was enrolled before, with whatever key, may have voted.
const (
	First    Past = "first"    // this is the first enrolment of the name: it never voted
	Enrolled Past = "enrolled" // it may have voted: without a file its vote is lost
)

// Load reads the state of one node of one site. A file that is missing (unless this is the
// node's first start), damaged, or of another node, gives a lost vote and the reason why.
func Load(path string, of State, past Past) (State, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the path is the node's own configuration
	if errors.Is(err, fs.ErrNotExist) && past == First {
		return State{Site: of.Site, Node: of.Node}, nil
	}
	lost := State{Site: of.Site, Node: of.Node, Record: lease.Joining()}
	if errors.Is(err, fs.ErrNotExist) {
		return lost, fleet.Errorf(fleet.Gone, "no votes at %s, and this node may have voted", path).WithHint(hint)
	}
	if err != nil { // perhaps it is there: who cannot read it must not write over it
		return State{}, fmt.Errorf("read votes: %w", err)
	}
	s, ok := parse(raw)
	if !ok {
		return lost, fleet.Errorf(fleet.Gone, "votes in %s are damaged", path).WithHint(hint)
	}
	if s.Site != of.Site || s.Node != of.Node {
		return lost, fleet.Errorf(fleet.Gone, "votes in %s are those of node %s of site %s", path, s.Node, s.Site).WithHint(hint)
	}
	return s, nil
}

const hint = "the vote comes back when a TTL has passed and both other voters were heard, or an operator forces it"

func parse(raw []byte) (State, bool) {
	var f file
	var s State
	if json.Unmarshal(raw, &f) != nil || f.Sum != sum(f.State) || json.Unmarshal(f.State, &s) != nil {
		return State{}, false
	}
	s.Record = s.Record.Bounded()
	if !bytes.Contains(f.State, []byte(`"known":`)) { // written before there was a bound
		s.Known = s.Record.Promised
	}
	return s, s.Record.Valid() && s.Claim.Epoch >= 0 && s.Claim.Counter >= 0 && s.Known >= 0 && s.Resets >= 0
}

func sum(state []byte) string {
	h := sha256.Sum256(state)
	return hex.EncodeToString(h[:])
}

// Save makes the state durable, whole or not at all. After an error it is not known which of
// the two is on the disk: the caller votes no more until it has loaded it again.
func Save(path string, s State) error {
	state, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode votes: %w", err)
	}
	raw, err := json.Marshal(file{State: state, Sum: sum(state)})
	if err != nil {
		return fmt.Errorf("encode votes: %w", err)
	}
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".votes-*") // CreateTemp gives mode 0600
	if err != nil {
		return fmt.Errorf("create votes: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after the rename
	if err := errors.Join(writeSynced(tmp, raw), tmp.Close()); err != nil {
		return fmt.Errorf("write votes: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("put votes in place: %w", err)
	}
	return syncDir(dir)
}

func writeSynced(f *os.File, raw []byte) error {
	if _, err := f.Write(raw); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the directory of the node's own votes
	if err != nil {
		return fmt.Errorf("open directory of votes: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory of votes: %w", err)
	}
	return nil
}
