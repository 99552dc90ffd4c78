// Package suspended runs commands on a machine that seems to have slept. It is apart from testkit because
// its users need no database.
package suspended

import (
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a command for which the machine was suspended that long: in a time namespace of its
// own CLOCK_BOOTTIME is ahead by so much, and CLOCK_MONOTONIC is not. It ends with the test. The test
// is skipped only where the kernel permits nobody here a time namespace; root in CI may have one.
func Command(t testing.TB, by time.Duration, argv ...string) *exec.Cmd {
	t.Helper()
	if err := newTimeNamespace(); err != nil {
		t.Skipf("a time namespace is not permitted here (%v): it needs root with CAP_SYS_ADMIN, and Linux 5.6", err)
	}
	tool, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatalf("unshare is not installed: it comes with util-linux (%v)", err)
	}
	args := []string{"--time", "--boottime", strconv.Itoa(int(by.Seconds())), "--kill-child"}
	return exec.CommandContext(t.Context(), tool, append(args, argv...)...)
}

// newTimeNamespace tries it on a thread that ends with its goroutine.
func newTimeNamespace() error {
	tried := make(chan error)
	go func() {
		runtime.LockOSThread()
		tried <- unix.Unshare(unix.CLONE_NEWTIME)
	}()
	return <-tried
}
