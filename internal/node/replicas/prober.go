package replicas

import (
	"bufio"
	"bytes"
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
	"github.com/holdfast-io/holdfast/internal/poke"
)

// together is how far a probe may be delayed to start with others: one wake-up of the machine for all probes
// due within it.
const together = 20 * time.Millisecond

// attends is the longest pause of the prober while a replica is starting or on trial. A delay of more than away
// means that the agent did not run: it was paused, or the machine suspended.
const (
	attends = time.Second
	away    = time.Second
)

// prober starts the probes of one kind, of all replicas of the node, from one goroutine, each in its own goroutine. No
// replica is probed twice at once.
type prober struct {
	now    func() time.Duration
	dialer *net.Dialer
	wake   chan struct{}

	mu      sync.Mutex
	watched map[fleet.ReplicaID]*watch
	sleeps  time.Duration // when run wakes up
	looked  time.Duration
}

// watch is one replica under probes. Only its state changes, and the terms of its check.
type watch struct {
	id      fleet.ReplicaID
	check   fleet.HealthCheck
	address string // host:port
	changed func(decide.ProbeState)
	failed  func(decide.ProbeState)
	state   decide.ProbeState
	flying  bool
	seen    bool // the prober has checked it once
}

func newProber(now func() time.Duration) *prober {
	return &prober{
		now: now, wake: make(chan struct{}, 1), watched: map[fleet.ReplicaID]*watch{},
		dialer: &net.Dialer{KeepAlive: -1},
	}
}

// watch starts the probes of a replica at once, and ends earlier ones under its id. changed is called for each
// transition, the first success, lateness and a moved deadline, in order; failed for any other failure of a replica that
// is not healthy. They must not block.
func (p *prober) watch(w *watch) {
	p.mu.Lock()
	p.watched[w.id] = w
	p.mu.Unlock()
	poke.Once(p.wake)
}

// forget ends the probes of a replica; a probe under way has no effect any more.
func (p *prober) forget(id fleet.ReplicaID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, id)
}

// amend has a replica probed by other terms from now on. A probe under way keeps its timeout.
func (p *prober) amend(id fleet.ReplicaID, check fleet.HealthCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, watched := p.watched[id]
	if !watched {
		return
	}
	w.state = w.state.Amend(w.check, check, p.now())
	w.check = check
	w.changed(w.state)
	poke.Once(p.wake)
}

// run starts probes when they are due.
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

// due gives the probes that are due, and how long to wait for the next.
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

// catchUp adds the time in which the agent did not run to the deadlines of replicas: they may not have run
// either, and no probe was made.
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

// try makes one probe and applies its result.
func (p *prober) try(ctx context.Context, w *watch) {
	p.mu.Lock()
	check := w.check
	p.mu.Unlock()
	began := p.now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(check.Timeout*float64(time.Second)))
	cause := p.probe(ctx, w.address, check)
	canceled := errors.Is(ctx.Err(), context.Canceled)
	cancel()
	p.mu.Lock()
	if p.watched[w.id] != w || canceled { // the agent ends, which means nothing for the replica
		p.mu.Unlock()
		return
	}
	p.catchUp(p.now()) // it may be due before run wakes up
	was := w.state
	w.state, w.flying = decide.Probe(was, w.check, cause, began), false
	is := w.state
	switch {
	case was.Health != is.Health || was.Begun != is.Begun || is.Late():
		w.changed(is)
	case cause != "" && is.Health != fleet.HealthHealthy:
		w.failed(is)
	}
	if is.Next < p.sleeps {
		poke.Once(p.wake)
	}
	p.mu.Unlock()
}

// probe makes one probe, and says why it failed; "" if the replica answered as its check requires.
func (p *prober) probe(ctx context.Context, address string, check fleet.HealthCheck) string {
	check = check.WithDefaults()
	conn, err := p.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return causeOf(check, probed{err: err})
	}
	defer conn.Close() //nolint:errcheck // its answer was read
	if check.Type == fleet.HealthTCP {
		return ""
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends a blocked read or write
	defer stop()
	return causeOf(check, ask(ctx, conn, address, check))
}

// answerBuffer is for the head of an answer; the rest does not matter. A head above answerLimit counts as no
// answer: the port may stream bytes without end. Of firstBytes its protocol is known.
const (
	answerBuffer = 1 << 10
	answerLimit  = 64 << 10
	firstBytes   = 8
)

// ask makes one request on its own connection, as a client of the replica would. A client with a pool would
// cost twice as much.
func ask(ctx context.Context, conn net.Conn, address string, check fleet.HealthCheck) probed {
	out := probed{connected: true}
	req, err := http.NewRequestWithContext(ctx, check.Method, "http://"+address+"/"+strings.TrimPrefix(check.Path, "/"), http.NoBody)
	if err != nil {
		out.err = fleet.Errorf(fleet.Invalid, "make the request of a probe: %w", err)
		return out
	}
	req.Close = true
	req.Header.Set("User-Agent", "holdfast-probe")
	if err := req.Write(conn); err != nil { // it may have answered before it read all
		out.err = fleet.Errorf(fleet.Communication, "send a probe: %w", err)
	}
	limited := &io.LimitedReader{R: conn, N: answerLimit}
	head := bufio.NewReaderSize(limited, answerBuffer)
	_, read := head.Peek(1)
	out.first, _ = head.Peek(min(head.Buffered(), firstBytes))
	out.first = bytes.Clone(out.first)
	if read != nil {
		if out.err == nil {
			out.err = fleet.Errorf(fleet.Communication, "read the answer to a probe: %w", read)
		}
		return out
	}
	for out.err = nil; out.status < http.StatusOK; { // 1xx only announce the answer
		resp, err := http.ReadResponse(head, req)
		if err != nil {
			out.err, out.cut = fleet.Errorf(fleet.Communication, "read the answer to a probe: %w", err), limited.N == 0
			return out
		}
		out.status = resp.StatusCode // its body ends with the connection
	}
	return out
}
