package link_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// held is a store whose answers to what comes wait for a test, after what was asked is written.
type held struct {
	link.Store
	registers, opens chan struct{} // closed: they are answered
	batches          atomic.Int64
	written          chan struct{}
}

func (r *region) held() (*held, func(*link.Options)) {
	h := &held{Store: r.store, registers: make(chan struct{}), opens: make(chan struct{}), written: make(chan struct{}, 1000)}
	return h, func(o *link.Options) { o.Store = h }
}

func (h *held) RegisterConnections(ctx context.Context, all []fleet.Registration, server string) ([]nodes.Registered, error) {
	out, err := h.Store.RegisterConnections(ctx, all, server)
	h.batches.Add(1)
	return out, h.wait(ctx, h.registers, err)
}

func (h *held) OpenConnections(ctx context.Context, all []nodes.Opening, server string) ([]nodes.Opened, error) {
	out, err := h.Store.OpenConnections(ctx, all, server)
	return out, h.wait(ctx, h.opens, err)
}

func (h *held) wait(ctx context.Context, until chan struct{}, err error) error {
	h.written <- struct{}{}
	select {
	case <-until:
	case <-ctx.Done():
	}
	return err
}

// waiting is how many registrations wait for their turn at a server.
func (s *server) waiting(t *testing.T) (n float64) {
	t.Helper()
	all, err := s.metrics.Gather()
	require.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "holdfast_link_waiting" && m.GetLabel()[0].GetValue() == "register" {
				n = m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// C74: those who come in the same moment are registered together, and another identity that
// comes after them all need not wait for them.
func TestStorm(t *testing.T) {
	t.Parallel()
	const many = 300
	r := newRegion(t)
	h, with := r.held()
	s := r.serve(slow(), with)
	c := r.client(s)
	token, _ := r.provider()
	var storm errgroup.Group
	for i := range many {
		storm.Go(func() error {
			_, err := c.Register(t.Context(), offer(bare, named(fmt.Sprintf("p-%03d", i))))
			return err
		})
	}
	r.eventually("all but the first two batches wait", func() bool { return h.batches.Load() == 2 && s.waiting(t) > many/2 })
	other := make(chan error, 1)
	go func() {
		_, err := r.dial(s.address, fixed(token)).Register(t.Context(), offer(bare, named("other")))
		other <- err
	}()
	before := s.waiting(t)
	r.eventually("the other one waits too", func() bool { return s.waiting(t) > before || len(other) > 0 })
	close(h.registers)
	require.NoError(t, <-other)
	require.NoError(t, storm.Wait())
	require.Less(t, h.batches.Load(), int64(many/10))
	var live int
	require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT count(*) FROM connections WHERE ended_at IS NULL").Scan(&live))
	require.Equal(t, many+1, live)
}

// Who gave up while being registered leaves a connection that ends like any without a stream.
func TestRegistrationWithoutCaller(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	h, with := r.held()
	s := r.serve(quick(), with)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := r.client(s).Register(ctx, offer())
		gone <- err
	}()
	<-h.written
	cancel()
	refused(t, codes.Canceled, <-gone)
	close(h.registers)
	var id string
	require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT id FROM connections").Scan(&id))
	r.ends(id, fleet.StreamRequired)
}

// C6: a stream that breaks while it is opened ends its connection at once.
func TestStreamBreaksWhileItOpens(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	h, with := r.held()
	close(h.registers)
	s := r.serve(slow(), with)
	id := r.client(s).register(offer()).GetConnectionId()
	<-h.written
	l := r.client(s).open(id)
	<-h.written
	require.Equal(t, fleet.ConnectionActive, r.row(id).State)
	l.cancel()
	began := now()
	r.ends(id, fleet.StreamFailed)
	require.Less(t, now().Sub(began), 10*time.Second) // not by a comparison with old rows
	close(h.opens)
}
