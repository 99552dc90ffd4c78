//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wire joins network namespaces, one for each region. This process is the switch between them: it reads each packet of a
// region's tun device, and writes it to that of the other one after the delay, or never while that way is cut. The
// kernel's own means of delaying packets is missing in many kernels.
type wire struct {
	ends  map[string]*wireEnd
	delay time.Duration
	ended chan struct{}

	mu   sync.Mutex
	cuts map[way]int // by how many faults
}

// wireEnd is a region's end.
type wireEnd struct {
	*space
	name    string
	address string
	tun     *os.File
	due     chan packet
}

type packet struct {
	at   time.Time
	data []byte
}

const (
	wireNet = "198.18.0.%d" // for measurements, RFC 2544
	// wireQueue is how many packets are under way to a region; more are lost, as in a switch.
	wireQueue  = 4096
	wireMTU    = 1500
	addressEnd = 20 // of an IPv4 header: the last byte of its destination is before it
)

func newWire(t *testing.T, delay time.Duration, names ...string) *wire {
	t.Helper()
	w := &wire{ends: map[string]*wireEnd{}, delay: delay, ended: make(chan struct{}), cuts: map[way]int{}}
	byLast := map[byte]*wireEnd{}
	for i, name := range names {
		s, err := newSpace(t)
		require.NoError(t, err, "this run needs root and network namespaces")
		e := &wireEnd{space: s, name: name, address: fmt.Sprintf(wireNet, i+1), due: make(chan packet, wireQueue)}
		require.NoError(t, e.within(e.openTun))
		require.NoError(t, s.ip("link set lo up", "address add "+e.address+"/24 dev tun0", fmt.Sprintf("link set tun0 mtu %d up", wireMTU)))
		w.ends[name], byLast[byte(i+1)] = e, e
	}
	var all sync.WaitGroup
	for _, e := range w.ends {
		all.Go(func() { w.read(e, byLast) })
		all.Go(func() { w.write(e) })
	}
	t.Cleanup(func() {
		close(w.ended)
		for _, e := range w.ends {
			_ = e.tun.Close()
		}
		all.Wait()
	})
	return w
}

// within does something on a thread that is in the namespace.
func (s *space) within(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine, so that nothing else runs in the namespace
		done <- func() error {
			f, err := os.Open(s.file())
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the namespace: %w", err)
			}
			return do()
		}()
	}()
	return <-done
}

// dial connects to an address as the namespace knows it: a socket stays where it was made.
func (s *space) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	var d net.Dialer
	err = s.within(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (e *wireEnd) openTun() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a tun device: %w", err)
	}
	req, err := unix.NewIfreq("tun0")
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a tun device: %w", err), unix.Close(fd))
	}
	e.tun = os.NewFile(uintptr(fd), "tun0 of "+e.name)
	return nil
}

func (w *wire) read(from *wireEnd, byLast map[byte]*wireEnd) {
	for {
		b := make([]byte, wireMTU)
		n, err := from.tun.Read(b)
		if err != nil {
			return
		}
		if n < addressEnd || b[0]>>4 != 4 {
			continue
		}
		to := byLast[b[addressEnd-1]]
		if to == nil || w.isCut(way{from.name, to.name}) {
			continue
		}
		select {
		case to.due <- packet{time.Now().Add(w.delay), b[:n]}:
		default:
		}
	}
}

// write brings packets in the order in which they came: all take the same time.
func (w *wire) write(to *wireEnd) {
	for {
		select {
		case <-w.ended:
			return
		case p := <-to.due:
			<-time.After(time.Until(p.at))
			_, _ = to.tun.Write(p.data) // lost if the region has ended
		}
	}
}

func (w *wire) isCut(one way) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[one] > 0
}

// cut cuts ways until they are healed; those that were cut twice have to be healed twice.
func (w *wire) cut(ways ...way) (heal func()) {
	w.add(1, ways)
	return func() { w.add(-1, ways) }
}

func (w *wire) add(n int, ways []way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range ways {
		w.cuts[one] += n
	}
}
