package region

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// M3: a server reads at once what another server of its region commits, though it looks by itself only every hour.
func TestServersHearOfCommits(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	one, two := newSharing(t, "eu", url), newSharing(t, "eu", url)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	tells, hears := postgres.NewCommits(one.store.Store, "one"), postgres.NewCommits(two.store.Store, "two")
	one.store.OnCommit(func([]string) { tells.Note() })
	reader, listens := watch.NewReader(two.store, time.Hour), make(chan struct{})
	var heard atomic.Int32
	all.Go(func() { _ = tells.Tell(ctx) })
	all.Go(func() { // it ends with the test
		_ = hears.Listen(ctx, func() {
			if heard.Add(1) == 1 {
				close(listens)
			}
			reader.Wake()
		})
	})
	<-listens
	names, current := make(chan string, 100), make(chan struct{}, 1)
	all.Go(func() {
		s := &watch.Stream{
			Source: two.store, Reader: reader, Filter: watch.Filter{Kinds: []fleet.ObjectKind{fleet.KindPool}}, Self: "eu",
			Snapshots: make(chan struct{}, 1), Beat: time.Hour,
			View: func(o fleet.Object) api.Object { return api.Object{Name: o.Name} },
			Send: func(lines []api.WatchLine) error {
				for _, l := range lines {
					if l.Object != nil {
						names <- l.Object.Name
					} else if l.Type == api.WatchCurrent {
						poke.Once(current)
					}
				}
				return nil
			},
		}
		_ = s.Run(ctx, "", "")
	})
	<-current // the snapshot is sent: what follows comes by the feed
	m := &mesh{t: t, regions: map[fleet.RegionName]*sharing{"eu": one}}
	for i := range 5 {
		m.declare("eu", poolKey(i), string(fleet.DefaultProject), nil, fleet.PoolSpec{})
	}
	again, late := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer again.Stop()
	for seen := map[string]bool{}; len(seen) < 5; {
		select {
		case name := <-names:
			seen[name] = true
		case <-again.C:
			if heard.Load() > 1 { // it was told: transactions of other databases of the cluster may have held the feed back then
				reader.Wake()
			}
		case <-late:
			t.Fatalf("only %v", seen)
		}
	}
	require.Eventually(t, func() bool { return heard.Load() > 1 }, patience, 10*time.Millisecond, "it was told, also if it had read before that")
}
