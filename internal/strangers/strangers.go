// Package strangers bounds what callers cost before they have shown who they are: how many there
// are at once, and how long each may stay. When there are too many, the one that came first has to
// go. So a caller who shows a valid token at once gets in, however many others only hold their place.
package strangers

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limit is how many strangers there may be, and for how long.
type Limit struct {
	most int
	life time.Duration

	mu     sync.Mutex
	here   list.List // of *Stranger, the one that came first at the front
	closed bool

	expired, evicted atomic.Int64
}

// NewLimit allows most strangers at once, each for life.
func NewLimit(most int, life time.Duration) *Limit { return &Limit{most: most, life: life} }

// Stranger is one caller. Methods of a nil one do nothing: it is a caller that nobody limits.
type Stranger struct {
	limit *Limit
	cut   func()
	timer *time.Timer
	place *list.Element // nil once it left; the limit's lock guards it
	known atomic.Bool
}

// Enter counts a caller. cut ends it: when its time is over, or when its place is needed.
func (l *Limit) Enter(cut func()) *Stranger {
	s := &Stranger{limit: l, cut: cut}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		cut()
		return s
	}
	s.place = l.here.PushBack(s)
	s.timer = time.AfterFunc(l.life, func() {
		if s.Leave() {
			l.expired.Add(1)
			s.cut()
		}
	})
	var first *Stranger
	if l.here.Len() > l.most {
		first, _ = l.here.Front().Value.(*Stranger)
	}
	l.mu.Unlock()
	if first != nil && first.Leave() {
		l.evicted.Add(1)
		first.cut()
	}
	return s
}

// Leave stops counting a caller, and says whether it was counted.
func (s *Stranger) Leave() bool {
	if s == nil {
		return false
	}
	s.limit.mu.Lock()
	defer s.limit.mu.Unlock()
	if s.place == nil {
		return false
	}
	s.limit.here.Remove(s.place)
	s.place = nil
	s.timer.Stop()
	return true
}

// Admit takes a caller who has shown a valid token out of the limit.
func (s *Stranger) Admit() {
	if s != nil && !s.known.Swap(true) {
		s.Leave()
	}
}

// Doubt says that a caller showed a token that is not valid: what it sends next is checked first again.
func (s *Stranger) Doubt() {
	if s != nil {
		s.known.Store(false)
	}
}

// Known says whether a caller has shown a valid token.
func (s *Stranger) Known() bool { return s == nil || s.known.Load() }

// Close cuts all strangers, and each that still comes.
func (l *Limit) Close() {
	l.mu.Lock()
	l.closed = true
	var all []*Stranger
	for e := l.here.Front(); e != nil; e = e.Next() {
		if s, ok := e.Value.(*Stranger); ok {
			all = append(all, s)
		}
	}
	l.mu.Unlock()
	for _, s := range all {
		if s.Leave() {
			s.cut()
		}
	}
}

// Counts says how many strangers there are, and how many were cut because their time was over or
// their place was needed.
func (l *Limit) Counts() (here int, expired, evicted int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.here.Len(), l.expired.Load(), l.evicted.Load()
}

// Metrics are those of one door (X22).
func (l *Limit) Metrics(door string) []prometheus.Collector {
	cut := func(why string, count *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "holdfast_strangers_cut_total", Help: "Callers without a token that were cut: their time was over, or their place was needed.",
			ConstLabels: prometheus.Labels{"door": door, "reason": why},
		}, func() float64 { return float64(count.Load()) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_strangers", Help: "Connections that have shown no valid token yet.", ConstLabels: prometheus.Labels{"door": door},
		}, func() float64 {
			here, _, _ := l.Counts()
			return float64(here)
		}),
		cut("expired", &l.expired), cut("evicted", &l.evicted),
	}
}

// firstBytes is what a connection has to send before anything but a few bytes is kept for it: no request has
// a shorter first line, and the first messages of TLS and of HTTP/2 are longer.
const firstBytes = len("GET / HTTP/1.0\r\n")

// Listen has each connection of a listener be a stranger until it is admitted. One that has not sent
// firstBytes yet is not handed on. When the listener is closed, its strangers are cut: a server that
// stops does not wait for them.
func (l *Limit) Listen(on net.Listener) net.Listener {
	out := &listener{Listener: on, limit: l, came: make(chan arrival), ended: make(chan struct{})}
	go out.accept()
	return out
}

type listener struct {
	net.Listener
	limit *Limit
	came  chan arrival
	ended chan struct{}
	once  sync.Once
}

type arrival struct {
	conn net.Conn
	err  error
}

func (l *listener) accept() {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			l.end()
			return
		case err != nil:
			l.hand(arrival{err: err})
		default:
			c := &conn{Conn: raw, stranger: l.limit.Enter(func() { cutConn(raw) })}
			go l.await(c)
		}
	}
}

// await hands on a connection that has sent its first bytes.
func (l *listener) await(c *conn) {
	c.first = make([]byte, firstBytes)
	if _, err := io.ReadFull(c.Conn, c.first); err != nil || !l.hand(arrival{conn: c}) {
		_ = c.Close() // it was only begun
	}
}

func (l *listener) hand(a arrival) bool {
	select {
	case l.came <- a:
		return true
	case <-l.ended:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.came:
		return a.conn, a.err
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *listener) end() { l.once.Do(func() { close(l.ended) }) }

func (l *listener) Close() error {
	l.limit.Close()
	l.end()
	return l.Listener.Close()
}

// cutConn closes a connection and has the system forget it: what was not sent yet is not waited for.
func cutConn(raw net.Conn) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is what counts
	}
	_ = raw.Close()
}

// conn is a connection with its stranger.
type conn struct {
	net.Conn
	stranger *Stranger
	first    []byte // that were read before it was handed on
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p) //nolint:wrapcheck // it is the connection's own
}

func (c *conn) Close() error {
	c.stranger.Leave()
	return c.Conn.Close()
}

// RemoteAddr carries the stranger: it is what every layer above a connection hands on.
func (c *conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c.stranger} }

type address struct {
	net.Addr
	stranger *Stranger
}

// At gives whose address this is, nil for a connection that nobody limits.
func At(a net.Addr) *Stranger {
	if own, ok := a.(address); ok {
		return own.stranger
	}
	return nil
}

type contextKey struct{}

// With adds the stranger of a connection to the context of its requests.
func With(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, At(c.RemoteAddr()))
}

// Of gives the stranger of a request, nil for a connection that nobody limits.
func Of(ctx context.Context) *Stranger {
	s, _ := ctx.Value(contextKey{}).(*Stranger)
	return s
}
