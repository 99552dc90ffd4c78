package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// aStart is of a command that was started ten seconds ago and runs, as its node has just reported.
func aStart(edits ...func(s *fleet.FleetStartSeen)) fleet.FleetStartSeen {
	s := fleet.FleetStartSeen{
		Site: "plant-1", Instance: "press", Node: "plant-1-a", Since: fleetNow.Add(-10 * time.Second),
		Runs: true, Current: true, Running: true, Looked: fleetNow,
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// N99, X6: of each command it is decided whether it runs, also where its node never reports back (hawkbit 693).
func TestJudgeFleetStart(t *testing.T) {
	t.Parallel()
	since := func(ago time.Duration) func(s *fleet.FleetStartSeen) {
		return func(s *fleet.FleetStartSeen) { s.Since = fleetNow.Add(-ago) }
	}
	exits := func(n, before int) func(s *fleet.FleetStartSeen) {
		return func(s *fleet.FleetStartSeen) { s.Exits, s.ExitsBefore, s.LastExit = n, before, "exit code 3" }
	}
	down := func(s *fleet.FleetStartSeen) { s.Running = false }
	unseen := func(s *fleet.FleetStartSeen) { s.Looked = time.Time{} }
	type edit = func(s *fleet.FleetStartSeen)
	for _, c := range []struct {
		name  string
		edits []edit
		rule  string
		do    decide.FleetStartDo
	}{
		{"it ran for long enough", nil, "proven", decide.FleetStartProven},
		{"it runs nothing", []edit{func(s *fleet.FleetStartSeen) { s.Runs = false }, down, unseen}, "runs_nothing", decide.FleetStartProven},
		{"another revision replaced it", []edit{func(s *fleet.FleetStartSeen) { s.Replaced, s.Current = true, false }, exits(4, 0)}, "replaced", decide.FleetStartProven},
		{"it exited, and waits", []edit{since(time.Second), down, exits(1, 0)}, "exited", decide.FleetStartFailed},
		{"it exited, and runs again", []edit{exits(1, 0)}, "exited", decide.FleetStartFailed},
		{"it had exited before the wave", []edit{exits(4, 4)}, "proven", decide.FleetStartProven},
		{"it exited again", []edit{exits(5, 4)}, "exited", decide.FleetStartFailed},
		{"an earlier revision exited", []edit{exits(1, 0), func(s *fleet.FleetStartSeen) { s.Current = false }, since(0)}, "too_early", decide.FleetStartWait},
		{"too early", []edit{since(9 * time.Second)}, "too_early", decide.FleetStartWait},
		{"its node has not looked since", []edit{since(11 * time.Second), func(s *fleet.FleetStartSeen) { s.Looked = fleetNow.Add(-2 * time.Second) }}, "not_seen_yet", decide.FleetStartWait},
		{"its node never looked", []edit{unseen}, "not_seen_yet", decide.FleetStartWait},
		{"it does not run", []edit{down}, "not_seen_yet", decide.FleetStartWait},
		{"it did not run for too long", []edit{down, since(130 * time.Second)}, "not_seen", decide.FleetStartFailed},
		{"its node is gone for too long", []edit{unseen, since(130 * time.Second)}, "not_seen", decide.FleetStartFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := decide.JudgeFleetStart(aStart(c.edits...), 10*time.Second, fleetNow)
			require.Equal(t, c.rule, v.Rule)
			require.Equal(t, c.do, v.Do)
			require.Equal(t, c.do == decide.FleetStartFailed, v.Reason != "" && v.Message != "")
		})
	}
	t.Run("says how it ended, and where nothing ran", func(t *testing.T) {
		t.Parallel()
		v := decide.JudgeFleetStart(aStart(exits(1, 0)), 10*time.Second, fleetNow)
		require.Equal(t, []string{"exited", "its command ended before it had run for 10s: exit code 3"}, []string{v.Reason, v.Message})
		v = decide.JudgeFleetStart(aStart(down, since(time.Hour)), 10*time.Second, fleetNow)
		require.Equal(t, []string{"not_running", "node plant-1-a did not report that its command ran for 10s"}, []string{v.Reason, v.Message})
		v = decide.JudgeFleetStart(aStart(down, since(time.Hour), func(s *fleet.FleetStartSeen) { s.Node = "" }), 10*time.Second, fleetNow)
		require.Equal(t, "its site has no active node", v.Message)
	})
	t.Run("a declared 0 waits for nothing", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, decide.FleetStartProven, decide.JudgeFleetStart(aStart(down, exits(1, 0)), 0, fleetNow).Do)
	})
}

// N99: no command of the run's own revision is proven that exited, that does not run, or that has not run for long
// enough; and every wait ends by itself.
func TestJudgeFleetStartIsSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minRun := time.Duration(rapid.IntRange(1, 60).Draw(t, "min")) * time.Second
		before := rapid.IntRange(0, 2).Draw(t, "before")
		s := fleet.FleetStartSeen{
			Since: fleetNow.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "since")) * time.Second),
			Runs:  true, Current: rapid.Bool().Draw(t, "current"), Running: rapid.Bool().Draw(t, "running"),
			ExitsBefore: before, Exits: before + rapid.IntRange(0, 1).Draw(t, "exits"),
			Looked: fleetNow.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "looked")) * time.Second),
		}
		v := decide.JudgeFleetStart(s, minRun, fleetNow)
		if v.Do == decide.FleetStartProven {
			require.True(t, s.Current && s.Running && s.Exits == s.ExitsBefore)
			require.GreaterOrEqual(t, s.Looked.Sub(s.Since), minRun)
			require.GreaterOrEqual(t, fleetNow.Sub(s.Since), minRun)
		}
		require.NotEqual(t, decide.FleetStartWait, decide.JudgeFleetStart(s, minRun, fleetNow.Add(time.Hour)).Do)
	})
}
