package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// wokenNodes remembers whom it woke.
type wokenNodes struct {
	all []fleet.NodeName
	err error
}

var _ nodeWaker = (*wokenNodes)(nil)

func (w *wokenNodes) WakeNodes(_ context.Context, nodes ...fleet.NodeName) error {
	w.all = append(w.all, nodes...)
	return w.err
}

type oneFailover fleet.FailoverSeen

func (f oneFailover) SeeFailover(context.Context, fleet.FailoverLook) (fleet.FailoverSeen, error) {
	return fleet.FailoverSeen(f), nil
}
func (oneFailover) MoveUnvoted(context.Context, fleet.SiteName, fleet.NodeName) error { return nil }
func (oneFailover) EndFailover(context.Context, fleet.FailoverEnd) error              { return nil }

type onePass fleet.ReconcileBegun

func (p onePass) BeginReconcile(context.Context, fleet.ReconcileStart) (fleet.ReconcileBegun, error) {
	return fleet.ReconcileBegun(p), nil
}
func (onePass) EndReconcile(context.Context, fleet.ReconcileEnd) error { return nil }

type oneBatch struct{ command *fleet.BatchCommand }

func (b oneBatch) PrepareBatch(context.Context, fleet.BatchPrepare) (*fleet.BatchNotify, error) {
	if b.command == nil {
		return nil, nil
	}
	return &fleet.BatchNotify{Command: *b.command, SealingKey: []byte("key")}, nil
}
func (oneBatch) MissBatch(context.Context, fleet.BatchMiss) error { return nil }
func (oneBatch) EndBatch(context.Context, fleet.BatchID) (fleet.BatchEnded, error) {
	return fleet.BatchEnded{}, nil
}
func (oneBatch) Gather(context.Context, GatherBatch) (BatchMade, error) { return twoNodes, nil }
func (b oneBatch) Next(context.Context, NextBatch, []byte) (BatchMade, *fleet.BatchNotify, error) {
	if b.command == nil {
		return BatchMade{}, nil, nil
	}
	return twoNodes, &fleet.BatchNotify{Command: *b.command}, nil
}

var twoNodes = BatchMade{Claimed: 1, Nodes: []fleet.NodeName{"a", "b"}}

// Whoever hands a workflow what it gives to a node has seen to it that the node asks for it.
func TestWhoIsToldIsWoken(t *testing.T) {
	t.Parallel()
	pass := onePass{By: time.Unix(1, 0), Command: &fleet.ReconcileCommand{}}
	batch := oneBatch{&fleet.BatchCommand{}}
	batches := func(w *wokenNodes, store oneBatch) *Batches {
		return &Batches{Maker: store, Gatherer: store, Store: store, Tokens: oneToken{}, Signer: oneToken{}, Nodes: w}
	}
	for _, row := range []struct {
		name  string
		call  func(ctx context.Context, w *wokenNodes) error
		woken []fleet.NodeName
	}{
		{"a failover's holder and target", func(ctx context.Context, w *wokenNodes) error {
			f := &Failovers{Store: oneFailover{Operation: "op", Holder: "a", To: "b"}, Signer: oneToken{}, Nodes: w}
			_, err := f.SeeFailover(ctx, fleet.FailoverLook{Site: "plant-1"})
			return err
		}, []fleet.NodeName{"a", "b"}},
		{"a node that is compared", func(ctx context.Context, w *wokenNodes) error {
			_, err := (&Reconciles{Passes: pass, Tokens: oneToken{}, Signer: oneToken{}, Nodes: w}).Begin(ctx, BeginReconcile{Node: "a"})
			return err
		}, []fleet.NodeName{"a"}},
		{"the active of a fleet's batch", func(ctx context.Context, w *wokenNodes) error {
			_, err := batches(w, batch).NextBatch(ctx, NextBatch{})
			return err
		}, []fleet.NodeName{"a"}},
		{"the active of a gathered batch", func(ctx context.Context, w *wokenNodes) error {
			_, err := batches(w, batch).GatherBatch(ctx, GatherBatch{})
			return err
		}, []fleet.NodeName{"a"}},
		{"the standby of a batch", func(ctx context.Context, w *wokenNodes) error {
			_, err := batches(w, batch).PrepareBatch(ctx, fleet.BatchPrepare{Node: "b"})
			return err
		}, []fleet.NodeName{"b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := &wokenNodes{}
			require.NoError(t, row.call(t.Context(), w))
			require.Equal(t, row.woken, w.all)
			require.Error(t, row.call(t.Context(), &wokenNodes{err: errors.New("the database is away")}), "it tries again")
		})
	}
	t.Run("nobody, where nobody is told", func(t *testing.T) {
		t.Parallel()
		w := &wokenNodes{}
		_, err := (&Failovers{Store: oneFailover{}, Nodes: w}).SeeFailover(t.Context(), fleet.FailoverLook{Site: "plant-1"})
		require.NoError(t, err)
		_, err = (&Reconciles{Passes: onePass{}, Tokens: oneToken{}, Signer: oneToken{}, Nodes: w}).Begin(t.Context(), BeginReconcile{Node: "a"})
		require.NoError(t, err)
		_, err = batches(w, oneBatch{}).PrepareBatch(t.Context(), fleet.BatchPrepare{Node: "a"})
		require.NoError(t, err)
		require.Empty(t, w.all)
	})
}
