package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// at minutes before noon.
func before(minutes int) time.Time { return noon.Add(-time.Duration(minutes) * time.Minute) }

// syncedSeen is a deployment whose revision 2, of generation 2, runs since 10 minutes ago.
func syncedSeen(change ...func(*decide.SyncedSeen)) decide.SyncedSeen {
	own := decide.SyncedRevision{Revision: 2, Generation: 2, At: before(20)}
	s := decide.SyncedSeen{
		Name: "web", Generation: 2, Written: before(5), Newest: own, Own: own, State: fleet.DeploymentRunning, Since: before(10), Message: "how it is", Present: 4,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// newest is a release of revision 3, of generation 3, that does not run.
func newest(s *decide.SyncedSeen) {
	s.Generation, s.Newest = 3, decide.SyncedRevision{Revision: 3, Generation: 3, At: before(4)}
}

func rolloutIs(state fleet.RolloutState, reason string) func(*decide.SyncedSeen) {
	return func(s *decide.SyncedSeen) {
		s.Rollout = &decide.SyncedRollout{State: state, Reason: reason, Message: "how far it is", To: s.Newest.Revision, Began: before(3), Since: before(1)}
	}
}

// X8, X18: whether what is declared is what runs, else why not, of which revision, since when, and what helps.
func TestSynced(t *testing.T) {
	t.Parallel()
	written := func(s *decide.SyncedSeen) { s.Generation = 9 }
	never := func(s *decide.SyncedSeen) {
		s.Newest, s.Own, s.State, s.Present = decide.SyncedRevision{}, decide.SyncedRevision{}, "", 0
	}
	deleting := func(s *decide.SyncedSeen) { s.Deleting = before(2) }
	earlier := func(s *decide.SyncedSeen) { s.Earlier = true }
	waits := func(s *decide.SyncedSeen) {
		s.Waits, s.Newest = true, decide.SyncedRevision{Revision: 3, Generation: 2, At: before(4)}
	}
	replacing := func(s *decide.SyncedSeen) { s.Replacing = before(6) }
	stopped := func(present int) func(*decide.SyncedSeen) {
		return func(s *decide.SyncedSeen) { s.State, s.Stopped, s.Present = fleet.DeploymentPending, true, present }
	}
	in := func(state fleet.DeploymentState) func(*decide.SyncedSeen) {
		return func(s *decide.SyncedSeen) { s.State = state }
	}
	const explain, follow, retry = "holdfast explain deployment web", "holdfast rollout status web --watch", "holdfast rollout retry web"
	for name, c := range map[string]struct {
		seen     decide.SyncedSeen
		reason   string
		revision int64
		since    int // minutes before noon
		message  string
		hint     string
	}{
		"it runs":                            {syncedSeen(), "as_declared", 2, 10, "", ""},
		"it was rolled out":                  {syncedSeen(rolloutIs(fleet.RolloutDeployed, "")), "as_declared", 2, 1, "", ""},
		"an edit in place":                   {syncedSeen(func(s *decide.SyncedSeen) { s.Own.At, s.Newest.At = before(3), before(3) }), "as_declared", 2, 3, "", ""},
		"it is stopped":                      {syncedSeen(stopped(0)), "as_declared", 2, 10, "", ""},
		"it stops":                           {syncedSeen(stopped(1)), "rolling_out", 2, 10, "how it is", explain},
		"a restart failed":                   {syncedSeen(rolloutIs(fleet.RolloutFailed, decide.ReasonNotConnected)), "as_declared", 2, 1, "", ""},
		"it was only written":                {syncedSeen(never), "not_released", 0, 5, "generation 2 was written without being released", "holdfast deploy deployment/web"},
		"it was written since":               {syncedSeen(written), "not_released", 2, 5, "generation 9 was written without being released; revision 2 is of generation 2", "holdfast deploy deployment/web"},
		"written while another is given up":  {syncedSeen(written, in(fleet.DeploymentError)), "not_released", 2, 5, "generation 9 was written without being released; revision 2 is of generation 2", "holdfast deploy deployment/web"},
		"it is being deleted":                {syncedSeen(written, deleting), "deleting", 2, 2, "how it is", explain},
		"another of its name has to end":     {syncedSeen(earlier, func(s *decide.SyncedSeen) { s.Own.Generation = 7 }), "rolling_out", 2, 20, "it begins when the deployment that had its name before has ended", explain},
		"it is given up":                     {syncedSeen(in(fleet.DeploymentError)), "given_up", 2, 10, "how it is", explain},
		"given up after a failed rollout":    {syncedSeen(newest, in(fleet.DeploymentError), rolloutIs(fleet.RolloutFailed, "")), "given_up", 2, 10, "how it is", explain},
		"its rollout is paused":              {syncedSeen(newest, rolloutIs(fleet.RolloutPaused, "")), "paused", 3, 1, "how far it is", "holdfast rollout resume web"},
		"it is on the way to a pause":        {syncedSeen(newest, rolloutIs(fleet.RolloutPrepaused, "")), "rolling_out", 3, 3, "how far it is", follow},
		"it is rolled out":                   {syncedSeen(newest, rolloutIs(fleet.RolloutDeploying, "")), "rolling_out", 3, 3, "how far it is", follow},
		"what waited is rolled out":          {syncedSeen(waits, rolloutIs(fleet.RolloutDeploying, "")), "rolling_out", 3, 3, "how far it is", follow},
		"its first replicas start":           {syncedSeen(in(fleet.DeploymentProvisioning)), "rolling_out", 2, 10, "how it is", explain},
		"its first attempt failed":           {syncedSeen(in(fleet.DeploymentPending)), "rolling_out", 2, 10, "how it is", explain},
		"its replicas are restarted":         {syncedSeen(replacing), "rolling_out", 2, 6, "how it is", explain},
		"what is newer waits for a restart":  {syncedSeen(waits), "pending_restart", 3, 4, "revision 3 waits for a restart", "holdfast restart deployment web"},
		"that restart failed":                {syncedSeen(waits, rolloutIs(fleet.RolloutFailed, "")), "pending_restart", 3, 4, "revision 3 waits for a restart; its last rollout: how far it is", "holdfast restart deployment web"},
		"it is cancelled, and returns":       {syncedSeen(newest, rolloutIs(fleet.RolloutCanceling, decide.ReasonCancelled)), "cancelled", 3, 1, "how far it is", follow},
		"it was cancelled":                   {syncedSeen(newest, rolloutIs(fleet.RolloutCanceled, decide.ReasonCancelled)), "cancelled", 3, 1, "how far it is", retry},
		"it failed, and returns":             {syncedSeen(newest, rolloutIs(fleet.RolloutCanceling, decide.ReasonProgressDeadline)), "rolled_back", 3, 1, "how far it is", follow},
		"a restart is taken back":            {syncedSeen(replacing, rolloutIs(fleet.RolloutCanceling, decide.ReasonProgressDeadline)), "rolled_back", 2, 1, "how far it is", follow},
		"it failed":                          {syncedSeen(newest, rolloutIs(fleet.RolloutFailed, decide.ReasonProgressDeadline)), "rolled_back", 3, 1, "how far it is", retry},
		"its return is incomplete":           {syncedSeen(newest, rolloutIs(fleet.RolloutFailed, decide.ReasonReturnIncomplete), in(fleet.DeploymentProvisioning)), "rolled_back", 3, 1, "how far it is", retry},
		"a server that knows no rollouts":    {syncedSeen(newest), "rolled_back", 3, 4, "revision 3 was released, and revision 2 runs", retry},
		"a start is on its way":              {syncedSeen(newest, rolloutIs(fleet.RolloutDeploying, ""), in(fleet.DeploymentProvisioning)), "rolling_out", 3, 3, "how far it is", follow},
		"a start is paused over a written":   {syncedSeen(newest, rolloutIs(fleet.RolloutPaused, ""), in(fleet.DeploymentPending)), "paused", 3, 1, "how far it is", "holdfast rollout resume web"},
		"stopped after one failed":           {syncedSeen(rolloutIs(fleet.RolloutFailed, ""), stopped(0)), "as_declared", 2, 1, "", ""},
		"healthy or not is another question": {syncedSeen(func(s *decide.SyncedSeen) { s.Message, s.Present = "0 of 4 replicas are healthy", 1 }), "as_declared", 2, 10, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := fleet.ConditionFalse
			if c.reason == decide.SyncedAsDeclared {
				status = fleet.ConditionTrue
			}
			require.Equal(t, fleet.Condition{
				Type: "synced", Status: status, Reason: c.reason, Message: c.message, Revision: c.revision, Hint: c.hint, Since: before(c.since),
			}, decide.Synced(c.seen))
		})
	}
}

// X18: what is synced runs the newest release of the newest generation, and nothing is under way; what is not says what helps.
func TestSyncedProperty(t *testing.T) {
	t.Parallel()
	states := rapid.SampledFrom(fleet.DeploymentStates())
	rollouts := rapid.SampledFrom([]fleet.RolloutState{
		"", fleet.RolloutDeploying, fleet.RolloutPrepaused, fleet.RolloutPaused, fleet.RolloutCanceling,
		fleet.RolloutDeployed, fleet.RolloutCanceled, fleet.RolloutFailed, fleet.RolloutSuperseded,
	})
	small, flag, ago := rapid.Int64Range(0, 3), rapid.Bool(), rapid.IntRange(1, 60)
	rapid.Check(t, func(t *rapid.T) {
		revision := func(of string) decide.SyncedRevision {
			r := decide.SyncedRevision{Revision: small.Draw(t, of), Generation: small.Draw(t, of+" generation"), At: before(ago.Draw(t, of+" at"))}
			if r.Revision == 0 { // none
				return decide.SyncedRevision{}
			}
			return r
		}
		s := decide.SyncedSeen{
			Name: "web", Generation: rapid.Int64Range(1, 3).Draw(t, "generation"), Written: before(ago.Draw(t, "written")), Newest: revision("newest"), Own: revision("own"),
			Earlier: flag.Draw(t, "earlier"), State: states.Draw(t, "state"), Since: before(ago.Draw(t, "since")), Message: "how it is",
			Stopped: flag.Draw(t, "stopped"), Present: int(small.Draw(t, "present")), Waits: flag.Draw(t, "waits"),
		}
		if flag.Draw(t, "deleting") {
			s.Deleting = before(1)
		}
		if flag.Draw(t, "replacing") {
			s.Replacing = before(1)
		}
		if state := rollouts.Draw(t, "rollout"); state != "" {
			s.Rollout = &decide.SyncedRollout{State: state, Message: "how far it is", To: small.Draw(t, "to"), Began: before(2), Since: before(1)}
		}
		c := decide.Synced(s)
		require.False(t, c.Since.IsZero())
		if c.Status != fleet.ConditionTrue {
			require.NotEqual(t, decide.SyncedAsDeclared, c.Reason)
			require.NotEmpty(t, c.Hint)
			return
		}
		require.Equal(t, decide.SyncedAsDeclared, c.Reason)
		require.Equal(t, []int64{s.Generation, s.Generation}, []int64{s.Own.Generation, s.Newest.Generation}, "observedGeneration is the generation")
		require.Equal(t, s.Newest.Revision, s.Own.Revision)
		require.False(t, s.Earlier || s.Waits || !s.Deleting.IsZero() || s.Rollout != nil && s.Rollout.State.Active())
		require.True(t, s.Stopped && s.Present == 0 || !s.Stopped && s.State == fleet.DeploymentRunning && s.Replacing.IsZero())
	})
}
