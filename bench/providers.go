package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/provider"
)

// providersMode is the first argument of the process that has the providers: what they use is
// not to be taken for the server's.
const providersMode = "providers"

const (
	// arriving is how many providers connect for the first time at once.
	arriving  = 100
	lookEvery = 10 * time.Millisecond
)

// tally is what the providers saw.
type tally struct {
	Active int64         `json:"active"`
	Lost   int64         `json:"lost"` // connections that were active and ended
	Took   time.Duration `json:"took"`
}

// herd is many providers of one program.
type herd struct {
	address      string
	active, lost atomic.Int64
}

// runProviders connects providers (address, token, count), says so, and obeys: "drop N" cuts
// that many of their transports and answers when all are active again, "count" answers at once.
func runProviders(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	const address, token, count = 0, 1, 2
	if len(args) != count+1 {
		return errors.New("providers ADDRESS TOKEN COUNT")
	}
	n, err := strconv.Atoi(args[count])
	if err != nil {
		return fmt.Errorf("read the count: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	h := &herd{address: args[address]}
	began := time.Now()
	if err := h.arrive(ctx, &all, args[token], n); err != nil {
		return err
	}
	say := json.NewEncoder(out)
	if err := say.Encode(h.tally(began)); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		began := time.Now()
		var drop int
		if _, err := fmt.Sscanf(lines.Text(), "drop %d", &drop); err == nil {
			if err := h.storm(ctx, drop, int64(n)); err != nil {
				return err
			}
		}
		if err := say.Encode(h.tally(began)); err != nil {
			return err
		}
	}
	return nil
}

func (h *herd) tally(began time.Time) tally {
	return tally{Active: h.active.Load(), Lost: h.lost.Load(), Took: time.Since(began)}
}

// arrive connects all, some at a time, and waits for them.
func (h *herd) arrive(ctx context.Context, all *sync.WaitGroup, token string, n int) error {
	for i := range n {
		c, err := provider.New(provider.Options{
			Address: h.address, Name: fmt.Sprintf("bench-%05d", i), Insecure: true, MaxReconnectAttempts: -1,
			Token: func(context.Context) (string, error) { return token, nil }, OnState: h.see(),
		})
		if err != nil {
			return err
		}
		all.Go(func() { _ = c.Run(ctx) }) // it ends with the context
		if err := h.wait(ctx, func() bool { return h.active.Load() > int64(i-arriving) }); err != nil {
			return err
		}
	}
	return h.wait(ctx, func() bool { return h.active.Load() == int64(n) })
}

// see counts what one provider tells of itself, which it does one at a time.
func (h *herd) see() func(provider.Status) {
	active := false
	return func(st provider.Status) {
		switch is := st.State == provider.Active; {
		case is && !active:
			h.active.Add(1)
		case !is && active:
			h.active.Add(-1)
			h.lost.Add(1)
		}
		active = st.State == provider.Active
	}
}

func (h *herd) wait(ctx context.Context, so func() bool) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// storm cuts some transports at once and waits until their providers are back.
func (h *herd) storm(ctx context.Context, drop int, all int64) error {
	before := h.lost.Load()
	if err := h.cut(drop); err != nil {
		return err
	}
	return h.wait(ctx, func() bool { return h.lost.Load() >= before+int64(drop) && h.active.Load() == all })
}

// cut shuts connections to the link down, as this process's end would.
func (h *herd) cut(n int) error {
	to, err := net.ResolveTCPAddr("tcp4", h.address)
	if err != nil {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		fd, err := strconv.Atoi(filepath.Base(e.Name()))
		if err != nil || n == 0 {
			continue
		}
		peer, _ := syscall.Getpeername(fd) // no socket has none
		if p, ok := peer.(*syscall.SockaddrInet4); ok && p.Port == to.Port {
			if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err == nil {
				n--
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%d connections too few", n)
	}
	return nil
}
