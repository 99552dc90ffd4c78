package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// stops gives the revision of press that a new active is not to start, and what is to be done.
func (b *bench) stops() fleet.Revision {
	b.t.Helper()
	seen, err := b.SeeStops(b.ctx(), plant, []fleet.InstanceName{"other", press})
	require.NoError(b.t, err)
	got := decide.OwedStops(seen, nil)
	if len(got) == 0 {
		return fleet.Revision{}
	}
	require.Len(b.t, got, 1)
	require.Equal(b.t, press, got[0].Instance)
	return got[0].Revision
}

// X4, X21
func TestSeeStops(t *testing.T) {
	t.Parallel()
	t.Run("what is deployed and enabled is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Zero(t, b.stops())
		b.put(`{"a":1}`)
		require.Zero(t, b.stops(), "nor what is asked for")
		b.deploy("1")
		require.Zero(t, b.stops())
	})
	for action, how := range map[fleet.Action]fleet.OperationKind{
		fleet.ActionDelete: fleet.OperationDelete, fleet.ActionDisable: fleet.OperationDisable,
	} {
		t.Run(string(action)+" from when it is asked for, and for ever where it is deployed", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.put(`{"a":1}`)
			b.deploy("1")
			b.turn(how)
			require.EqualValues(t, 2, b.stops().Version.Revision)
			d := b.claim(run1, "2")
			require.EqualValues(t, 2, b.stops().Version.Revision, "its delivery is open")
			b.record(d, nodeA)
			b.end(d, fleet.DeliveryFailed, because("not_replicated"))
			got := b.stops()
			require.EqualValues(t, 2, got.Version.Revision)
			require.Equal(t, action, got.Action)
		})
	}
	t.Run("one whose delivery goes on stands, also when its operation has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDisable)
		d := b.claim(run1, "2")
		b.exec(`UPDATE operations SET state = 'failed', reason = 'deadline', ended_at = now() WHERE state = 'running'`)
		require.EqualValues(t, 2, b.stops().Version.Revision)
		b.end(d, fleet.DeliveryFailed, because("cancelled"))
		b.exec(`DELETE FROM owed`)
		require.Zero(t, b.stops())
	})
	t.Run("what nobody waits for and nobody is owed is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDisable)
		d := b.claim(run1, "2")
		b.end(d, fleet.DeliveryFailed, because("cancelled"))
		b.exec(`DELETE FROM owed`)
		require.Zero(t, b.stops())
		b.exec(`INSERT INTO owed (site, name, node, revision, action, due) VALUES ($1, $2, $3, 2, 'disable', false)`, plant, press, nodeA)
		require.EqualValues(t, 2, b.stops().Version.Revision, "owed to whichever node")
	})
	t.Run("a deployed disable stands until what was enabled after it is deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDisable)
		b.deploy("2")
		b.turn(fleet.OperationEnable)
		require.EqualValues(t, 2, b.stops().Version.Revision)
		b.deploy("3")
		require.Zero(t, b.stops())
	})
	t.Run("one that only waits for its window is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDisable)
		d := b.claim(run1, "2")
		b.exec(`UPDATE deliveries SET state = 'staged', ended_at = now() WHERE id = $1`, d.ID)
		require.Zero(t, b.stops())
	})
}
