package replicas

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// together is how far probes are put off to be begun with others: one wake-up of the machine for
// all that are due within it.
const together = 20 * time.Millisecond

// attends is how often the prober looks, at least, while a replica is to come to an answer. What it comes
// late by more than away the agent was not there for, paused or with its machine.
const (
	attends = time.Second
	away    = time.Second
)

// prober begins the probes of all replicas of the node, from one goroutine, each in one of its own.
// No replica is probed twice at once.
type prober struct {
	now    func() time.Duration
	dialer *net.Dialer
	wake   chan struct{}

	mu      sync.Mutex
	watched map[fleet.ReplicaID]*watch
	sleeps  time.Duration // until when run does
	looked  time.Duration
}

// watch is one replica that is probed. All but its state never changes.
type watch struct {
	id      fleet.ReplicaID
	check   fleet.HealthCheck
	address string // host:port
	changed func(decide.ProbeState)
	state   decide.ProbeState
	flying  bool
	seen    bool // by a look of the prober
}

func newProber(now func() time.Duration) *prober {
	return &prober{
		now: now, wake: make(chan struct{}, 1), watched: map[fleet.ReplicaID]*watch{},
		dialer: &net.Dialer{KeepAlive: -1},
	}
}

// watch begins to probe a replica, at once; what was probed under its id before is not any more.
// changed is told of each transition, of the first success, of what is late and of a deadline that moved, in
// order, and must not wait.
func (p *prober) watch(w *watch) {
	p.mu.Lock()
	p.watched[w.id] = w
	p.mu.Unlock()
	poke(p.wake)
}

// forget ends the probes of a replica; one that is under way says nothing any more.
func (p *prober) forget(id fleet.ReplicaID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, id)
}

// run begins probes when they are due.
func (p *prober) run(ctx context.Context) error {
	var flying sync.WaitGroup
	defer flying.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-p.wake:
		}
		due, next := p.due()
		for _, w := range due {
			flying.Go(func() { p.try(ctx, w) })
		}
		timer.Reset(next)
	}
}

// due takes what is due, and says in how long to look again.
func (p *prober) due() (due []*watch, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.catchUp(now)
	next = time.Hour
	for _, w := range p.watched {
		if w.seen = true; w.state.Due() > 0 {
			next = min(next, attends)
		}
		switch {
		case w.flying:
		case w.state.Next <= now:
			w.flying = true
			due = append(due, w)
		default:
			next = min(next, w.state.Next-now)
		}
	}
	next = max(next, together)
	p.sleeps = now + next
	return due, next
}

// catchUp gives back the time that the agent was not there for, to what is to come to an answer: it may not
// have run either, and nobody heard it.
func (p *prober) catchUp(now time.Duration) {
	missed := now - p.looked
	p.looked = now
	if now-p.sleeps <= away {
		return
	}
	p.sleeps = now
	for _, w := range p.watched {
		if is := w.state.Delay(missed); w.seen && is != w.state {
			w.state = is
			w.changed(is)
		}
	}
}

// try makes one probe and takes its result in.
func (p *prober) try(ctx context.Context, w *watch) {
	began := p.now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.check.Timeout*float64(time.Second)))
	ok := p.probe(ctx, w)
	canceled := errors.Is(ctx.Err(), context.Canceled)
	cancel()
	p.mu.Lock()
	if p.watched[w.id] != w || canceled { // the agent ends: that says nothing of the replica
		p.mu.Unlock()
		return
	}
	p.catchUp(p.now()) // it may have begun before run looked again
	was := w.state
	w.state, w.flying = decide.Probe(was, w.check, ok, began), false
	is := w.state
	if was.Health != is.Health || was.Begun != is.Begun || is.Late() {
		w.changed(is)
	}
	if is.Next < p.sleeps {
		poke(p.wake)
	}
	p.mu.Unlock()
}

// probe says whether the replica answered as it should.
func (p *prober) probe(ctx context.Context, w *watch) bool {
	conn, err := p.dialer.DialContext(ctx, "tcp", w.address)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // what it said was read
	if w.check.Type == fleet.HealthTCP {
		return true
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends what waits below
	defer stop()
	status, err := ask(ctx, conn, w)
	if w.check.ExpectedStatus != 0 {
		return err == nil && status == w.check.ExpectedStatus
	}
	return err == nil && status >= http.StatusOK && status < http.StatusBadRequest
}

// answerBuffer is for the head of an answer; what else it says does not matter. A head longer than answerLimit
// is none: the port may stream bytes without an end.
const (
	answerBuffer = 1 << 10
	answerLimit  = 64 << 10
)

// ask makes one request on a connection of its own, which is what a client of the replica needs too.
// A client with a pool would cost twice as much.
func ask(ctx context.Context, conn net.Conn, w *watch) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, w.check.Method, "http://"+w.address+"/"+strings.TrimPrefix(w.check.Path, "/"), http.NoBody)
	if err != nil {
		return 0, fleet.Errorf(fleet.Invalid, "make the request of a probe: %w", err)
	}
	req.Close = true
	req.Header.Set("User-Agent", "holdfast-probe")
	if err := req.Write(conn); err != nil {
		return 0, fleet.Errorf(fleet.Communication, "send a probe: %w", err)
	}
	head := bufio.NewReaderSize(io.LimitReader(conn, answerLimit), answerBuffer)
	for status < http.StatusOK { // others only announce the answer
		resp, err := http.ReadResponse(head, req)
		if err != nil {
			return 0, fleet.Errorf(fleet.Communication, "read the answer to a probe: %w", err)
		}
		status = resp.StatusCode // its body ends with the connection
	}
	return status, nil
}
