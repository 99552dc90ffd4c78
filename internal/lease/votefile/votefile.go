// Package votefile stores a node's vote and claim in votes.json, beside node.key and not in node.db: when the
// store is rebuilt, the node must not forget its promises.
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

	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// Name is the name of the file.
const Name = "votes.json"

// State is a node's durable state of its site's lease.
type State struct {
	Site   fleet.SiteName `json:"site"`
	Node   fleet.NodeName `json:"node"`
	Record lease.Record   `json:"record"`
	Claim  lease.Claim    `json:"claim"`
	// Known is the highest epoch that the region reported; losing it is safe.
	Known int64 `json:"known"`
	// Resets is the number of the last reset that this vote followed, ResetFrom the highest epoch promised before.
	Resets    int64 `json:"resets,omitempty"`
	ResetFrom int64 `json:"resetFrom,omitempty"`
}

// file is the JSON of votes.json. The sum detects a file that was changed or written only in part.
type file struct {
	State json.RawMessage `json:"state"`
	Sum   string          `json:"sum"`
}

// Past is what is known about the node's earlier votes before it looks for its file.
type Past string

// The pasts. A name that was enrolled before, with any key, may have voted.
const (
	First    Past = "first"    // this is the first enrolment of the name: it never voted
	Enrolled Past = "enrolled" // it may have voted: without a file its vote is lost
)

// Load reads the state of one node of one site. If the file is missing (unless this is the node's first start),
// damaged, or of another node, it returns a lost vote and the reason.
func Load(path string, of State, past Past) (State, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the path is the node's own configuration
	if errors.Is(err, fs.ErrNotExist) && past == First {
		return State{Site: of.Site, Node: of.Node}, nil
	}
	lost := State{Site: of.Site, Node: of.Node, Record: lease.Joining()}
	if errors.Is(err, fs.ErrNotExist) {
		return lost, fleet.Errorf(fleet.Gone, "votes not found at %s, and this node may have voted", path).WithHint(hint)
	}
	if err != nil { // it may exist: a file that cannot be read must not be overwritten
		return State{}, fmt.Errorf("read votes: %w", err)
	}
	s, ok := parse(raw)
	if !ok {
		return lost, fleet.Errorf(fleet.Gone, "votes in %s are damaged", path).WithHint(hint)
	}
	if s.Site != of.Site || s.Node != of.Node {
		return lost, fleet.Errorf(fleet.Gone, "votes in %s belong to node %s of site %s", path, s.Node, s.Site).WithHint(hint)
	}
	return s, nil
}

const hint = "the vote comes back after a TTL, once both other voters have answered, or when an operator forces it"

func parse(raw []byte) (State, bool) {
	var f file
	var s State
	if json.Unmarshal(raw, &f) != nil || f.Sum != sum(f.State) || json.Unmarshal(f.State, &s) != nil {
		return State{}, false
	}
	s.Record = s.Record.Bounded()
	if !bytes.Contains(f.State, []byte(`"known":`)) { // written before numbers were bounded
		s.Known = s.Record.Promised
	}
	return s, s.Record.Valid() && s.Claim.Epoch >= 0 && s.Claim.Counter >= 0 && s.Known >= 0 && s.Resets >= 0
}

func sum(state []byte) string {
	h := sha256.Sum256(state)
	return hex.EncodeToString(h[:])
}

// Save makes the state durable, all or nothing. After an error, either state may be on the disk: the caller
// must load it again before it votes.
func Save(path string, s State) error {
	state, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode votes: %w", err)
	}
	raw, err := json.Marshal(file{State: state, Sum: sum(state)})
	if err != nil {
		return fmt.Errorf("encode votes: %w", err)
	}
	return durable.WriteFile(path, raw)
}
