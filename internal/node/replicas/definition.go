package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// unfinished is the prefix of files that are being written.
const unfinished = "new-"

// definitions stores the definitions of the region by hash, in a directory of the node.
type definitions struct {
	dir    string
	region region
}

// get reads a definition, from the region if it is not stored here. If a retry cannot help, the error is a
// Failure.
func (d *definitions) get(ctx context.Context, hash fleet.Hash) (fleet.Definition, error) {
	if err := fleet.ValidateHash("/definition", hash); err != nil {
		return fleet.Definition{}, noDefinition(err)
	}
	if def, err := d.read(hash); err == nil {
		return def, nil
	}
	body, err := d.region.ReplicaDefinition(ctx, hash)
	switch {
	case err != nil && (fleet.KindOf(err).Retryable() || ctx.Err() != nil):
		return fleet.Definition{}, err
	case err != nil:
		return fleet.Definition{}, noDefinition(err)
	case hashOf(body) != hash:
		return fleet.Definition{}, noDefinition(fleet.Errorf(fleet.HashMismatch, "the region sent a definition whose hash is not %s", hash))
	}
	def, err := parse(body)
	if err != nil {
		return def, err
	}
	return def, d.write(hash, body)
}

func noDefinition(err error) error { return &Failure{fleet.ReasonNoDefinition, err} }

func parse(body []byte) (def fleet.Definition, err error) {
	if err := json.Unmarshal(body, &def); err != nil {
		return def, noDefinition(fleet.Errorf(fleet.Invalid, "invalid definition: %w", err))
	}
	return def, nil
}

func hashOf(body []byte) fleet.Hash {
	sum := sha256.Sum256(body)
	return fleet.Hash(hex.EncodeToString(sum[:]))
}

func (d *definitions) path(hash fleet.Hash) string { return filepath.Join(d.dir, string(hash)) }

// read returns an error if the content does not match the hash: a power cut may have damaged the file.
func (d *definitions) read(hash fleet.Hash) (fleet.Definition, error) {
	body, err := os.ReadFile(d.path(hash))
	if err != nil {
		return fleet.Definition{}, fleet.Errorf(fleet.NotFound, "definition %s not found on this node: %w", hash, err)
	}
	if hashOf(body) != hash {
		return fleet.Definition{}, fleet.Errorf(fleet.HashMismatch, "the file of definition %s has other content", hash)
	}
	return parse(body)
}

func (d *definitions) write(hash fleet.Hash, body []byte) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fleet.Errorf(fleet.Unavailable, "make the directory of definitions: %w", err)
	}
	file, err := os.CreateTemp(d.dir, unfinished)
	if err != nil {
		return fleet.Errorf(fleet.Unavailable, "keep a definition: %w", err)
	}
	_, err = file.Write(body)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), d.path(hash))
	}
	if err != nil { // the retry writes a file of another name: this one must not fill up the disk
		return fleet.Errorf(fleet.Unavailable, "keep a definition: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// sweep removes the unfinished files of agents that were killed; it runs before anything is written.
func (d *definitions) sweep() error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			errs = append(errs, os.Remove(filepath.Join(d.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// retain removes the definitions that no replica needs any more.
func (d *definitions) retain(needed map[fleet.Hash]bool) error {
	entries, err := os.ReadDir(d.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		if hash := fleet.Hash(e.Name()); fleet.ValidateHash("", hash) == nil && !needed[hash] {
			errs = append(errs, os.Remove(d.path(hash)))
		}
	}
	return errors.Join(append(errs, err)...)
}
