package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// way is a direction between two ends.
type way struct{ from, to string }

func both(a, b string) []way { return []way{{a, b}, {b, a}} }

// relays join ends by TCP. What is cut waits, as it does in TCP, until it is healed or its connection is given up.
type relays struct {
	mu        sync.Mutex
	listeners []net.Listener
	cuts      map[way]bool
	brought   map[way]int64 // bytes
	wake      chan struct{} // closed and replaced when a cut is healed
	ended     chan struct{}
	wg        sync.WaitGroup
	open      map[net.Conn]bool
}

func newRelays() *relays {
	return &relays{cuts: map[way]bool{}, brought: map[way]int64{}, open: map[net.Conn]bool{}, wake: make(chan struct{}), ended: make(chan struct{})}
}

// relay is one: what it takes it brings to an address that is known only when all has started.
type relay struct {
	net.Listener
	from, to string
	target   func() (string, error)
}

// serve begins a relay.
func (r *relays) serve(from, to string, target func() (string, error)) (*relay, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the relay from %s to %s: %w", from, to, err)
	}
	y := &relay{Listener: l, from: from, to: to, target: target}
	r.mu.Lock()
	r.listeners = append(r.listeners, l)
	r.mu.Unlock()
	r.wg.Go(func() { r.accept(y) })
	return y, nil
}

func (r *relays) accept(y *relay) {
	for {
		client, err := y.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.join(y, client) })
	}
}

func (r *relays) join(y *relay, client net.Conn) {
	if !r.keep(client) {
		return
	}
	defer r.drop(client)
	if !r.pass(y.from, y.to) || !r.pass(y.to, y.from) { // a handshake needs both
		return
	}
	address, err := y.target()
	if err != nil {
		return
	}
	server, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil || !r.keep(server) {
		return
	}
	defer r.drop(server)
	var both sync.WaitGroup
	both.Go(func() { r.pump(client, server, y.from, y.to) })
	both.Go(func() { r.pump(server, client, y.to, y.from) })
	both.Wait()
}

func (r *relays) pump(in, out net.Conn, from, to string) {
	defer func() { _ = in.Close(); _ = out.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := in.Read(b)
		if !r.pass(from, to) {
			return
		}
		r.count(way{from, to}, n)
		if _, werr := out.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (r *relays) count(w way, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brought[w] += int64(n)
}

// linkView is what was brought in one direction so far.
type linkView struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Bytes int64  `json:"bytes"`
}

func (r *relays) views() []linkView {
	r.mu.Lock()
	defer r.mu.Unlock()
	views := make([]linkView, 0, len(r.brought))
	for w, n := range r.brought {
		views = append(views, linkView{w.from, w.to, n})
	}
	slices.SortFunc(views, func(a, b linkView) int { return strings.Compare(a.From+" "+a.To, b.From+" "+b.To) })
	return views
}

// pass waits until nothing is cut in a direction; it is false at the end.
func (r *relays) pass(from, to string) bool {
	for {
		r.mu.Lock()
		cut, wake := r.cuts[way{from, to}], r.wake
		r.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-wake:
		case <-r.ended:
			return false
		}
	}
}

func (r *relays) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		_ = c.Close()
		return false
	default:
	}
	r.open[c] = true
	return true
}

func (r *relays) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relays) close() {
	close(r.ended)
	r.mu.Lock()
	for _, l := range r.listeners {
		_ = l.Close()
	}
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *relays) cut(ways ...way) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		r.cuts[w] = true
	}
	return nil
}

func (r *relays) heal(ways ...way) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		if !r.cuts[w] {
			return fmt.Errorf("%s to %s is not cut", w.from, w.to)
		}
		delete(r.cuts, w)
	}
	close(r.wake)
	r.wake = make(chan struct{})
	return nil
}
