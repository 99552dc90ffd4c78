package guardian

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Command is the first argument that makes the agent's binary a guardian.
const Command = "guardian"

// The exit codes of a guardian.
const (
	ExitStopped = 0
	ExitUsage   = 2
	ExitTaken   = 3 // another guardian of the name lives
	ExitStart   = 4 // the command could not be started
	ExitFailed  = 5
)

type options struct {
	dir         string
	lockFD      int
	readyFD     int
	lifetimePID int
}

// Main is the whole life of a guardian process: `guardian --dir DIR [--lifetime-pid N]`. It returns the exit
// code of the process.
func Main(ctx context.Context, args []string) int {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail}))
	var opts options
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.StringVar(&opts.dir, "dir", "", "run directory of one instance")
	flags.IntVar(&opts.lockFD, "lock-fd", 0, "inherited descriptor that holds the lock")
	flags.IntVar(&opts.readyFD, "ready-fd", 0, "inherited descriptor to answer the start on")
	flags.IntVar(&opts.lifetimePID, "lifetime-pid", 0, "stop when this process ends")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 || !filepath.IsAbs(opts.dir) {
		log.Error("usage: guardian --dir DIR [--lifetime-pid N], DIR absolute")
		return ExitUsage
	}
	// A handler, instead of ignoring them: a command inherits ignored signals, also those that the agent's parent
	// ignored (nohup), and could then not be signalled on a change.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := guard(ctx, opts, log)
	switch {
	case err == nil:
		return ExitStopped
	case errors.Is(err, errTaken):
		return ExitTaken
	case fleet.KindOf(err) == fleet.ApplyFailed:
		return ExitStart
	}
	log.Error("guardian failed", "err", err)
	return ExitFailed
}

// guard holds the lock from before its first check until nothing is left.
func guard(ctx context.Context, opts options, log *slog.Logger) error {
	if err := keepToSelf(); err != nil {
		return err
	}
	lock, err := opts.lock()
	if err != nil {
		return err
	}
	ready := opts.ready()
	s, err := prepare(ctx, opts.dir, log)
	if err != nil {
		return errors.Join(err, ready.say(refusal(Status{}, err)))
	}
	s.lock, s.ready = lock, ready
	if opts.lifetimePID > 0 {
		var cancel context.CancelFunc
		if ctx, cancel, err = within(ctx, opts.lifetimePID, log); err != nil {
			return errors.Join(err, ready.say(refusal(Status{}, err)))
		}
		defer cancel()
	}
	return s.guard(ctx)
}

// keepToSelf makes the command inherit only its own three descriptors: not the lock, and none that the agent
// inherited.
func keepToSelf() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func (o options) lock() (*os.File, error) {
	if o.lockFD == 0 {
		return takeLock(o.dir)
	}
	file := os.NewFile(uintptr(o.lockFD), lockFile)
	current, err := lockOpened(file, filepath.Join(o.dir, lockFile))
	if err == nil && !current {
		err = errTaken
	}
	return file, err
}

// prepare reads the spec and makes sure that nothing of an earlier guardian runs.
func prepare(ctx context.Context, dir string, log *slog.Logger) (*supervisor, error) {
	s := &supervisor{dir: dir, log: log, now: time.Now, calls: make(chan call), ended: make(chan struct{})}
	if err := readJSON(filepath.Join(dir, specFile), &s.launch); err != nil {
		return nil, err
	}
	s.launch.Backoff = s.launch.Backoff.withDefaults()
	old, err := readState(dir)
	if err != nil {
		return nil, err
	}
	if s.state, err = old.succeed(dir); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(dir, stateFile), s.state); err != nil {
		return nil, err
	}
	if err := sweep(ctx, old); err != nil {
		return nil, err
	}
	if s.tenure, err = newTenure(dir, s.launch, log); err != nil {
		return nil, err
	}
	if s.family, err = newFamily(s.launch.Spec); err != nil {
		return nil, err
	}
	s.output, err = openOutput(dir, s.launch.OutputLimit, s.launch.OutputFrom)
	return s, err
}

// succeed records this process as the guardian, while the leftovers of the last one are still on record.
func (st state) succeed(dir string) (state, error) {
	boot, err := bootID()
	if err != nil {
		return st, err
	}
	self, _, err := readProcess(os.Getpid())
	if err != nil {
		return st, err
	}
	cookie, err := cookieOf(dir)
	if err != nil {
		return st, err
	}
	next := state{BootID: boot, Cookie: cookie, Guardian: self.process, From: self.Start}
	if st.BootID == boot && !st.Stopped {
		next.Command, next.Session, next.From, next.Status = st.Command, st.Session, st.From, st.Status
	}
	return next, nil
}

// within ends the context when a process ends.
func within(ctx context.Context, pid int, log *slog.Logger) (context.Context, context.CancelFunc, error) {
	h, err := openPID(pid)
	if err != nil {
		return nil, nil, fmt.Errorf("watch the lifetime process: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		if err := h.wait(ctx); err != nil && ctx.Err() == nil {
			log.Error("stopping: watch the lifetime process", "err", err)
		}
	}()
	return ctx, cancel, nil
}

// readiness is the pipe on which the agent waits for the result of a start.
type readiness struct{ pipe *os.File }

func (o options) ready() *readiness {
	if o.readyFD == 0 {
		return &readiness{}
	}
	return &readiness{pipe: os.NewFile(uintptr(o.readyFD), "ready")}
}

// say answers once. If the agent has ended, that is no error: the next agent asks.
func (r *readiness) say(answer response) error {
	if r.pipe == nil {
		return nil
	}
	pipe := r.pipe
	r.pipe = nil
	err := json.NewEncoder(pipe).Encode(answer)
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	if err = errors.Join(err, pipe.Close()); err != nil {
		return fmt.Errorf("report the start: %w", err)
	}
	return nil
}
