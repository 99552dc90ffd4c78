package replicas

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
	"github.com/holdfast-io/holdfast/provider"
)

var _ provider.ReplicaFeed = (*Keeper)(nil)

// fed is a keeper with two replicas that nobody works for.
func fed(t *testing.T) *Keeper {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	k := New(options(b.dir, b.runtime()))
	k.version = fleet.SetVersion{Era: 1, Number: 9}
	for _, id := range []fleet.ReplicaID{first, second} {
		k.add(known{NodeReplica: line(id, ""), Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, PID: 7})
	}
	return k
}

func ids(r *nodev1.ReplicasReport) []string {
	var all []string
	for _, st := range r.GetReplicas() {
		all = append(all, st.GetId())
	}
	return all
}

// S73, X25: all replicas after each new stream, then what changed; what was not acked is told again.
func TestFeed(t *testing.T) {
	t.Parallel()
	k := fed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.Next(ctx, true)
	require.ErrorIs(t, err, context.Canceled, "before it knows what runs it tells nothing")
	close(k.ready)

	all, err := k.Next(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, []any{true, int64(9), []string{string(first), string(second)}}, []any{all.GetComplete(), all.GetSetVersion(), ids(all)})
	k.Acked(all.GetSequence())
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled, "nothing changed")

	change := func(id fleet.ReplicaID) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.feed.changed(id)
	}
	pass := func(id fleet.ReplicaID) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.passing(id)
	}
	pass(first)
	one, err := k.Next(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []any{false, []string{string(first)}}, []any{one.GetComplete(), ids(one)}, "nothing else came")
	k.Acked(one.GetSequence())
	pass(first)
	change(second)
	one, err = k.Next(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []string{string(first), string(second)}, ids(one), "what comes first takes it along")
	k.Acked(one.GetSequence())
	change(first)
	one, err = k.Next(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []any{false, []string{string(first)}}, []any{one.GetComplete(), ids(one)})
	require.Greater(t, one.GetSequence(), all.GetSequence())
	change(second)
	k.Acked(all.GetSequence()) // of another report
	both, err := k.Next(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []string{string(first), string(second)}, ids(both), "the stream broke before the ack")
	k.Acked(both.GetSequence())
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled)

	delete(k.replicas, first)
	change(first)
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled, "of what is gone there is nothing to tell")
	none, err := k.Next(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, []string{string(second)}, ids(none))
}

// X3, X28: a complete report is of the whole once a set was read, and by a node without memory once every
// driver has answered; one that was not is told again then.
func TestWhole(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	told := func() []bool {
		r, err := k.Next(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, "web", r.GetReplicas()[0].GetDeployment())
		return []bool{r.GetComplete(), r.GetWhole()}
	}
	require.Equal(t, []bool{true, false}, told(), "before a set was read")
	_, err := k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled)
	k.mu.Lock()
	k.fresh, k.blank = true, true
	k.absent[fleet.DriverDocker] = make(chan struct{})
	k.mu.Unlock()
	require.Equal(t, []bool{true, false}, told(), "before its engine answered")
	k.appeared(fleet.DriverDocker, nil)
	again, err := k.Next(t.Context(), false)
	require.NoError(t, err)
	require.True(t, again.GetComplete() && again.GetWhole(), "it is told by itself")
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled, "once")

	k.mu.Lock()
	k.blank, k.absent[fleet.DriverDocker] = false, make(chan struct{})
	k.mu.Unlock()
	require.Equal(t, []bool{true, true}, told(), "what it started it remembers")
}

// many adds replicas that nobody works for, and that are to be told.
func many(k *Keeper, n int, change func(*known)) []fleet.ReplicaID {
	all := make([]fleet.ReplicaID, n)
	for i := range all {
		all[i] = fleet.ReplicaID(fmt.Sprintf("%012x", i))
		r := known{NodeReplica: line(all[i], ""), Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, PID: 7}
		change(&r)
		k.add(r)
		k.feed.changed(all[i])
	}
	return all
}

// soon gives a context for what is to be there at once.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// X3, X10, X28: more than a report may hold is told in several, of which none is complete: nobody is to take what
// is not in one for lost. Once one holds all it is told by itself.
func TestCutReport(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	k.fresh = true
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "node.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	k.opt.Store = store
	const over = 3
	gone := many(k, fleet.MaxReportedReplicas-2+over, func(r *known) { r.Gone = true })
	told := map[string]bool{}
	next := func(complete bool) *nodev1.ReplicasReport {
		r, err := k.Next(soon(t), complete)
		require.NoError(t, err)
		for _, id := range ids(r) {
			told[id] = true
		}
		return r
	}
	for range 2 { // the stream breaks before the ack
		report := next(true)
		require.Equal(t, []any{false, false, fleet.MaxReportedReplicas}, []any{report.GetComplete(), report.GetWhole(), len(ids(report))})
		require.Equal(t, []string{string(first), string(second)}, ids(report)[:2], "first what is not gone")
		k.Acked(report.GetSequence() + 1)
	}
	k.Acked(k.feed.sequence)
	rest := next(false)
	require.Equal(t, []any{false, false, over}, []any{rest.GetComplete(), rest.GetWhole(), len(ids(rest))})
	require.Len(t, told, fleet.MaxReportedReplicas+over)
	k.Acked(rest.GetSequence())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled, "there are still too many")

	for _, id := range gone[:over] {
		require.NoError(t, k.clear(t.Context(), id))
	}
	all := next(false)
	require.Equal(t, []any{true, true, fleet.MaxReportedReplicas}, []any{all.GetComplete(), all.GetWhole(), len(ids(all))})
	k.Acked(all.GetSequence())
	_, err = k.Next(ctx, false)
	require.ErrorIs(t, err, context.Canceled, "once")

	for _, w := range k.replicas {
		w.known.Gone = false
	}
	many(k, over, func(*known) {}) // instead of those that are gone, and all at once
	for id := range k.replicas {
		k.feed.changed(id)
	}
	most := next(false)
	require.Len(t, ids(most), fleet.MaxReportedReplicas)
	k.Acked(most.GetSequence())
	require.Len(t, ids(next(false)), over, "what changed and was cut off is told next")
}

// X3, X27: what has ended, and is here for its output alone, is no part of a complete report once it was told.
func TestGoneIsToldOnce(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	k.fresh = true
	many(k, 2*fleet.MaxReportedReplicas, func(r *known) { r.Gone, r.Phase = true, fleet.PhaseStopped })
	for range 2 {
		report, err := k.Next(soon(t), false)
		require.NoError(t, err)
		require.Len(t, ids(report), fleet.MaxReportedReplicas)
		k.Acked(report.GetSequence())
	}
	report, err := k.Next(soon(t), true)
	require.NoError(t, err)
	require.Equal(t, []any{true, true, []string{string(first), string(second)}}, []any{report.GetComplete(), report.GetWhole(), ids(report)})
}

// X10: whatever a message holds, it can be sent and stored.
func TestSentence(t *testing.T) {
	t.Parallel()
	require.Equal(t, "plain: ä", sentence("plain: ä"))
	require.Equal(t, "two lines  and a NUL", sentence("two lines\n\x00and a NUL"))
	require.True(t, utf8.ValidString(sentence("bad \xff\xfe")))
	long := sentence(strings.Repeat("ä", maxMessage))
	require.True(t, utf8.ValidString(long))
	require.LessOrEqual(t, len(long), maxMessage+1)
}
