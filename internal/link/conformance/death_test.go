package conformance

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/executors"
	"github.com/holdfast-io/holdfast/provider"
)

// C48, C49, C50, C51, C57: what a provider had goes with it, wherever it is kept: its stream, its
// modules, its executor's place among those that are called, and, with the last of its group,
// the module namespace.
func TestDeath(t *testing.T) {
	t.Parallel()
	r := newRegion(t, patient())
	pool := executors.New(executors.Options{Directory: r.store, Now: now})
	t.Cleanup(pool.Close)
	work := fleet.ModuleRef{Namespace: "acme.text", Name: "work"}
	var ran [2]atomic.Int64
	var all [2]*running
	var wires [2]*wire
	var ids [2]string
	for i, name := range []string{"a", "b"} {
		with, _ := r.modules("acme.text", "g", func(context.Context, []byte) ([]byte, error) {
			ran[i].Add(1)
			return []byte(`{}`), nil
		})
		wires[i] = newWire(t, r.address)
		all[i] = r.run(options(wires[i].address, r.token, with, named(name)))
		ids[i] = r.active(name, "")
	}
	execute := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := pool.Execute(ctx, fleet.Execution{ID: "1", Module: work, Input: []byte(`{}`)})
		return err
	}
	for range 4 {
		require.NoError(t, execute())
	}
	require.EqualValues(t, 2, ran[0].Load())
	require.EqualValues(t, 2, ran[1].Load())

	wires[0].set(false, false, true) // and it does not come back
	wires[0].cut()
	r.ends(ids[0], fleet.StreamFailed)
	members, err := r.store.ModuleMembers(t.Context(), work)
	require.NoError(t, err)
	require.Len(t, members, 1)
	require.Equal(t, fleet.ConnectionID(ids[1]), members[0].Connection)
	r.eventually("only the other is called", func() bool { // lookups are a second old at most
		before := ran[0].Load()
		for range 3 {
			if execute() != nil {
				return false
			}
		}
		return ran[0].Load() == before
	})
	token, _ := r.grant("acme.text")
	heir, _ := r.modules("acme.text", "", func(context.Context, []byte) ([]byte, error) { return []byte(`{}`), nil })
	owned := r.run(options(r.address, token, heir, named("heir"), func(o *provider.Options) { o.MaxReconnectAttempts = 1 }))
	require.ErrorContains(t, owned.result(), "belongs to group g", "one of its group lives")

	all[1].end()
	require.NoError(t, all[1].result())
	r.ends(ids[1], fleet.Deregistered)
	modules, err := r.store.ListModules(t.Context(), "", fleet.ModuleRef{}, 10)
	require.NoError(t, err)
	require.Empty(t, modules)
	r.eventually("nobody is called", func() bool { return fleet.KindOf(execute()) == fleet.Unavailable })
	r.run(options(r.address, token, heir, named("heir")))
	r.active("heir", "")
}

// C64: a program that serves several regions has a connection to each, and a loss at one is
// nothing to the other.
func TestInstances(t *testing.T) {
	t.Parallel()
	one, other := newRegion(t, patient()), newRegion(t, patient())
	with, _ := one.modules("acme.text", "", func(context.Context, []byte) ([]byte, error) { return nil, nil })
	first := one.run(options(one.address, one.token, with))
	second := other.run(options(other.address, other.token, with)) // with the same Executor
	id, kept := one.active("p", ""), other.active("p", "")
	other.eventually("it knows that it is", func() bool { return second.Status().State == provider.Active })
	one.stop()
	one.eventually("it knows", func() bool { return first.Status().State == provider.Disconnected })
	require.Equal(t, provider.Active, second.Status().State)
	one.serve()
	one.active("p", id)
	require.Equal(t, kept, second.Status().ConnectionID)
	require.Len(t, other.live(), 1)
	require.EqualValues(t, kept, other.live()[0].ID)
}
