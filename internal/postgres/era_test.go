package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) reopen(region string) error {
	b.T.Helper()
	s, err := store.Open(b.Ctx(), b.URL, region)
	if err == nil {
		s.Close()
	}
	return err
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("refuses the database of another region", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		require.NoError(t, b.reopen(testkit.Region))
		stores.Refused(t, fleet.Precondition, b.reopen("elsewhere"))
		_, err := postgres.RaiseEra(t.Context(), b.URL, "elsewhere")
		stores.Refused(t, fleet.Precondition, err)
		r, err := b.GetRegion(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Era)
		require.Equal(t, testkit.Region, r.Name)
	})

	for name, change := range map[string]string{
		"system identifier": "UPDATE region SET system_identifier = 'of another cluster'",
		"timeline":          "UPDATE region SET timeline = timeline + 1",
	} {
		t.Run("refuses a changed "+name+" until the era is raised", func(t *testing.T) {
			t.Parallel()
			b := bare(t)
			b.Exec(change)
			stores.Refused(t, fleet.Precondition, b.reopen(testkit.Region))
			stores.Refused(t, fleet.Precondition, b.reopen(testkit.Region))
			require.EqualValues(t, 2, b.RaiseEra().Era)
			require.NoError(t, b.reopen(testkit.Region))
		})
	}

	t.Run("cannot be done without a database", func(t *testing.T) {
		t.Parallel()
		_, err := store.Open(t.Context(), "host=/nowhere dbname=x sslmode=disable", testkit.Region)
		stores.Refused(t, fleet.Unavailable, err)
		_, err = store.Open(t.Context(), "postgres://%zz", testkit.Region)
		stores.Refused(t, fleet.Invalid, err)
		require.NotContains(t, err.Error(), "%zz", "a URL may hold a password")
	})
}

// X1, X24
func TestRaiseEra(t *testing.T) {
	t.Parallel()

	t.Run("numbers what comes after in the new era, and leaves what was", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.Deploy("1")
		b.RaiseEra()
		require.Equal(t, old.Revision, b.DeployedRevision())
		b.Put(`{"a":2}`)
		d := b.Deploy("2")
		require.Equal(t, fleet.Version{Era: 2, Revision: 2}, d.Revision.Version)
		require.Equal(t, d.Revision, b.DeployedRevision())
		require.True(t, d.Revision.Newer(fleet.Version{Era: 1, Revision: 99}))
	})

	t.Run("goes on with the feed after all of the old era, whatever its numbers", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Exec("UPDATE events SET xid = '9000000000000'") // as in the cluster that the backup is from
		b.RaiseEra()
		b.Put(`{"a":2}`)
		end, err := b.FeedEnd(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, end.Era)
		stores.Eventually(t, "all of both eras", func() bool {
			events, err := b.ReadFeed(t.Context(), postgres.Cursor{}, 10)
			return err == nil && len(events) == 3
		})
		events, err := b.ReadFeed(t.Context(), postgres.Cursor{}, 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, events[1].Cursor.Era)
		require.EqualValues(t, 2, events[2].Cursor.Era)
		chained(t, events[1:])
	})

	t.Run("waits for the writers of the old era, so that no reader passes them by", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		ctx, stop := stores.ContextWithDeadline(t)
		defer stop()
		watchers := []<-chan []postgres.Event{b.watcher(ctx, 1), b.watcher(ctx, 10)}
		old := b.hold()
		require.NoError(t, writeEvent(ctx, old, "old"))
		raised, wrote := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := postgres.RaiseEra(ctx, b.URL, testkit.Region)
			raised <- err
		}()
		b.WaitsForLock(1)
		go func() { // this one comes too late for the old era
			_, err := b.Declare(ctx, stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: "last"}), fleet.ProjectSpec{})
			wrote <- err
		}()
		b.WaitsForLock(2)
		require.NoError(t, old.Commit(ctx))
		require.NoError(t, <-raised)
		require.NoError(t, <-wrote)
		for _, w := range watchers {
			seen := <-w
			require.Equal(t, []string{"old", "last"}, namesOf(seen))
			require.EqualValues(t, 1, seen[0].Cursor.Era)
			require.EqualValues(t, 2, seen[1].Cursor.Era)
		}
	})
}

// X1
func TestRestored(t *testing.T) {
	t.Parallel()

	report := func(b *bench, v fleet.Version) error {
		_, err := b.HeldBy(b.Ctx(), nodes.NodeReport{Node: nodeA, Instances: []fleet.NodeInstance{{
			Instance: stores.Press, Held: stores.Holding(fleet.Revision{Version: v, Content: stores.JSONOf("lost")}),
		}}})
		return err
	}

	t.Run("a node above the region's last number is refused until the era is raised", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		require.NoError(t, report(b, fleet.Version{Era: 1, Revision: 1}))
		stores.Refused(t, fleet.Precondition, report(b, fleet.Version{Era: 1, Revision: 2}))
		stores.Refused(t, fleet.Precondition, report(b, fleet.Version{Era: 2, Revision: 1}))
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT revision FROM node_held"), "nothing of it is kept")
		b.RaiseEra()
		require.NoError(t, report(b, fleet.Version{Era: 1, Revision: 2}))
	})

	t.Run("a node with a name that the region never knew is refused too", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		stores.Refused(t, fleet.Precondition, report(b, fleet.Version{Era: 1, Revision: 1}))
	})

	t.Run("what was lost is shown as ahead, and the deployed content comes again above it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		deployed := b.Deploy("1").Revision
		b.RaiseEra()
		require.NoError(t, report(b, fleet.Version{Era: 1, Revision: 7}))
		page, _, err := b.ComparePage(t.Context(), nodeA, "", 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.EqualValues(t, 7, page[0].Held.Version.Revision)
		require.False(t, page[0].Expected)
		wake, err := b.ReleaseAgain(t.Context(), nodeA, stores.Press, page[0].Snapshot.Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		d := b.Deploy("2")
		require.Equal(t, fleet.Version{Era: 2, Revision: 2}, d.Revision.Version)
		require.Equal(t, deployed.Content, d.Revision.Content)
		require.Equal(t, d.Revision, b.DeployedRevision())
	})
}
