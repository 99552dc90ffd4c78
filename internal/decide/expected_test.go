package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func setOf(version fleet.SetVersion, names ...fleet.InstanceName) fleet.ExpectedSet {
	set := fleet.ExpectedSet{Version: version, Count: len(names)}
	for _, n := range names {
		set.Instances = append(set.Instances, fleet.ExpectedInstance{Instance: n, Era: 1, Revision: 1, RevisionHash: "h"})
	}
	return set
}

// N86, X3: what comes cut, older or empty is not acted upon, and the reason says so.
func TestRefuseSet(t *testing.T) {
	t.Parallel()
	at := func(era, n int64) fleet.SetVersion { return fleet.SetVersion{Era: era, Number: n} }
	for _, c := range []struct {
		name   string
		set    fleet.ExpectedSet
		seen   fleet.SetVersion
		holds  int
		refuse string
	}{
		{"whole and newer", setOf(at(1, 5), "a", "b"), at(1, 4), 2, ""},
		{"the same version again", setOf(at(1, 5), "a"), at(1, 5), 2, ""},
		{"of a newer era, with a lower number", setOf(at(2, 1), "a"), at(1, 9), 2, ""},
		{"older", setOf(at(1, 3), "a"), at(1, 4), 2, decide.SetOlder},
		{"of an older era", setOf(at(1, 9), "a"), at(2, 1), 2, decide.SetOlder},
		{"empty while something is held", setOf(at(1, 5)), at(1, 4), 1, decide.SetEmpty},
		{"empty, and nothing is held", setOf(at(1, 5)), at(1, 4), 0, ""},
		{"one line short", func() fleet.ExpectedSet { s := setOf(at(1, 5), "a", "b"); s.Count = 3; return s }(), at(1, 4), 2, decide.SetTruncated},
		{"one line too many", func() fleet.ExpectedSet { s := setOf(at(1, 5), "a", "b"); s.Count = 1; return s }(), at(1, 4), 2, decide.SetTruncated},
		{"one name twice", setOf(at(1, 5), "a", "a"), at(1, 4), 2, decide.SetTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.refuse, decide.RefuseSet(c.set, c.seen, c.holds))
		})
	}
}

// N55, N56, N85, N93, X28: what a node holds counts, not what was delivered to it once: one that went back to the revision before fetches the
// newer one again (hawkbit 446).
func TestCompareSet(t *testing.T) {
	t.Parallel()
	at := func(n int64, hash fleet.Hash) fleet.Revision {
		return fleet.Revision{Version: fleet.Version{Era: 1, Revision: n}, Content: fleet.Content{Hash: hash}, Enabled: true}
	}
	holds := func(n int64, hash fleet.Hash, high int64) fleet.Held {
		return fleet.Held{Known: true, Revision: at(n, hash), HighWater: fleet.Version{Era: 1, Revision: high}}
	}
	five := fleet.ExpectedInstance{Instance: "press", Era: 1, Revision: 5, RevisionHash: "h", Enabled: true}
	flying := five
	flying.InFlight = true
	tombstone := holds(6, "", 6)
	tombstone.Action = fleet.ActionDelete
	for _, c := range []struct {
		name     string
		expected fleet.ExpectedInstance
		held     fleet.Held
		gap      decide.SetGap
	}{
		{"equal", five, holds(5, "h", 5), decide.SetEqual},
		{"equal, and something newer failed", five, holds(5, "h", 6), decide.SetEqual},
		{"equal, and something is on its way", flying, holds(5, "h", 5), decide.SetEqual},
		{"missing", five, fleet.Held{}, decide.SetFetch},
		{"accepted and never applied", five, fleet.Held{Known: true, HighWater: fleet.Version{Era: 1, Revision: 5}}, decide.SetFetch},
		{"stale", five, holds(4, "g", 4), decide.SetFetch},
		{"the same content under a lower number", five, holds(4, "h", 4), decide.SetFetch},
		{"it went back to what it had before", five, holds(4, "g", 5), decide.SetFetch},
		{"stale while something is on its way", flying, holds(4, "g", 4), decide.SetLeave},
		{"missing while something is on its way", flying, fleet.Held{}, decide.SetLeave},
		{"ahead", five, holds(6, "i", 6), decide.SetAhead},
		{"stale, and it refuses the number", five, holds(4, "g", 6), decide.SetAhead},
		{"another content of the number", five, holds(5, "x", 5), decide.SetAhead},
		{"deleted with a higher number", five, tombstone, decide.SetAhead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.gap, decide.CompareSet(c.expected, c.held))
		})
	}
}

// N57, N86, X3, X28
func TestAbsent(t *testing.T) {
	t.Parallel()
	gone := fleet.Revision{Version: fleet.Version{Era: 1, Revision: 5}, Action: fleet.ActionDelete}
	live := fleet.Revision{Version: fleet.Version{Era: 1, Revision: 5}, Action: fleet.ActionDeploy}
	held := fleet.Version{Era: 1, Revision: 4}
	for _, c := range []struct {
		seen fleet.AbsenceSeen
		full bool
		do   fleet.AbsenceDo
		why  string
	}{
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held}, false, fleet.AbsenceDrop, "tombstone"},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held}, true, fleet.AbsenceWait, fleet.OrphanOverCap},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held, Listed: true}, false, fleet.AbsenceWait, fleet.OrphanOverCap},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held, Approved: true, Listed: true}, true, fleet.AbsenceDrop, "approved"},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held, UnderWay: true}, false, fleet.AbsenceKeep, "under_way"},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: held, Owed: true}, false, fleet.AbsenceKeep, "owed"},
		{fleet.AbsenceSeen{Known: true, Deployed: gone, Held: fleet.Version{Era: 1, Revision: 7}}, false, fleet.AbsenceKeep, "ahead"},
		{fleet.AbsenceSeen{Known: true, Deployed: live, Held: held}, false, fleet.AbsenceKeep, "expected"},
		{fleet.AbsenceSeen{Known: true, Deployed: live, Held: held, Approved: true}, false, fleet.AbsenceKeep, "expected"},
		{fleet.AbsenceSeen{Known: true, Held: held}, false, fleet.AbsenceKeep, "not_recorded"},
		{fleet.AbsenceSeen{Held: held}, false, fleet.AbsenceWait, fleet.OrphanNeverKnown},
		{fleet.AbsenceSeen{Held: held, Listed: true, Approved: true}, true, fleet.AbsenceDrop, "approved"},
	} {
		t.Run(fmt.Sprintf("%s %t", c.why, c.full), func(t *testing.T) {
			t.Parallel()
			do, why := decide.Absent(c.seen, !c.full)
			require.Equal(t, c.do, do)
			require.Equal(t, c.why, why)
		})
	}
}

// X3, X28: whatever is seen, nothing is dropped that the region expects, has under way, owes,
// never recorded, or that the node holds in a higher number than the tombstone; and without an
// operator nothing that the region never knew, and nothing over the cap.
func TestAbsentDropsOnlyTombstones(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := func(name string) fleet.Version {
			return fleet.Version{Era: rapid.Int64Range(0, 2).Draw(t, name+" era"), Revision: rapid.Int64Range(0, 3).Draw(t, name)}
		}
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		seen := fleet.AbsenceSeen{
			Known: flag("known"), UnderWay: flag("under way"), Owed: flag("owed"), Approved: flag("approved"), Listed: flag("listed"),
			Held: version("held"),
		}
		if seen.Known {
			seen.Deployed = fleet.Revision{
				Version: version("deployed"), Action: rapid.SampledFrom([]fleet.Action{fleet.ActionDeploy, fleet.ActionDelete}).Draw(t, "action"),
			}
		}
		room := flag("room")
		if do, _ := decide.Absent(seen, room); do != fleet.AbsenceDrop {
			return
		}
		require.False(t, seen.UnderWay || seen.Owed)
		if seen.Known {
			require.Equal(t, fleet.ActionDelete, seen.Deployed.Action)
			require.True(t, seen.Deployed.Version.Newer(seen.Held))
			require.True(t, seen.Approved || room && !seen.Listed)
			return
		}
		require.True(t, seen.Approved)
	})
}

// N49, N50, X1: a comparison never asks for what the node would have to refuse.
func TestCompareSetNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := func(name string) fleet.Version {
			return fleet.Version{Era: rapid.Int64Range(1, 2).Draw(t, name+" era"), Revision: rapid.Int64Range(1, 3).Draw(t, name)}
		}
		hash := func(name string) fleet.Hash { return rapid.SampledFrom([]fleet.Hash{"g", "h"}).Draw(t, name) }
		e := fleet.ExpectedInstance{RevisionHash: hash("expected hash"), InFlight: rapid.Bool().Draw(t, "in flight")}
		v := version("expected")
		e.Era, e.Revision = v.Era, v.Revision
		held := fleet.Held{Known: rapid.Bool().Draw(t, "known")}
		if held.Known {
			held.Version, held.Content.Hash, held.HighWater = version("held"), hash("held hash"), version("high")
			if held.Version.Newer(held.HighWater) {
				held.HighWater = held.Version
			}
		}
		if decide.CompareSet(e, held) != decide.SetFetch {
			return
		}
		require.False(t, e.InFlight)
		require.True(t, v.Newer(held.Version))
		require.False(t, held.HighWater.Newer(v))
	})
}

func TestDropCap(t *testing.T) {
	t.Parallel()
	require.Equal(t, 10, decide.DropCap(0))
	require.Equal(t, 10, decide.DropCap(200))
	require.Equal(t, 500, decide.DropCap(10_000))
}

func TestReconcileOutcome(t *testing.T) {
	t.Parallel()
	state, reason, message := decide.ReconcileOutcome(decide.ReconcilePass{
		Report: fleet.ReconcileReport{Expected: 9, Equal: 5, Fetched: 1, Dropped: 1, Waiting: 2, Ahead: 1}, Woken: 3,
	})
	require.Equal(t, fleet.OperationSucceeded, state)
	require.Equal(t, "orphans_wait", reason)
	require.Equal(t, "9 expected, 5 equal, 1 fetched, 1 dropped, 1 ahead of the region, 2 wait for an operator, 3 handed to their own delivery", message)
	state, reason, _ = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Failed: 1}})
	require.Equal(t, fleet.OperationFailed, state)
	require.Equal(t, "not_all_fetched", reason)
	state, reason, _ = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Refused: decide.SetOlder}})
	require.Equal(t, fleet.OperationFailed, state)
	require.Equal(t, decide.SetOlder, reason)
	_, reason, _ = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Unchanged: true}})
	require.Equal(t, "unchanged", reason)
	state, reason, message = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Unchanged: true, Restored: 2}})
	require.Equal(t, []any{fleet.OperationSucceeded, "files_restored", "the set is unchanged, 2 files restored"}, []any{state, reason, message})
	_, reason, _ = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Restored: 2, Waiting: 1}})
	require.Equal(t, "orphans_wait", reason)
	state, reason, message = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Unchanged: true, Failed: 1}})
	require.Equal(t, []any{fleet.OperationFailed, "not_all_fetched", "the set is unchanged, 1 failed"}, []any{state, reason, message})
	_, reason, _ = decide.ReconcileOutcome(decide.ReconcilePass{Report: fleet.ReconcileReport{Equal: 1}})
	require.Equal(t, "reconciled", reason)
	state, reason, message = decide.ReconcileOutcome(decide.ReconcilePass{Failure: "unavailable", Message: "nobody there"})
	require.Equal(t, fleet.OperationFailed, state)
	require.Equal(t, "unavailable", reason)
	require.Equal(t, "nobody there; it is compared again when it starts, and by the schedule", message)
}

// X7, X14: only what passes by itself is tried again, and not for ever.
func TestCompareAgain(t *testing.T) {
	t.Parallel()
	again := func(failure string, tries int) bool {
		_, again := decide.CompareAgain(decide.ReconcilePass{Failure: failure, Tries: tries})
		return again
	}
	require.False(t, again("", 1))
	require.True(t, again("communication", 1))
	require.True(t, again("communication", 2))
	require.False(t, again("communication", 3))
	require.True(t, again("stale", 1), "its lease is on its way")
	require.False(t, again("stale", 3))
	require.False(t, again("unavailable", 1), "it is compared when it starts")
	require.False(t, again("unauthenticated", 1))
	wait, _ := decide.CompareAgain(decide.ReconcilePass{Failure: "communication", Tries: 2})
	require.Equal(t, 8*time.Second, wait)
}

// X12: what the node found clean is looked at again only when the region's records drifted.
func TestRegionMends(t *testing.T) {
	t.Parallel()
	require.False(t, decide.RegionMends(decide.ReconcilePass{}, false))
	require.True(t, decide.RegionMends(decide.ReconcilePass{}, true))
	require.True(t, decide.RegionMends(decide.ReconcilePass{Failure: "unavailable"}, false))
	require.True(t, decide.RegionMends(decide.ReconcilePass{Report: fleet.ReconcileReport{Ahead: 1}}, false))
}

// N57, X3: what is there beside the set.
func TestExtraHeld(t *testing.T) {
	t.Parallel()
	one := fleet.Version{Era: 1, Revision: 1}
	for name, c := range map[string]struct {
		held fleet.Held
		want bool
	}{
		"held":                        {fleet.Held{Known: true, Revision: fleet.Revision{Version: one, Action: fleet.ActionDeploy}}, true},
		"a tombstone":                 {fleet.Held{Known: true, Revision: fleet.Revision{Version: one, Action: fleet.ActionDelete}}, false},
		"tried and never applied":     {fleet.Held{Known: true}, false},
		"runs without a row":          {fleet.Held{Running: true}, true},
		"neither known nor running":   {fleet.Held{}, false},
		"a tombstone that still runs": {fleet.Held{Known: true, Running: true, Revision: fleet.Revision{Version: one, Action: fleet.ActionDelete}}, false},
	} {
		require.Equal(t, c.want, decide.ExtraHeld(c.held), name)
	}
}
