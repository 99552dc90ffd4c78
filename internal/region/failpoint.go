package region

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// FailpointPause is the content of a failpoint file that pauses the process, as by kill -STOP, until it gets
// SIGCONT.
const FailpointPause = "pause"

// Failpoints makes a failpoint hook that kills this process where a test armed it. The hook removes the file
// <dir>/<process>.<name>; then the process dies as by kill -9, or pauses if the file contains FailpointPause. If
// the pipe <dir>/<process>.<name>.hold exists, the process waits there until the test closes the pipe. With an
// empty dir there is no hook.
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
			runtime.LockOSThread() // this thread must not take another step
			defer runtime.UnlockOSThread()
			_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing left to fail
		select {}
	}
}
