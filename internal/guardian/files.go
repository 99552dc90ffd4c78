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
	logFile    = "guardian.log" // what the guardian itself has to say, from its last start on
)

// process names a process for ever within one boot: a pid alone may be used again.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/PID/stat
}

// state is the content of state.json: enough to find everything that a guardian started
// after it was killed.
type state struct {
	BootID   string  `json:"bootId"`
	Cookie   string  `json:"cookie"`
	Guardian process `json:"guardian"`
	// From is the start of the first guardian since the instance was last stopped cleanly:
	// nothing older belongs to it.
	From uint64 `json:"from"`
	// Command is the last process started, the leader of its group; Session its session.
	Command process `json:"command"`
	Session int     `json:"session"`
	// Stopped says that nothing was left when this was written.
	Stopped bool   `json:"stopped"`
	Status  Status `json:"status"`
}

// readState gives the zero state when there is none. One that cannot be parsed (a power cut
// may do that) still says what can be known: the cookie, and that something may be left.
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

// cookieOf names a run directory on this machine in a way that survives the loss of every
// file in it.
func cookieOf(dir string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", fmt.Errorf("inspect run directory: %w", err)
	}
	return fmt.Sprintf("%x-%x", stat.Dev, stat.Ino), nil
}

var errGarbled = errors.New("not the expected JSON")

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

// writeJSON replaces a file in one step. Only one process writes a run directory (the
// holder of its lock), so a fixed temporary name is enough.
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
