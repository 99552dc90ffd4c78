package region

import (
	"os"
	"path/filepath"
	"syscall"
)

// Failpoints makes a failpoint hook that kills this process where a test armed it: the
// file <dir>/<process>.<name> is taken away, and the process dies as by kill -9. Where the
// pipe <dir>/<process>.<name>.hold is, what comes there waits until the test closes it. An
// empty dir makes none.
func Failpoints(dir, process string) func(name string) {
	if dir == "" {
		return nil
	}
	return func(name string) {
		at := filepath.Join(dir, process+"."+name)
		if hold, err := os.Open(at + ".hold"); err == nil { //nolint:gosec // named by the test
			_, _ = hold.Read(make([]byte, 1)) // nothing is ever written
			_ = hold.Close()
		}
		if os.Remove(at) == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing is left that could fail
			select {}
		}
	}
}
