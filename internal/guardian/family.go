package guardian

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// family is all that runs below this process: the command, which leads its own group, and all its descendants.
// The process is a child subreaper, so orphans stay in the family.
type family struct {
	jobs chan job
	// changed has an item when the leader or the last process of the family ended.
	changed chan struct{}
	// cgroup is the directory of the cgroup for leaders, "" for the guardian's own.
	cgroup   string
	confined Confinement

	mu     sync.Mutex
	forked *sync.Cond
	leader int    // 0 when it has ended; its pid and group are not reused before that
	exit   string // how the leader ended, until it is taken
	none   bool   // no child is left, so no descendant is
}

type job struct {
	argv0 string
	argv  []string
	attr  *syscall.ProcAttr
	done  chan<- error
}

func newFamily(of Spec) (*family, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	f := &family{jobs: make(chan job), changed: make(chan struct{}, 1), cgroup: of.Cgroup, confined: of.Confinement, none: true}
	f.forked = sync.NewCond(&f.mu)
	entered := make(chan error, 1)
	go f.fork(of.Dir, entered)
	if err := <-entered; err != nil {
		return nil, err
	}
	go f.reap()
	return f, nil
}

// start runs a command as the new leader and returns once it has been executed.
func (f *family) start(argv0 string, argv []string, attr *syscall.ProcAttr) (process, error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: f.confined.credential()}
	if f.cgroup != "" {
		group, err := os.Open(f.cgroup)
		if err != nil {
			return process{}, fmt.Errorf("open cgroup: %w", err)
		}
		defer group.Close() //nolint:errcheck // only its number was used
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(group.Fd())
	}
	done := make(chan error, 1)
	f.jobs <- job{argv0: argv0, argv: argv, attr: attr, done: done}
	if err := <-done; err != nil {
		return process{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader == 0 {
		return process{}, nil // it ended already, which changed reports
	}
	e, _, err := readProcess(f.leader)
	return e.process, err
}

// fork is one thread for the life of the guardian: the parent-death signal is sent when the thread that forked
// ends, not when the process does. The confinement of commands belongs to this thread too.
func (f *family) fork(dir string, entered chan<- error) {
	runtime.LockOSThread()
	err := f.confined.enter(dir)
	entered <- err
	if err != nil {
		return
	}
	for j := range f.jobs {
		f.mu.Lock()
		pid, err := syscall.ForkExec(j.argv0, j.argv, j.attr) //nolint:gosec // to run what a user declared is the purpose
		if err == nil {
			f.leader, f.exit, f.none = pid, "", false
			f.forked.Signal()
		}
		f.mu.Unlock()
		j.done <- err
	}
}

// reap collects children as they end. Before it takes the lock it only checks: while another holds the lock, no
// child can be collected, so its pid is safe to signal.
func (f *family) reap() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		f.look()
		f.mu.Lock()
		for f.none {
			f.forked.Wait()
		}
		f.mu.Unlock()
	}
}

// look collects what has ended by now.
func (f *family) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.collect() {
		f.notify()
	}
}

// collect tells whether there is a change that the supervisor waits for.
func (f *family) collect() bool {
	changed := false
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			f.none = true
			return true
		case pid == 0:
			return changed
		case pid == f.leader:
			f.leader, f.exit, changed = 0, describe(status), true
		}
	}
}

func (f *family) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // one is queued already
	}
}

// exitSuccess is the exit of a command that succeeded.
const exitSuccess = "exit code 0"

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		if name := unix.SignalName(status.Signal()); name != "" {
			return "signal " + name
		}
		return fmt.Sprintf("signal %d", int(status.Signal()))
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

// takeExit gives, once, how the leader ended.
func (f *family) takeExit() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	exit := f.exit
	f.exit = ""
	return exit, exit != ""
}

func (f *family) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.none
}

// signalLeader signals the command alone: its children may not handle the signal.
func (f *family) signalLeader(sig unix.Signal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader == 0 {
		return nil // the next start reads the new config anyway
	}
	if err := unix.Kill(f.leader, sig); err != nil {
		return fmt.Errorf("send %s: %w", unix.SignalName(sig), err)
	}
	return nil
}

// signalAll sends the signals, in their order, to the group at once, and then to each process that left it.
func (f *family) signalAll(signals ...unix.Signal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.none {
		return nil
	}
	var errs []error
	for _, sig := range signals {
		if f.leader == 0 {
			break
		}
		if err := unix.Kill(-f.leader, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("send %s: %w", unix.SignalName(sig), err))
		}
	}
	table, err := processes()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, e := range descendants(table, os.Getpid()) {
		if f.leader != 0 && e.Group == f.leader {
			continue
		}
		for _, sig := range signals {
			errs = append(errs, e.signal(sig))
		}
	}
	return errors.Join(errs...)
}
