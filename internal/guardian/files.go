package guardian

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The files of a run directory (0700).
const (
	lockFile   = "guardian.lock"
	specFile   = "spec.json"
	stateFile  = "state.json"
	socketFile = "guardian.sock"
	logFile    = "guardian.log" // the guardian's own log, since its last start
)

// process identifies a process within one boot: a pid alone may be used again.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/PID/stat
}

// state is the content of state.json: enough to find everything that a guardian started after the guardian was
// killed.
type state struct {
	BootID   string  `json:"bootId"`
	Cookie   string  `json:"cookie"`
	Guardian process `json:"guardian"`
	// From is the start of the first guardian since the instance was last stopped cleanly: nothing older belongs
	// to the instance.
	From uint64 `json:"from"`
	// Command is the last process started, the leader of its group; Session its session.
	Command process `json:"command"`
	Session int     `json:"session"`
	// Stopped is set if nothing was left when this was written.
	Stopped bool   `json:"stopped"`
	Status  Status `json:"status"`
}

// readState gives the zero state without a file. For a file that cannot be parsed (after a power cut) it gives
// what is still known: the cookie, and that something may be left.
func readState(dir string) (state, error) {
	var st state
	err := readJSON(filepath.Join(dir, stateFile), &st)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if !errors.Is(err, errGarbled) {
		return st, err
	}
	boot, bootErr := bootID()
	cookie, cookieErr := cookieOf(dir)
	return state{BootID: boot, Cookie: cookie}, errors.Join(bootErr, cookieErr)
}

// cookieOf identifies a run directory on this machine, even after the loss of every file in it.
func cookieOf(dir string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", fmt.Errorf("inspect run directory: %w", err)
	}
	return fmt.Sprintf("%x-%x", stat.Dev, stat.Ino), nil
}

var errGarbled = errors.New("invalid JSON")

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path) //nolint:gosec // a path below the runtime's root
	if err != nil {
		return fmt.Errorf("read run state: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w: %w", filepath.Base(path), errGarbled, err)
	}
	return nil
}

// writeJSON replaces a file atomically. Only the holder of the lock writes a run directory, so a fixed
// temporary name is enough.
func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write run state: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replace run state: %w", err)
	}
	return nil
}
