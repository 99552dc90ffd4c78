package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const restartDelay = time.Second

// rank orders the processes in every list. They end in the opposite order.
type rank int

// The ranks: what others need comes first.
const (
	rankPostgres rank = iota
	rankTemporal
	rankServer
	rankNode
)

// spec defines how to start and stop one child process.
type spec struct {
	name string
	log  string
	rank rank
	// command is called for each start; it may wait for what the child needs.
	command func(ctx context.Context) (*exec.Cmd, error)
	// onParentDeath is the signal for the child when the supervisor is killed.
	onParentDeath syscall.Signal
	// end are the signals that stop it, each with a time; SIGKILL follows them.
	end []stopSignal
}

type stopSignal struct {
	signal syscall.Signal
	wait   time.Duration
}

// process keeps one child running until it is stopped, and restarts it a second after it ended by itself.
//
//	stopped ──start──▶ wanted ──spawned──▶ running
//	   ▲                 ▲ ▲                 │  │
//	   └──────stop───────┘ └──after 1 s──────┘  │ ended on its own
//	   └──────────────────stop──────────────────┘
type process struct {
	spec    spec
	trouble func(format string, args ...any) // reports to the operator
	changed func()                           // pid or wish changed
	orders  sync.Mutex                       // one stop or start at a time

	mu     sync.Mutex
	view   processView
	turn   chan struct{} // closed and replaced at each change of view
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned
}

// processView is what ps shows.
type processView struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Running bool      `json:"running"`
	Wanted  bool      `json:"wanted"`
	Starts  int       `json:"starts"`
	Since   time.Time `json:"since"`
	active  bool      // between the wish to start and the end of that attempt
	closed  bool      // it will never be wanted again
}

func newProcess(s spec, trouble func(string, ...any), changed func()) *process {
	p := &process{
		spec: s, trouble: trouble, changed: changed, view: processView{Name: s.name},
		turn: make(chan struct{}), cancel: func() {}, ended: make(chan struct{}),
	}
	go p.run()
	return p
}

func (p *process) snapshot() processView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view
}

// update changes the view and wakes all that wait for a change.
func (p *process) update(change func(v *processView)) {
	p.mu.Lock()
	change(&p.view)
	close(p.turn)
	p.turn = make(chan struct{})
	p.mu.Unlock()
	p.changed()
}

// await returns once the view is as wanted.
func (p *process) await(ctx context.Context, wanted func(v processView) bool) error {
	for {
		p.mu.Lock()
		view, turn := p.view, p.turn
		p.mu.Unlock()
		if wanted(view) {
			return nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// start returns once the child runs; an already running child is success.
func (p *process) start(ctx context.Context) error {
	p.orders.Lock()
	defer p.orders.Unlock()
	p.update(func(v *processView) { v.Wanted = !v.closed })
	if err := p.await(ctx, func(v processView) bool { return v.Running || v.closed }); err != nil {
		return fmt.Errorf("wait until %s runs: %w", p.spec.name, err)
	}
	if p.snapshot().closed {
		return fleet.Errorf(fleet.IllegalState, "the region is stopping")
	}
	return nil
}

// stop returns once the child has ended; it stays stopped until start.
func (p *process) stop(ctx context.Context) error {
	p.orders.Lock()
	defer p.orders.Unlock()
	p.update(func(v *processView) { v.Wanted = false })
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	if err := p.await(ctx, func(v processView) bool { return !v.active }); err != nil {
		return fmt.Errorf("wait until %s has ended: %w", p.spec.name, err)
	}
	return nil
}

// close stops the child for good: a pending start returns at once, and no later one starts it. With hurry it is
// killed at once.
func (p *process) close(hurry <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-hurry:
			p.kill()
		case <-ctx.Done():
		}
	}()
	p.update(func(v *processView) { v.closed = true })
	_ = p.stop(ctx) // cannot fail: the context outlives it
	<-p.ended
}

func (p *process) kill() {
	if pid := p.snapshot().PID; pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// run is the loop of the process, over all its starts.
func (p *process) run() {
	defer close(p.ended)
	for {
		_ = p.await(context.Background(), func(v processView) bool { return v.Wanted || v.closed })
		ctx, cancel := context.WithCancel(context.Background())
		p.mu.Lock()
		p.cancel = cancel
		p.view.active = p.view.Wanted && !p.view.closed
		now := p.view
		p.mu.Unlock()
		switch {
		case now.active:
			p.attempt(ctx)
			p.update(func(v *processView) { v.active = false })
		case now.closed:
			cancel()
			return
		}
		cancel()
	}
}

// attempt is one start: it returns when the child has ended and, if that was not requested, a second has passed.
func (p *process) attempt(ctx context.Context) {
	err := p.live(ctx)
	if ctx.Err() != nil {
		return
	}
	p.trouble("%s %v; starting it again in %v (log: %s)", p.spec.name, err, restartDelay, p.spec.log)
	_ = pause.For(ctx, restartDelay) // the caller looks at the context
}

// live starts the child and returns when it has ended, with the reason.
func (p *process) live(ctx context.Context) error {
	cmd, err := p.spec.command(ctx)
	if err != nil {
		return fmt.Errorf("could not be prepared: %w", err)
	}
	log, err := openLog(p.spec.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := spawn(cmd, p.spec.onParentDeath); err != nil {
		return fmt.Errorf("could not be started: %w", err)
	}
	p.update(func(v *processView) {
		v.PID, v.Running, v.Starts, v.Since = cmd.Process.Pid, true, v.Starts+1, time.Now()
	})
	defer p.update(func(v *processView) { v.PID, v.Running, v.Since = 0, false, time.Now() })
	ended := make(chan exit, 1)
	go func() { ended <- exit{cmd.Wait()} }()
	select {
	case how := <-ended:
		return how.alone()
	case <-ctx.Done():
		p.end(cmd.Process, ended)
		return ctx.Err()
	}
}

// exit is how a child ended.
type exit struct{ err error }

// alone describes an end that was not requested.
func (e exit) alone() error {
	var status *exec.ExitError
	switch {
	case e.err == nil:
		return errors.New("ended on its own (exit status 0)")
	case errors.As(e.err, &status):
		return fmt.Errorf("ended on its own (%s)", status.ProcessState)
	default:
		return fmt.Errorf("ended on its own: %w", e.err)
	}
}

// end sends the child's signals in order, and finally SIGKILL.
func (p *process) end(child *os.Process, ended <-chan exit) {
	for _, s := range p.spec.end {
		_ = child.Signal(s.signal) // it may have ended by itself
		patience := time.NewTimer(s.wait)
		select {
		case <-ended:
			patience.Stop()
			return
		case <-patience.C:
			p.trouble("%s did not end within %v of signal %v", p.spec.name, s.wait, s.signal)
		}
	}
	_ = child.Kill()
	<-ended
}
