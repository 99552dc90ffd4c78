package region

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const fleetChange = fleet.FleetName("press-v7")

// openFleetSteps are the steps at a store with a fleet change that has not run yet; it asks
// for a run.
func openFleetSteps(t *testing.T) (*store.Store, fleets.FleetTurn) {
	t.Helper()
	database := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), database, testkit.Region)
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
	write := postgres.Write{Request: postgres.Request{Project: "default", Actor: "ann"}, Key: fleet.FleetKey(fleetChange)}
	spec := fleet.FleetSpec{Change: fleet.FleetChange{Patch: &fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(patch))}}}.WithDefaults()
	_, err = store.PutFleet(t.Context(), fleets.FleetPut{Write: write, Spec: spec})
	require.NoError(t, err)
	return store, fleets.FleetTurn{Write: write}
}

// N99, X2
func TestFleetSteps(t *testing.T) {
	t.Parallel()
	t.Run("a stop that comes a second time does not undo a resume", func(t *testing.T) {
		t.Parallel()
		steps, turn := openFleetSteps(t)
		turned := func(on fleet.FleetEvent) fleet.FleetSeen {
			turn.On = on
			_, err := steps.TurnFleet(t.Context(), turn)
			require.NoError(t, err)
			seen, err := steps.SeeFleet(t.Context(), fleet.FleetVisit{Fleet: fleetChange, Run: "run", Build: "build"})
			require.NoError(t, err)
			require.Equal(t, fleet.FleetRunning, seen.State)
			return seen
		}
		seen := turned("")
		stop := fleet.FleetMove{Fleet: fleetChange, Run: seen.Run, Wave: seen.Wave, Turn: seen.Turn, On: fleet.FleetStop, Reason: "deadline"}
		require.NoError(t, steps.MoveFleet(t.Context(), stop))
		resumed := turned(fleet.FleetResume)
		require.Greater(t, resumed.Turn, seen.Turn)
		require.NoError(t, steps.MoveFleet(t.Context(), stop))
		run, err := steps.GetFleetRun(t.Context(), fleetChange, seen.Run)
		require.NoError(t, err)
		require.Equal(t, fleet.FleetRunning, run.State)
	})
}

// composerFunc is a composer that is one function.
type composerFunc func(targets []fleets.FleetTarget) []deliveries.BatchChange

func (c composerFunc) FleetChanges(_ context.Context, _ fleet.FleetSpec, targets []fleets.FleetTarget) ([]deliveries.BatchChange, error) {
	return c(targets), nil
}

var _ composer = composerFunc(nil)

// N100, X8
func TestBatchMakerWindows(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	window := func(now time.Time, from, to time.Duration, sites ...fleet.SiteName) fleet.Window {
		return fleet.Window{From: now.UTC().Add(from).Format("15:04"), To: now.UTC().Add(to).Format("15:04"), Sites: sites}
	}
	for _, c := range []struct {
		what   string
		mode   decide.SiteMode
		from   time.Duration
		sites  []fleet.SiteName
		closed bool
	}{
		{"begins no batch that delivers once the window has closed", decide.SiteDeliver, -2 * hour, nil, true},
		{"begins no batch that switches once the window has closed", decide.SiteSwitch, -2 * hour, nil, true},
		{"begins one that only fetches", decide.SiteStage, -2 * hour, nil, false},
		{"begins one in the window", decide.SiteDeliver, -hour / 2, nil, false},
		{"begins one at a site that no window names", decide.SiteDeliver, -2 * hour, []fleet.SiteName{"plant-2"}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			steps, turn := openFleetSteps(t)
			now, err := steps.Now(t.Context())
			require.NoError(t, err)
			rewindow(t, steps, turn, window(now, c.from, c.from+hour, c.sites...))
			_, err = steps.TurnFleet(t.Context(), turn)
			require.NoError(t, err)
			composed := 0
			maker := &batchMaker{steps, composerFunc(func(targets []fleets.FleetTarget) []deliveries.BatchChange {
				composed += len(targets)
				return []deliveries.BatchChange{{Instance: "press-7", Generation: 1, Refused: fleet.Errorf(fleet.Invalid, "it cannot be")}}
			})}
			made, _, err := maker.Next(t.Context(), activities.NextBatch{
				Fleet: fleetChange, FleetRun: 1, Wave: 1, Site: "plant-1", Mode: c.mode, Size: 10, Workflow: "w", Run: "r", Number: 1,
				Total: hour, TTL: hour, Tries: 1,
			}, nil)
			require.NoError(t, err)
			require.Equal(t, c.closed, made.Closed)
			seen, err := steps.SeeFleet(t.Context(), fleet.FleetVisit{Fleet: fleetChange, Run: "run", Build: "build"})
			require.NoError(t, err)
			if !c.closed {
				require.Equal(t, 1, composed)
				require.Equal(t, 1, seen.Counts.Failed)
				return
			}
			require.Zero(t, composed, "nothing is made that may not begin")
			require.Equal(t, fleet.FleetCounts{Total: 1, Waiting: 1}, seen.Counts)
			require.True(t, seen.Sites[0].Closed, "the entity sees what the batch saw")
			require.Equal(t, now.UTC().Add(c.from+24*hour).Format("15:04"), seen.Sites[0].Opens.UTC().Format("15:04"))
		})
	}
}

// rewindow declares the change with a window.
func rewindow(t *testing.T, store *store.Store, turn fleets.FleetTurn, w fleet.Window) {
	t.Helper()
	o, err := store.GetObject(t.Context(), turn.Key)
	require.NoError(t, err)
	var spec fleet.FleetSpec
	require.NoError(t, json.Unmarshal(o.Spec, &spec))
	spec.Windows = []fleet.Window{w}
	_, err = store.PutFleet(t.Context(), fleets.FleetPut{Write: turn.Write, Spec: spec})
	require.NoError(t, err)
}
