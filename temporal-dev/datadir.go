package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/dirlock"
	"github.com/holdfast-io/holdfast/internal/durable"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	markerFile = "holdfast-dev.json" // names a directory as temporal-dev's
	lockFile   = dirlock.File
	stateFile  = "state.json"
	dataFormat = 1
)

type marker struct {
	Product string `json:"product"`
	Format  int    `json:"format"`
}

var ownMarker = marker{Product: "holdfast temporal-dev", Format: dataFormat}

// dataDir is a claimed data directory: marked as ours and locked for this process.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir claims a directory and creates it if missing. It refuses a directory of another program, and one
// whose region is running.
func openDataDir(path string) (*dataDir, error) {
	if err := checkOwnership(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	d := &dataDir{path: path, lock: lock}
	// It contains passwords and keys. Postgres under another user gets its folder as an open file.
	err = errors.Join(os.Chmod(path, 0o700), writeJSON(d.file(markerFile), ownMarker)) //nolint:gosec // a directory needs its x
	if err != nil {
		d.close()
		return nil, fmt.Errorf("mark the data directory: %w", err)
	}
	return d, nil
}

// checkOwnership only reads, so that a refused directory stays exactly as it was.
func checkOwnership(path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return foreign(path, "is not a directory")
	case err != nil:
		return fmt.Errorf("read the data directory: %w", err)
	}
	var m marker
	switch err := readJSON(filepath.Join(path, markerFile), &m); {
	case errors.Is(err, fs.ErrNotExist) && onlyLock(entries):
		return nil
	case err != nil || m.Product != ownMarker.Product:
		return foreign(path, "does not contain a Holdfast region")
	case m.Format != dataFormat:
		return foreign(path, fmt.Sprintf("was written in format %d, this program knows %d", m.Format, dataFormat))
	}
	return nil
}

// onlyLock is also true for an empty directory: a first start may have ended before the marker.
func onlyLock(entries []fs.DirEntry) bool {
	return len(entries) == 0 || len(entries) == 1 && entries[0].Name() == lockFile
}

// checkRegions refuses to run one region on a directory of several, and several on that of one.
func checkRegions(path string, regions int) error {
	if err := checkOwnership(path); err != nil {
		return err
	}
	several, other := regions > 1, filepath.Join(regionNames[0], markerFile)
	if several {
		other = stateFile
	}
	_, err := os.Stat(filepath.Join(path, other))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read the data directory: %w", err)
	case several:
		return fleet.Errorf(fleet.IllegalState, "%s has the data of one region", path).
			WithHint(fmt.Sprintf("start it without --regions %d, or give another directory with --data", regions))
	}
	return fleet.Errorf(fleet.IllegalState, "%s has the data of several regions", path).
		WithHint("start it with as many --regions as before, or give another directory with --data")
}

func foreign(path, why string) error {
	return fleet.Errorf(fleet.IllegalState, "%s %s; nothing in it was touched", path, why).
		WithHint("give an empty or a new directory with --data")
}

// lockDir locks a directory for this region.
func lockDir(path string) (*os.File, error) {
	f, err := dirlock.Take(path)
	var held *dirlock.HeldError
	if errors.As(err, &held) {
		return nil, fleet.Errorf(fleet.Conflict, "a region is already running on %s (process %s)", path, held.Process).
			WithHint("stop it, or give another directory with --data")
	}
	return f, err
}

func (d *dataDir) file(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// log names the file that a child process writes to.
func (d *dataDir) log(name string) string { return d.file("logs", name+".log") }

func (d *dataDir) close() { _ = d.lock.Close() }

const secretBytes = 24

// secret returns the named secret, which is created once per data directory.
func (d *dataDir) secret(name string) (string, error) {
	path := d.file(name)
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // never fails, says its documentation
	s := hex.EncodeToString(raw)
	if err := durable.WriteFile(path, []byte(s+"\n")); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	return s, nil
}

// state is what a second start must know about the first.
type state struct {
	Ports map[string]int `json:"ports"`
	// Seeded names the sites that got their examples: a second start changes nothing there.
	Seeded []string `json:"seeded"`
}

func (d *dataDir) readState() (state, error) {
	s := state{Ports: map[string]int{}}
	if err := readJSON(d.file(stateFile), &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read %s: %w", stateFile, err)
	}
	return s, nil
}

func (d *dataDir) writeState(s state) error { return writeJSON(d.file(stateFile), s) }

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(text, '\n'))
}
