package decide_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var fleetNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// aFleet is in wave 2 of 3 with ten instances, and nothing left to do there.
func aFleet(changes ...func(s *fleet.FleetSeen, r *decide.FleetRun)) (fleet.FleetSeen, decide.FleetRun) {
	s := fleet.FleetSeen{
		At: fleetNow, Run: 1, State: fleet.FleetRunning, Deadline: fleetNow.Add(time.Hour), Wave: 2, Waves: 3, Until: 3,
		SuccessThreshold: 100, SitesAtOnce: 2, BatchSize: 500, Counts: fleet.FleetCounts{Total: 10, Succeeded: 10},
	}
	var r decide.FleetRun
	for _, change := range changes {
		change(&s, &r)
	}
	return s, r
}

type fleetChange = func(s *fleet.FleetSeen, r *decide.FleetRun)

func waiting(site fleet.SiteName, n int) fleetChange {
	return func(s *fleet.FleetSeen, _ *decide.FleetRun) {
		s.Counts.Waiting += n
		s.Counts.Succeeded -= n
		s.Sites = append(s.Sites, fleet.FleetSiteSeen{Site: site, Waiting: n})
	}
}

func stagedAt(site fleet.SiteName, opens time.Time) fleetChange {
	return func(s *fleet.FleetSeen, _ *decide.FleetRun) {
		s.Counts.Staged++
		s.Counts.Succeeded--
		s.Sites = append(s.Sites, fleet.FleetSiteSeen{Site: site, Staged: 1, Closed: opens.After(fleetNow), Opens: opens})
	}
}

func closed(s *fleet.FleetSeen, _ *decide.FleetRun) {
	for i := range s.Sites {
		s.Sites[i].Closed = true
	}
}

func failedTargets(n int) fleetChange {
	return func(s *fleet.FleetSeen, _ *decide.FleetRun) {
		s.Counts.Failed, s.Counts.Succeeded = n, s.Counts.Succeeded-n
	}
}

func proving(n int) fleetChange {
	return func(s *fleet.FleetSeen, _ *decide.FleetRun) { s.Proving, s.ProvenAt = n, fleetNow.Add(3*time.Second) }
}

func busy(sites ...fleet.SiteName) fleetChange {
	return func(_ *fleet.FleetSeen, r *decide.FleetRun) { r.InFlight = sites }
}

func seenAs(f func(s *fleet.FleetSeen)) fleetChange {
	return func(s *fleet.FleetSeen, _ *decide.FleetRun) { f(s) }
}

// N99, N100, X6, X7, X8
func TestFleet(t *testing.T) {
	t.Parallel()
	paused := seenAs(func(s *fleet.FleetSeen) { s.State = fleet.FleetPaused })
	cancel := seenAs(func(s *fleet.FleetSeen) { s.Cancel = true })
	late := seenAs(func(s *fleet.FleetSeen) { s.At = s.Deadline })
	last := seenAs(func(s *fleet.FleetSeen) { s.Wave = 3 })
	tolerant := seenAs(func(s *fleet.FleetSeen) { s.ErrorThreshold, s.SuccessThreshold = 20, 80 })
	for _, c := range []struct {
		name    string
		changes []fleetChange
		rule    string
		do      decide.FleetDo
	}{
		{"a change that was never run", []fleetChange{seenAs(func(s *fleet.FleetSeen) { *s = fleet.FleetSeen{} })}, "ended", decide.FleetNothing},
		{"one that has ended", []fleetChange{seenAs(func(s *fleet.FleetSeen) { s.State = fleet.FleetStopped })}, "ended", decide.FleetNothing},
		{"a wave that is over", nil, "next_wave", decide.FleetAdvance},
		{"the last one", []fleetChange{last}, "last_wave", decide.FleetFinish},
		{"sites with work", []fleetChange{waiting("a", 3)}, "deliver", decide.FleetDeliver},
		{"sites that work", []fleetChange{waiting("a", 3), busy("a")}, "under_way", decide.FleetWait},
		{"a site that ends its last batch", []fleetChange{busy("a")}, "under_way", decide.FleetWait},
		{"batches of a run before", []fleetChange{seenAs(func(s *fleet.FleetSeen) { s.Counts.Delivering = 1 })}, "other_batches", decide.FleetWait},
		{"commands that have not run for long enough", []fleetChange{proving(3)}, "proving", decide.FleetWait},
		{"such commands of the last wave", []fleetChange{proving(3), last}, "proving", decide.FleetWait},
		{"such commands of a retry", []fleetChange{proving(3), seenAs(func(s *fleet.FleetSeen) { s.Until = 2 })}, "proving", decide.FleetWait},
		{"such commands, and one that exited", []fleetChange{proving(3), failedTargets(1)}, "error_threshold", decide.FleetStop},
		{"such commands, and sites with work", []fleetChange{proving(3), waiting("a", 3)}, "deliver", decide.FleetDeliver},
		{"one failed", []fleetChange{failedTargets(1)}, "error_threshold", decide.FleetStop},
		{"one failed in the last wave", []fleetChange{failedTargets(1), last}, "error_threshold", decide.FleetStop},
		{"one failed while others are delivered", []fleetChange{failedTargets(1), waiting("b", 2), busy("a")}, "error_threshold", decide.FleetWait},
		{"as many as are allowed failed", []fleetChange{failedTargets(2), tolerant}, "next_wave", decide.FleetAdvance},
		{"one more", []fleetChange{failedTargets(3), tolerant}, "error_threshold", decide.FleetStop},
		{"too few succeeded", []fleetChange{failedTargets(2), tolerant, seenAs(func(s *fleet.FleetSeen) { s.SuccessThreshold = 90 })}, "success_threshold", decide.FleetStop},
		{"a pause", []fleetChange{waiting("a", 3), paused}, "paused", decide.FleetWait},
		{"a pause past the deadline", []fleetChange{waiting("a", 3), paused, late}, "deadline", decide.FleetStop},
		{"a cancel", []fleetChange{waiting("a", 3), cancel}, "cancelled", decide.FleetCancel},
		{"a cancel of a pause", []fleetChange{waiting("a", 3), paused, cancel}, "cancelled", decide.FleetCancel},
		{"a cancel while a batch is on its way", []fleetChange{waiting("a", 3), cancel, busy("a")}, "cancelled", decide.FleetWait},
		{"a deadline", []fleetChange{waiting("a", 3), late}, "deadline", decide.FleetStop},
		{"a site outside of its window", []fleetChange{waiting("a", 3), closed}, "deliver", decide.FleetDeliver},
		{"all is fetched", []fleetChange{stagedAt("a", fleetNow.Add(time.Minute))}, "window", decide.FleetWait},
		{"the window has opened", []fleetChange{stagedAt("a", fleetNow)}, "deliver", decide.FleetDeliver},
		{"a site that is broken", []fleetChange{waiting("a", 3), func(_ *fleet.FleetSeen, r *decide.FleetRun) { r.Broken = "it is" }}, "site_failed", decide.FleetStop},
		{"a retry that left others of its wave alone", []fleetChange{last, seenAs(func(s *fleet.FleetSeen) { s.Counts.Succeeded = 2 })}, "retried", decide.FleetStop},
		{"a retry that failed again", []fleetChange{last, seenAs(func(s *fleet.FleetSeen) { s.Counts.Succeeded, s.Counts.Failed = 1, 1 })}, "error_threshold", decide.FleetStop},
		{"a retry that went no further", []fleetChange{seenAs(func(s *fleet.FleetSeen) { s.Until = 2 })}, "retried", decide.FleetStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Fleet(aFleet(c.changes...))
			require.Equal(t, c.rule, a.Rule)
			require.Equal(t, c.do, a.Do)
		})
	}
	t.Run("begins at as many sites as may be under way", func(t *testing.T) {
		t.Parallel()
		a := decide.Fleet(aFleet(waiting("a", 1), waiting("b", 1), waiting("c", 1), busy("a")))
		require.Equal(t, []decide.SiteBegin{{Site: "b", Mode: decide.SiteDeliver}}, a.Sites)
	})
	t.Run("only fetches outside of a window, and switches in it", func(t *testing.T) {
		t.Parallel()
		a := decide.Fleet(aFleet(waiting("a", 1), closed, stagedAt("b", fleetNow), stagedAt("c", fleetNow.Add(time.Hour))))
		require.Equal(t, []decide.SiteBegin{{Site: "a", Mode: decide.SiteStage}, {Site: "b", Mode: decide.SiteSwitch}}, a.Sites)
	})
	t.Run("fetches the rest of a site whose window closed in the middle, and then waits", func(t *testing.T) {
		t.Parallel()
		opens := fleetNow.Add(time.Hour)
		shut := seenAs(func(s *fleet.FleetSeen) { s.Sites[0].Closed, s.Sites[0].Opens, s.Sites[0].Staged = true, opens, 2 })
		a := decide.Fleet(aFleet(waiting("a", 3), shut))
		require.Equal(t, []decide.SiteBegin{{Site: "a", Mode: decide.SiteStage}}, a.Sites)
		a = decide.Fleet(aFleet(stagedAt("a", opens), seenAs(func(s *fleet.FleetSeen) { s.Deadline = opens.Add(time.Hour) })))
		require.Equal(t, "window", a.Rule)
		require.Equal(t, opens, a.Until)
	})
	t.Run("looks again soon when the batches of a run before are under way", func(t *testing.T) {
		t.Parallel()
		a := decide.Fleet(aFleet(seenAs(func(s *fleet.FleetSeen) { s.Counts.Delivering = 1 })))
		require.Equal(t, fleetNow.Add(5*time.Second), a.Until)
	})
	t.Run("looks again when commands may have run for long enough, and often meanwhile", func(t *testing.T) {
		t.Parallel()
		for at, until := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Minute: 5 * time.Second, -time.Second: 5 * time.Second} {
			a := decide.Fleet(aFleet(proving(1), seenAs(func(s *fleet.FleetSeen) { s.ProvenAt = fleetNow.Add(at) })))
			require.Equal(t, fleetNow.Add(until), a.Until)
		}
	})
	t.Run("begins nowhere without work", func(t *testing.T) {
		t.Parallel()
		idle := seenAs(func(s *fleet.FleetSeen) { s.Sites = append(s.Sites, fleet.FleetSiteSeen{Site: "idle"}) })
		a := decide.Fleet(aFleet(idle, waiting("a", 1)))
		require.Equal(t, []decide.SiteBegin{{Site: "a", Mode: decide.SiteDeliver}}, a.Sites)
	})
	t.Run("waits for no window of a site that has fetched nothing", func(t *testing.T) {
		t.Parallel()
		opens := seenAs(func(s *fleet.FleetSeen) { s.Sites[0].Closed, s.Sites[0].Opens = true, fleetNow.Add(time.Minute) })
		require.Equal(t, fleetNow.Add(time.Hour), decide.Fleet(aFleet(waiting("a", 1), opens, busy("a"))).Until)
	})
	t.Run("says what a retry left", func(t *testing.T) {
		t.Parallel()
		a := decide.Fleet(aFleet(last, seenAs(func(s *fleet.FleetSeen) { s.Counts.Succeeded = 2 })))
		require.Equal(t, "the failed instances were retried; 8 instances wait for a resume", a.Message)
		a = decide.Fleet(aFleet(seenAs(func(s *fleet.FleetSeen) { s.Until = 2 })))
		require.Equal(t, "the failed instances were retried; resume continues with wave 3 of 3", a.Message)
	})
	t.Run("goes on in the middle of a site only while it runs", func(t *testing.T) {
		t.Parallel()
		good, bad := fleet.FleetCounts{Total: 10, Failed: 2}, fleet.FleetCounts{Total: 10, Failed: 3}
		require.True(t, decide.FleetGoesOn(fleet.FleetRunning, false, good, 20))
		require.False(t, decide.FleetGoesOn(fleet.FleetRunning, false, bad, 20))
		require.False(t, decide.FleetGoesOn(fleet.FleetRunning, true, good, 20))
		require.False(t, decide.FleetGoesOn(fleet.FleetPaused, false, good, 20))
	})
	t.Run("waits for the window that opens first", func(t *testing.T) {
		t.Parallel()
		a := decide.Fleet(aFleet(stagedAt("a", fleetNow.Add(time.Minute)), stagedAt("b", fleetNow.Add(30*time.Second))))
		require.Equal(t, fleetNow.Add(30*time.Second), a.Until)
	})
	t.Run("does not miss a window that opens while other sites are under way", func(t *testing.T) {
		t.Parallel()
		opens := fleetNow.Add(time.Minute)
		for _, more := range []fleetChange{busy("b"), waiting("b", 1)} {
			require.Equal(t, opens, decide.Fleet(aFleet(stagedAt("a", opens), more)).Until)
		}
	})
}

// N99: whatever happened, a change that may not go on begins nowhere, no wave begins before the
// one ahead of it is good, and every look leads to an end, a step, or a wait that somebody ends.
func TestFleetIsSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := aFleet(func(s *fleet.FleetSeen, r *decide.FleetRun) {
			some := rapid.IntRange(0, 3)
			s.State = rapid.SampledFrom(fleet.FleetStates()).Draw(t, "state")
			s.Cancel = rapid.Bool().Draw(t, "cancel")
			s.Wave = rapid.IntRange(1, 3).Draw(t, "wave")
			s.Until = rapid.IntRange(s.Wave, 3).Draw(t, "until")
			s.ErrorThreshold = float64(rapid.IntRange(0, 100).Draw(t, "errors"))
			s.SuccessThreshold = float64(rapid.IntRange(0, 100).Draw(t, "success"))
			c := fleet.FleetCounts{Succeeded: some.Draw(t, "ok"), Failed: some.Draw(t, "bad"), Delivering: some.Draw(t, "delivering")}
			for i := range rapid.IntRange(0, 4).Draw(t, "sites") {
				site := fleet.FleetSiteSeen{Site: fleet.SiteName(fmt.Sprintf("s-%d", i)), Waiting: some.Draw(t, "w"), Staged: some.Draw(t, "s"), Closed: rapid.Bool().Draw(t, "closed")}
				c.Waiting, c.Staged = c.Waiting+site.Waiting, c.Staged+site.Staged
				if site.Waiting+site.Staged > 0 {
					s.Sites = append(s.Sites, site)
				}
				if rapid.Bool().Draw(t, "busy") {
					r.InFlight = append(r.InFlight, site.Site)
				}
			}
			c.Total = c.Succeeded + c.Failed + c.Delivering + c.Waiting + c.Staged
			s.Counts, s.Proving = c, rapid.IntRange(0, c.Succeeded).Draw(t, "proving")
		})
		a := decide.Fleet(s, r)
		failed := float64(s.Counts.Failed)*100 > s.ErrorThreshold*float64(s.Counts.Total)
		if failed || s.Cancel || s.State != fleet.FleetRunning {
			require.NotContains(t, []decide.FleetDo{decide.FleetDeliver, decide.FleetAdvance, decide.FleetFinish}, a.Do)
		}
		switch a.Do {
		case decide.FleetAdvance, decide.FleetFinish:
			require.True(t, s.Counts.Over() && len(r.InFlight) == 0)
			require.Zero(t, s.Proving, "commands have not run for long enough")
			require.GreaterOrEqual(t, float64(s.Counts.Good())*100, s.SuccessThreshold*float64(s.Counts.Total))
		case decide.FleetDeliver:
			require.NotEmpty(t, a.Sites)
			require.LessOrEqual(t, len(r.InFlight)+len(a.Sites), s.SitesAtOnce)
			for _, b := range a.Sites {
				require.False(t, slices.Contains(r.InFlight, b.Site), "a site is begun at once")
			}
		case decide.FleetWait:
			require.True(t, len(r.InFlight) > 0 || !a.Until.IsZero(), "somebody or something ends each wait")
		case decide.FleetStop, decide.FleetCancel, decide.FleetNothing:
			require.Empty(t, r.InFlight)
		}
	})
}
