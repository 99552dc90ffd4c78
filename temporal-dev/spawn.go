package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// forks runs every fork of this program on one thread that never ends, because the kernel sends the parent-death
// signal when the thread that forked ends, not when the process does.
var forks = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// spawn starts a command that gets the signal when this process ends, however it ends. It has its own process
// group, so that Ctrl-C reaches only the supervisor. Extra files go to the child and are closed here.
func spawn(cmd *exec.Cmd, onParentDeath syscall.Signal) error {
	attr := &syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = cmd.SysProcAttr
	}
	attr.Setpgid = true
	attr.Pdeathsig = onParentDeath
	cmd.SysProcAttr = attr
	started := make(chan error, 1)
	forks() <- func() { started <- cmd.Start() }
	err := <-started
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	return err
}

const maxLog = 16 << 20

// openLog opens a child's log for appending; a large one is renamed to .1 first.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("put the old log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}
