package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N99, N100
func TestFleetSpec(t *testing.T) {
	t.Parallel()
	spec := func(change func(*fleet.FleetSpec)) error {
		s := fleet.FleetSpec{Change: fleet.FleetChange{Template: "t"}}.WithDefaults()
		change(&s)
		return s.Validate()
	}
	wave := func(percent float64) error {
		return spec(func(s *fleet.FleetSpec) { s.Waves = []fleet.FleetWave{{Percent: percent}} })
	}
	window := func(w fleet.Window) error { return spec(func(s *fleet.FleetSpec) { s.Windows = []fleet.Window{w} }) }
	windows := func(n int) error {
		return spec(func(s *fleet.FleetSpec) {
			for range n {
				s.Windows = append(s.Windows, fleet.Window{From: "22:00", To: "05:30"})
			}
		})
	}
	waves := func(n int) error {
		return spec(func(s *fleet.FleetSpec) {
			for range n {
				s.Waves = append(s.Waves, fleet.FleetWave{Percent: 100})
			}
		})
	}
	sites := func(all []fleet.SiteName) error { return spec(func(s *fleet.FleetSpec) { s.Selector.Sites = all }) }
	minRun := func(n int64) error { return spec(func(s *fleet.FleetSpec) { s.MinRunSeconds = &n }) }
	longest := int64(90 * 24 * 3600)
	var refused *fleet.Error
	require.ErrorAs(t, spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds = longest + 1 }), &refused)
	require.Equal(t, "use 1 to 7776000", refused.Hint)
	edges(t, []edge{
		{"a patch alone", spec(func(s *fleet.FleetSpec) { s.Change = fleet.FleetChange{Patch: &fleet.Content{}} }), spec(func(s *fleet.FleetSpec) { s.Change = fleet.FleetChange{} })},
		{"a template alone", spec(func(*fleet.FleetSpec) {}), spec(func(s *fleet.FleetSpec) { s.Change.Template = "T" })},
		{
			"a generation", spec(func(s *fleet.FleetSpec) { s.Change.TemplateGeneration = 3 }),
			spec(func(s *fleet.FleetSpec) { s.Change = fleet.FleetChange{Patch: &fleet.Content{}, TemplateGeneration: 3} }),
		},
		{"sites", sites(named[fleet.SiteName](1000)), sites(named[fleet.SiteName](1001))},
		{"a site", sites([]fleet.SiteName{"a"}), sites([]fleet.SiteName{"A"})},
		{"labels", spec(func(s *fleet.FleetSpec) { s.Selector.Labels = map[string]string{"a": ""} }), spec(func(s *fleet.FleetSpec) { s.Selector.Labels = map[string]string{"": ""} })},
		{"waves", waves(100), waves(101)},
		{"sites of a wave", spec(func(s *fleet.FleetSpec) { s.Waves = []fleet.FleetWave{{Sites: []fleet.SiteName{"a"}, Percent: 1}} }), spec(func(s *fleet.FleetSpec) { s.Waves = []fleet.FleetWave{{Sites: []fleet.SiteName{"A"}, Percent: 1}} })},
		{"the whole of a wave", wave(100), wave(100.5)},
		{"a little of a wave", wave(0.001), wave(0)},
		{"all may fail", spec(func(s *fleet.FleetSpec) { s.ErrorThreshold = 100 }), spec(func(s *fleet.FleetSpec) { s.ErrorThreshold = 100.5 })},
		{"none may fail", spec(func(s *fleet.FleetSpec) { s.ErrorThreshold = 0 }), spec(func(s *fleet.FleetSpec) { s.ErrorThreshold = -0.5 })},
		{"all must succeed", spec(func(s *fleet.FleetSpec) { s.SuccessThreshold = 100 }), spec(func(s *fleet.FleetSpec) { s.SuccessThreshold = 100.5 })},
		{"none must succeed", spec(func(s *fleet.FleetSpec) { s.SuccessThreshold = 0 }), spec(func(s *fleet.FleetSpec) { s.SuccessThreshold = -0.5 })},
		{"a batch", spec(func(s *fleet.FleetSpec) { s.BatchSize = fleet.MaxBatchItems }), spec(func(s *fleet.FleetSpec) { s.BatchSize = fleet.MaxBatchItems + 1 })},
		{"a batch of one", spec(func(s *fleet.FleetSpec) { s.BatchSize = 1 }), spec(func(s *fleet.FleetSpec) { s.BatchSize = 0 })},
		{"sites at once", spec(func(s *fleet.FleetSpec) { s.SitesAtOnce = 64 }), spec(func(s *fleet.FleetSpec) { s.SitesAtOnce = 65 })},
		{"one site at once", spec(func(s *fleet.FleetSpec) { s.SitesAtOnce = 1 }), spec(func(s *fleet.FleetSpec) { s.SitesAtOnce = 0 })},
		{"deadline", spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds = longest }), spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds = longest + 1 })},
		{"shortest deadline", spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds, s.MinRunSeconds = 1, new(int64) }), spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds, s.MinRunSeconds = 0, new(int64) })},
		{"no run time", minRun(0), minRun(-1)},
		{"run time", minRun(3600), minRun(3601)},
		{"a run time within the deadline", spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds = 11 }), spec(func(s *fleet.FleetSpec) { s.DeadlineSeconds = 10 })},
		{"windows", windows(100), windows(101)},
		{"sites of a window", window(fleet.Window{From: "00:00", To: "23:59", Sites: []fleet.SiteName{"a"}}), window(fleet.Window{From: "00:00", To: "23:59", Sites: []fleet.SiteName{"A"}})},
		{"a day", window(fleet.Window{From: "00:00", To: "23:59", Days: []string{"sun"}}), window(fleet.Window{From: "00:00", To: "23:59", Days: []string{"Sun"}})},
		{"an hour", window(fleet.Window{From: "00:00", To: "09:00"}), window(fleet.Window{From: "00:00", To: "9:00"})},
	})
}

// N99
func TestFleetSpecDefaults(t *testing.T) {
	t.Parallel()
	all := fleet.FleetSpec{ErrorThreshold: 20, Waves: []fleet.FleetWave{{}, {Percent: 5}}}.WithDefaults()
	require.Equal(t, fleet.FleetSpec{
		ErrorThreshold: 20, SuccessThreshold: 80, Waves: []fleet.FleetWave{{Percent: 100}, {Percent: 5}},
		BatchSize: fleet.MaxBatchItems, SitesAtOnce: 4, DeadlineSeconds: 86400, MinRunSeconds: new(int64(10)),
	}, all)
	require.Equal(t, 10*time.Second, all.MinRun())
	require.Zero(t, fleet.FleetSpec{}.MinRun(), "of a run that was stored without it")
	require.Equal(t, 3*time.Second, fleet.FleetSpec{DeadlineSeconds: 7}.WithDefaults().MinRun(), "no declared deadline becomes invalid")
	require.Equal(t, 24*time.Hour, all.Deadline())
	require.Equal(t, all, all.WithDefaults())
	given := fleet.FleetSpec{ErrorThreshold: 1, SuccessThreshold: 2, BatchSize: 3, SitesAtOnce: 4, DeadlineSeconds: 5, MinRunSeconds: new(int64)}
	require.Equal(t, given, given.WithDefaults())
	require.Nil(t, given.WithDefaults().Waves)
	require.Empty(t, given.Bodies())
	given.Change.Patch = &fleet.Content{Hash: "h"}
	require.Equal(t, []fleet.Hash{"h"}, given.Bodies())
}

// N100
func TestWindowOn(t *testing.T) {
	t.Parallel()
	require.True(t, fleet.Window{}.On(time.Monday))
	weekend := fleet.Window{Days: []string{"sat", "sun"}}
	for day, on := range map[time.Weekday]bool{time.Saturday: true, time.Sunday: true, time.Monday: false, time.Friday: false} {
		require.Equal(t, on, weekend.On(day), day)
	}
	at, err := fleet.ParseClock("21:45")
	require.NoError(t, err)
	require.Equal(t, 21*time.Hour+45*time.Minute, at)
	for _, bad := range []string{"24:00", "1:00", "", "21:45:00"} {
		_, err := fleet.ParseClock(bad)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), bad)
	}
}
