package deliveries_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N98, X2, N18
func TestReleaseBatch(t *testing.T) {
	t.Parallel()

	t.Run("writes what a PUT writes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Labelled(map[string]string{"line": "1"}))
		b.Deploy("1")
		before, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		b.fleetOf(1, press)
		after := b.Feed(postgres.Cursor{})
		b.release(releaseOf(batchID(1), b.changeTo(press, `{"a":2}`)))
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.EqualValues(t, before.Generation+1, o.Generation)
		require.Equal(t, before.Labels, o.Labels)
		require.Equal(t, before.UID, o.UID)
		require.Equal(t, before.Project, o.Project)
		events := b.Feed(after[len(after)-1].Cursor)
		require.Len(t, events, 1)
		e := events[0]
		require.Equal(t, "updated", e.Type)
		require.Equal(t, "ann", e.Actor)
		require.Equal(t, o.ResourceVersion, e.Cursor.Seq)
		require.Contains(t, string(e.Before), string(stores.JSONOf(`{"a":1}`).Hash))
		require.Contains(t, string(e.After), string(stores.JSONOf(`{"a":2}`).Hash))
		require.Contains(t, string(e.After), `"line"`)
		require.Equal(t, "delivering 2 1 1 ", b.target(press))
		require.Equal(t, []int64{0, 0}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM outbox WHERE subject LIKE 'instance%'
			AND id > 2), (SELECT count(*) FROM operations WHERE state = 'running')]`))
	})

	// N105: from which revision to which.
	t.Run("says from which revision each delivery comes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(2)
		b.fleetOf(1, names...)
		b.deliver(releaseOf(batchID(1), b.changeTo(names[0], `{"a":"one"}`)))
		b.deliver(alone(releaseOf(batchID(2), b.changeTo(names[0], `{"a":"two"}`))))
		b.release(alone(releaseOf(batchID(3), b.changeTo(names[0], `{"a":"never deployed"}`), b.changeTo(names[1], `{"a":"first"}`))))
		b.release(alone(releaseOf(batchID(4), b.changeTo(names[0], `{"a":"three"}`))))
		require.Equal(t, []string{"i000 1 from 0", "i000 2 from 1", "i000 3 from 2", "i000 4 from 2", "i001 1 from 0"},
			stores.Scan[[]string](b, `SELECT array_agg(format('%s %s from %s', name, revision, from_revision) ORDER BY name, revision) FROM deliveries`))
	})

	t.Run("says of each that cannot be changed why, and goes on with the rest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(8)
		b.fleetOf(1, append(names, "never")...)
		b.Put(`{"gone":1}`, stores.Named(string(names[1])))
		del := stores.TurnOf(fleet.OperationDelete)
		del.Key = keyOf(names[1])
		_, err := b.TurnInstance(t.Context(), del)
		require.NoError(t, err)
		items := b.changes(names, "new")
		items[0].Refused = fleet.Errorf(fleet.Invalid, "the patch does not fit").At("/a")
		items[2].Generation--
		items[3].Revision = 7
		content := stores.JSONOf(`{"nobody":"put it"}`)
		items[4].Content, items[4].Spec.Config = content, &content
		items[5] = deliveries.BatchChange{Instance: "never", Generation: 1, Spec: items[5].Spec, Content: items[5].Content}
		out := b.release(releaseOf(batchID(1), items...))
		require.Equal(t, 2, out.Claimed)
		require.Equal(t, "failed 0 0 0 invalid", b.target(names[0]))
		require.Equal(t, "failed 0 0 0 not_found", b.target(names[1]))
		require.Equal(t, "waiting 0 0 1 ", b.target(names[2]))
		require.Equal(t, "superseded 0 0 0 newer_revision", b.target(names[3]))
		require.Equal(t, "waiting 0 0 1 ", b.target(names[4]))
		require.Equal(t, "failed 0 0 0 not_found", b.target("never"))
		require.Equal(t, "delivering 1 0 1 ", b.target(names[6]))
		require.Equal(t, "delivering 1 0 1 ", b.target(names[7]))
	})

	t.Run("leaves to others what they wrote since", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(1)
		b.fleetOf(1, names...)
		item := b.changeTo(names[0], `{"a":9}`)
		item.Refused = fleet.Errorf(fleet.Stale, "revision 7 was released since")
		require.Zero(t, b.release(releaseOf(batchID(1), item)).Claimed)
		require.Equal(t, "superseded 0 0 0 newer_revision", b.target(names[0]))
		require.Equal(t, "revision 7 was released since", stores.Scan[string](b, "SELECT message FROM fleet_targets"))
	})

	t.Run("tries what others change again, and gives up after so many times", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(1)
		b.fleetOf(1, names...)
		for i := range 5 {
			item := b.changeTo(names[0], `{"a":9}`)
			item.Generation += 5
			require.Zero(t, b.release(releaseOf(batchID(i+1), item)).Claimed)
		}
		require.Equal(t, "failed 0 0 5 conflict", b.target(names[0]))
		require.Zero(t, b.release(releaseOf(batchID(9), b.changeTo(names[0], `{"a":9}`))).Claimed, "it is done")
	})

	t.Run("claims nothing at a site that is closed, and says so", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(2)
		b.fleetOf(1, names...)
		b.Exec("UPDATE site_leases SET dropped = true")
		require.Equal(t, deliveries.BatchReleased{ID: batchID(1)}, b.release(releaseOf(batchID(1), b.changes(names, "new")...)))
		require.Equal(t, "failed 0 0 0 no_active_node", b.target(names[0]))
		require.Equal(t, "ended", stores.Scan[string](b, "SELECT state FROM batches"))
		b.Exec("UPDATE fleet_runs SET state = 'superseded', ended_at = now()")
		b.fleetOf(2, names...)
		r := releaseOf(batchID(2), b.changes(names, "new")...)
		r.FleetRun = 2
		b.Exec("UPDATE objects SET deleting_since = now() WHERE kind = 'site'")
		require.Zero(t, b.release(r).Claimed)
		require.Equal(t, "failed not_found", stores.Scan[string](b, "SELECT DISTINCT state || ' ' || reason FROM fleet_targets WHERE run = 2"))
	})

	t.Run("claims nothing of a run that is paused, stopped or to be cancelled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(1)
		b.fleetOf(1, names...)
		for i, sql := range []string{
			"UPDATE fleet_runs SET state = 'paused'", "UPDATE fleet_runs SET state = 'running', cancel_requested = true",
			"UPDATE fleet_runs SET state = 'stopped', ended_at = now(), cancel_requested = false",
		} {
			b.Exec(sql)
			require.Zero(t, b.release(releaseOf(batchID(i+1), b.changes(names, "new")...)).Claimed, sql)
			require.Equal(t, "waiting 0 0 0 ", b.target(names[0]))
		}
		require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("repeated is answered as the first, and changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(3)
		b.fleetOf(1, names...)
		r := releaseOf(batchID(1), b.changes(names, "new")...)
		first := b.release(r)
		rows := b.rowsOf(names[0])
		require.Equal(t, first, b.release(r))
		require.Equal(t, rows, b.rowsOf(names[0]))
		r.Items = r.Items[:1]
		require.Equal(t, first, b.release(r), "whatever it was made of since")
		r.Stage = true
		_, err := b.ReleaseBatch(t.Context(), r)
		stores.Refused(t, fleet.Conflict, err)
	})

	t.Run("leaves out what the change does not change, once it is deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.fleetOf(1, press)
		item := b.changeTo(press, `{"a":1}`)
		require.Equal(t, 1, b.deliver(alone(releaseOf(batchID(1), item))).Succeeded)
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT max(revision) FROM revisions"), "released before, delivered now")
		require.Zero(t, b.release(releaseOf(batchID(2), item)).Claimed)
		require.Equal(t, "unchanged 1 1 0 ", b.target(press))
	})

	t.Run("calls a revision that only enables or disables so", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		for i, enabled := range []bool{false, true} {
			item := b.changeTo(press, `{"a":1}`)
			item.Spec.Enabled = enabled
			require.Equal(t, 1, b.deliver(alone(releaseOf(batchID(i+1), item))).Succeeded)
		}
		item := b.changeTo(press, `{"a":2}`)
		item.Spec.Enabled = false
		b.release(alone(releaseOf(batchID(3), item)))
		require.Equal(t, []string{"deploy", "disable", "enable", "deploy"},
			stores.Scan[[]string](b, "SELECT array_agg(action ORDER BY revision) FROM revisions"))
	})

	t.Run("refuses more than may travel together, and one name twice", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		item := b.changeTo(press, `{"a":1}`)
		_, err := b.ReleaseBatch(t.Context(), releaseOf(batchID(1), item, item))
		stores.Refused(t, fleet.Invalid, err)
		many := make([]deliveries.BatchChange, fleet.MaxBatchItems+1)
		for i := range many {
			many[i].Instance = fleet.InstanceName(fmt.Sprint("n", i))
		}
		_, err = b.ReleaseBatch(t.Context(), releaseOf(batchID(1), many...))
		stores.Refused(t, fleet.Invalid, err)
	})

	t.Run("keeps messages short, and as the database takes them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(1)
		b.fleetOf(1, names...)
		item := b.changeTo(names[0], `{"a":1}`)
		item.Refused = fleet.Errorf(fleet.Invalid, "a\x00b\xff%s", strings.Repeat("ü", 1000))
		b.release(releaseOf(batchID(1), item))
		require.LessOrEqual(t, stores.Scan[int](b, "SELECT octet_length(message) FROM fleet_targets"), 500)
	})
}

// N16, N17: whoever asks for something newer of one item takes just that item.
func TestBatchSuperseded(t *testing.T) {
	t.Parallel()
	for at, step := range []string{"released", "told", "recorded at the active", "told to the standby", "recorded"} {
		for _, by := range []string{"put", "disable", "delete"} {
			t.Run(fmt.Sprintf("by a %s once it is %s", by, step), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.Put(`{"a":0}`)
				b.Deploy("1")
				names := append(b.instances(2), press)
				b.fleetOf(1, names...)
				id := batchID(1)
				b.release(releaseOf(id, b.changes(names, "new")...))
				steps := []func(){
					func() { b.tell(id, nodeA) },
					func() {
						require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, takenAll(b.items(id, nodeA))))
					},
					func() { b.tell(id, nodeB) },
					func() {
						require.NoError(t, b.RecordBatch(t.Context(), id, nodeB, takenAll(b.items(id, nodeB))))
					},
				}
				for i := range steps {
					if i == at {
						b.other(by)
					}
					steps[i]()
				}
				if at == len(steps) {
					b.other(by)
				}
				require.Equal(t, 2, b.endBatch(id).Succeeded)
				require.Equal(t, "succeeded 1 0 1 ", b.target(names[0]))
				require.Equal(t, "superseded 2 1 1 newer_revision", b.target(press))
				d := b.MustObserve(run1).Open
				require.NotNil(t, d)
				require.EqualValues(t, 3, d.Revision.Version.Revision)
				require.Empty(t, d.Batch)
			})
		}
	}
}

// other asks for something of the press alone, and claims it.
func (b *bench) other(by string) {
	b.T.Helper()
	switch by {
	case "put":
		b.Put(`{"other":1}`)
	case "disable":
		b.Turn(fleet.OperationDisable)
	case "delete":
		b.Turn(fleet.OperationDelete)
	}
	require.NotEmpty(b.T, b.MustObserve(run1).Open.Batch)
	b.MustClaim(run1, "other")
}
