package region

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const fleetChange = fleet.FleetName("press-v7")

// openFleetSteps are the steps at a store with a fleet change that has not run yet; it asks
// for a run.
func openFleetSteps(t *testing.T) (*fleetSteps, postgres.FleetTurn) {
	t.Helper()
	database := testkit.DatabaseURL(t)
	store, err := postgres.Open(t.Context(), database, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO objects (kind, scope, name, project, generation, resource_version, spec, syncing, created_by)
		VALUES ('instance', 'plant-1', 'press-7', 'default', 1, 0, '{"enabled":true,"durability":"sync"}', '{}', 'ann')`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	patch := []byte(`{"version":7}`)
	hash, err := store.PutBody(t.Context(), "default", patch)
	require.NoError(t, err)
	write := postgres.Write{Key: fleet.FleetKey(fleetChange), Project: "default", Actor: "ann"}
	spec := fleet.FleetSpec{Change: fleet.FleetChange{Patch: &fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(patch))}}}.WithDefaults()
	_, err = store.PutFleet(t.Context(), postgres.FleetPut{Write: write, Spec: spec, Assign: decide.Waves})
	require.NoError(t, err)
	return &fleetSteps{store}, postgres.FleetTurn{Write: write, Assign: decide.Waves}
}

// N99, X2
func TestFleetSteps(t *testing.T) {
	t.Parallel()
	t.Run("a stop that comes a second time does not undo a resume", func(t *testing.T) {
		t.Parallel()
		steps, turn := openFleetSteps(t)
		turned := func(on fleet.FleetEvent) fleet.FleetSeen {
			turn.On = on
			_, err := steps.store.TurnFleet(t.Context(), turn)
			require.NoError(t, err)
			seen, err := steps.See(t.Context(), activities.SeeFleet{Fleet: fleetChange, Run: "run", Build: "build"})
			require.NoError(t, err)
			require.Equal(t, fleet.FleetRunning, seen.State)
			return seen
		}
		seen := turned("")
		stop := activities.MoveFleet{Fleet: fleetChange, Run: seen.Run, Wave: seen.Wave, Turn: seen.Turn, On: fleet.FleetStop, Reason: "deadline"}
		require.NoError(t, steps.Move(t.Context(), stop))
		resumed := turned(fleet.FleetResume)
		require.Greater(t, resumed.Turn, seen.Turn)
		require.NoError(t, steps.Move(t.Context(), stop))
		run, err := steps.store.GetFleetRun(t.Context(), fleetChange, seen.Run)
		require.NoError(t, err)
		require.Equal(t, fleet.FleetRunning, run.State)
	})
}
