package provider

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// feed is what a test's node tells; its news are single reports.
type feed struct {
	news chan error // nil: something changed; else Next fails

	mu    sync.Mutex
	last  uint64
	asked []bool // complete or not
	acks  []uint64
}

var _ ReplicaFeed = (*feed)(nil)

func newFeed() *feed { return &feed{news: make(chan error, 10)} }

func (f *feed) Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error) {
	if !complete {
		select {
		case err := <-f.news:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	f.asked = append(f.asked, complete)
	return &nodev1.ReplicasReport{Sequence: f.last, Complete: complete, SetVersion: 7}, nil
}

func (f *feed) Acked(sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acks = append(f.acks, sequence)
}

func (f *feed) acked() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]uint64(nil), f.acks...)
}

func (f *feed) completes() []bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]bool(nil), f.asked...)
}

func fed(f *feed) func(*Options) { return func(o *Options) { o.Replicas = f } }

func (s *stream) ackReport(sequence uint64) error {
	return s.Send(&nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicasReportAck{
		ReplicasReportAck: &nodev1.ReplicasReportAck{Sequence: sequence},
	}})
}

// taking is a region that answers heartbeats and gives each report to take.
func taking(take func(n int, s *stream, r *nodev1.ReplicasReport) error) func(int, *stream) error {
	return func(n int, s *stream) error {
		if err := s.ack(); err != nil {
			return err
		}
		for {
			m, err := s.next()
			if err != nil {
				return orNil(err)
			}
			if m.GetHeartbeat() != nil {
				err = s.ack()
			}
			if r := m.GetReplicasReport(); r != nil {
				err = take(n, s, r)
			}
			if err != nil {
				return err
			}
		}
	}
}

// S53, X4: a node's reports go one by one, and begin anew on each stream.
func TestFeed(t *testing.T) {
	t.Parallel()
	t.Run("begins with all there is, and goes on after each ack", func(t *testing.T) {
		t.Parallel()
		got := make(chan *nodev1.ReplicasReport, 10)
		ack := make(chan struct{})
		r := newRegion(t)
		r.onStream = taking(func(_ int, s *stream, report *nodev1.ReplicasReport) error {
			got <- report
			<-ack
			return s.ackReport(report.GetSequence())
		})
		r.start()
		f := newFeed()
		run(t, options(t, r.address, fed(f), func(o *Options) { o.HeartbeatTimeout = patience })).active(t, 1)
		f.news <- nil
		f.news <- nil
		first := <-got
		require.True(t, first.GetComplete())
		require.EqualValues(t, 7, first.GetSetVersion())
		require.Equal(t, []bool{true}, f.completes(), "nothing more is asked for before the ack")
		close(ack)
		require.False(t, (<-got).GetComplete())
		require.False(t, (<-got).GetComplete())
		eventually(t, "acks", func() bool { return len(f.acked()) == 3 })
		require.Equal(t, []uint64{1, 2, 3}, f.acked())
	})
	t.Run("that was not acked begins with all there is on the next stream", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onStream = taking(func(n int, s *stream, report *nodev1.ReplicasReport) error {
			if n == 1 && !report.GetComplete() {
				return errors.New("the server died")
			}
			return s.ackReport(report.GetSequence())
		})
		r.start()
		f := newFeed()
		c := run(t, options(t, r.address, fed(f)))
		eventually(t, "the first ack", func() bool { return len(f.acked()) == 1 })
		f.news <- nil
		c.active(t, 2)
		eventually(t, "the ack of the new stream", func() bool { return len(f.acked()) == 2 })
		require.Equal(t, []uint64{1, 3}, f.acked())
		require.Equal(t, []bool{true, false, true}, f.completes())
	})
	t.Run("takes no ack that it does not wait for", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onStream = taking(func(_ int, s *stream, report *nodev1.ReplicasReport) error {
			n := report.GetSequence()
			return errors.Join(s.ackReport(n+1), s.ackReport(n-1), s.ackReport(n), s.ackReport(n))
		})
		r.start()
		f := newFeed()
		run(t, options(t, r.address, fed(f)))
		f.news <- nil
		eventually(t, "acks", func() bool { return len(f.acked()) == 2 })
		require.Equal(t, []uint64{1, 2}, f.acked())
	})
	t.Run("that fails ends the stream, and the next one asks again", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onStream = taking(func(_ int, s *stream, report *nodev1.ReplicasReport) error { return s.ackReport(report.GetSequence()) })
		r.start()
		f := newFeed()
		c := run(t, options(t, r.address, fed(f)))
		eventually(t, "the first ack", func() bool { return len(f.acked()) == 1 })
		f.news <- errors.New("the store is broken")
		c.active(t, 2)
		eventually(t, "the next ack", func() bool { return len(f.acked()) == 2 })
		require.Equal(t, []bool{true, true}, f.completes())
	})
	t.Run("is left alone by a region that knows of no replicas, and by an end in mid-report", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		f := newFeed()
		c := run(t, options(t, r.address, fed(f)))
		c.active(t, 1)
		eventually(t, "the report is sent", func() bool { return len(f.completes()) == 1 })
		c.end()
		require.NoError(t, c.result(t))
		require.Empty(t, f.acked())
	})
}

// A node tells what it has, and is told of its set; the newest counts.
func TestReplicaSet(t *testing.T) {
	t.Parallel()
	sets := make(chan [2]int64, 10)
	r := newRegion(t)
	r.onStream = func(_ int, s *stream) error {
		if err := s.Send(&nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicaSet{
			ReplicaSet: &nodev1.ReplicaSet{Era: 2, Version: 9},
		}}); err != nil {
			return err
		}
		return s.answer()
	}
	r.start()
	facts := &nodev1.NodeFacts{Address: "10.0.0.1", Labels: map[string]string{"zone": "a"}, Cpu: 4, Memory: 1 << 30}
	run(t, options(t, r.address, func(o *Options) {
		o.NodeFacts = facts
		o.OnReplicaSet = func(era, version int64) { sets <- [2]int64{era, version} }
	})).active(t, 1)
	require.Equal(t, [2]int64{2, 9}, <-sets)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(t, "a", r.registers[0].GetNodeFacts().GetLabels()["zone"])
	require.EqualValues(t, 4, r.registers[0].GetNodeFacts().GetCpu())
}
