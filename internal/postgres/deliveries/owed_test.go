package deliveries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// stops gives the revision of press that a new active is not to start, and what is to be done.
func (b *bench) stops() fleet.Revision {
	b.T.Helper()
	seen, err := b.SeeStops(b.Ctx(), plant, []fleet.InstanceName{"other", press})
	require.NoError(b.T, err)
	got := decide.OwedStops(seen, nil)
	if len(got) == 0 {
		return fleet.Revision{}
	}
	require.Len(b.T, got, 1)
	require.Equal(b.T, press, got[0].Instance)
	return got[0].Revision
}

// X4, X21
func TestSeeStops(t *testing.T) {
	t.Parallel()
	t.Run("what is deployed and enabled is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Zero(t, b.stops())
		b.Put(`{"a":1}`)
		require.Zero(t, b.stops(), "nor what is asked for")
		b.Deploy("1")
		require.Zero(t, b.stops())
	})
	for action, how := range map[fleet.Action]fleet.OperationKind{
		fleet.ActionDelete: fleet.OperationDelete, fleet.ActionDisable: fleet.OperationDisable,
	} {
		t.Run(string(action)+" from when it is asked for, and for ever where it is deployed", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Put(`{"a":1}`)
			b.Deploy("1")
			b.Turn(how)
			require.EqualValues(t, 2, b.stops().Version.Revision)
			d := b.MustClaim(run1, "2")
			require.EqualValues(t, 2, b.stops().Version.Revision, "its delivery is open")
			b.MustRecord(d, nodeA)
			b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
			got := b.stops()
			require.EqualValues(t, 2, got.Version.Revision)
			require.Equal(t, action, got.Action)
		})
	}
	t.Run("one whose delivery goes on stands, also when its operation has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDisable)
		d := b.MustClaim(run1, "2")
		b.Exec(`UPDATE operations SET state = 'failed', reason = 'deadline', ended_at = now() WHERE state = 'running'`)
		require.EqualValues(t, 2, b.stops().Version.Revision)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("cancelled"))
		b.Exec(`DELETE FROM owed`)
		require.Zero(t, b.stops())
	})
	t.Run("what nobody waits for and nobody is owed is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDisable)
		d := b.MustClaim(run1, "2")
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("cancelled"))
		b.Exec(`DELETE FROM owed`)
		require.Zero(t, b.stops())
		b.Exec(`INSERT INTO owed (site, name, node, revision, action, due) VALUES ($1, $2, $3, 2, 'disable', false)`, plant, press, nodeA)
		require.EqualValues(t, 2, b.stops().Version.Revision, "owed to whichever node")
	})
	t.Run("a deployed disable stands until what was enabled after it is deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDisable)
		b.Deploy("2")
		b.Turn(fleet.OperationEnable)
		require.EqualValues(t, 2, b.stops().Version.Revision)
		b.Deploy("3")
		require.Zero(t, b.stops())
	})
	t.Run("one that only waits for its window is none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDisable)
		d := b.MustClaim(run1, "2")
		b.Exec(`UPDATE deliveries SET state = 'staged', ended_at = now() WHERE id = $1`, d.ID)
		require.Zero(t, b.stops())
	})
}
