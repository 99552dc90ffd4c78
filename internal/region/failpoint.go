package region

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// FailpointPause is what a file holds that has the process stand still, as by kill -STOP, until it is
// sent SIGCONT.
const FailpointPause = "pause"

// Failpoints makes a failpoint hook that kills this process where a test armed it: the
// file <dir>/<process>.<name> is taken away, and the process dies as by kill -9, or stands
// still where that holds FailpointPause. Where the pipe <dir>/<process>.<name>.hold is, what
// comes there waits until the test closes it. An empty dir makes none.
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
		word, err := os.ReadFile(at) //nolint:gosec // named by the test
		if err != nil || os.Remove(at) != nil {
			return
		}
		if string(word) == FailpointPause {
			runtime.LockOSThread() // this thread is not to take another step
			defer runtime.UnlockOSThread()
			_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing is left that could fail
		select {}
	}
}
