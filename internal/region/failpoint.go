package region

import (
	"os"
	"path/filepath"
	"syscall"
)

// Failpoints makes a failpoint hook that kills this process where a test armed it: the
// file <dir>/<process>.<name> is taken away, and the process dies as by kill -9. An empty
// dir makes none.
func Failpoints(dir, process string) func(name string) {
	if dir == "" {
		return nil
	}
	return func(name string) {
		if os.Remove(filepath.Join(dir, process+"."+name)) == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing is left that could fail
			select {}
		}
	}
}
