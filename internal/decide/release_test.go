package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F1, F11, F12, F13, F16, F41, F61, F62: how a release reaches what runs.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*decide.ReleaseSeen)
		want   decide.ReleaseWay
	}{
		"another content":                 {func(*decide.ReleaseSeen) {}, decide.ReleaseRollsOut},
		"nothing needs a new process":     {func(s *decide.ReleaseSeen) { s.SameAsOwn = true }, decide.ReleaseKeeps},
		"it is stopped":                   {func(s *decide.ReleaseSeen) { s.Stopped = true }, decide.ReleaseAtOnce},
		"it was stopped, which is unseen": {func(s *decide.ReleaseSeen) { s.WasStopped = true }, decide.ReleaseAtOnce},
		"nothing is to run":               {func(s *decide.ReleaseSeen) { s.Target = 0 }, decide.ReleaseAtOnce},
		"it does not run":                 {func(s *decide.ReleaseSeen) { s.State = fleet.DeploymentError }, decide.ReleaseAtOnce},
		"it is the first":                 {func(s *decide.ReleaseSeen) { s.Released = false }, decide.ReleaseAtOnce},
		"another declaration ends":        {func(s *decide.ReleaseSeen) { s.Waits = true }, decide.ReleaseAtOnce},
		"another than is rolled out":      {func(s *decide.ReleaseSeen) { s.Rolling = true }, decide.ReleaseRollsOut},
		"the same as is rolled out":       {func(s *decide.ReleaseSeen) { s.Rolling, s.SameAsNext = true, true }, decide.ReleaseJoins},
		"the same as is rolled back":      {func(s *decide.ReleaseSeen) { s.Rolling, s.Returning, s.SameAsNext = true, true, true }, decide.ReleaseRollsOut},
		"a stop of what is rolled out":    {func(s *decide.ReleaseSeen) { s.Rolling, s.SameAsNext, s.Stopped = true, true, true }, decide.ReleaseAtOnce},
		"what waits for a restart":        {func(s *decide.ReleaseSeen) { s.NeedsRestart = true }, decide.ReleasePends},
		"it waits after failures":         {func(s *decide.ReleaseSeen) { s.NeedsRestart, s.State = true, fleet.DeploymentError }, decide.ReleasePends},
		"it waits beside a rollout":       {func(s *decide.ReleaseSeen) { s.NeedsRestart, s.Rolling = true, true }, decide.ReleasePends},
		"what is stopped waits for none":  {func(s *decide.ReleaseSeen) { s.NeedsRestart, s.Stopped = true, true }, decide.ReleaseAtOnce},
		"what was stopped waits for none": {func(s *decide.ReleaseSeen) { s.NeedsRestart, s.WasStopped = true, true }, decide.ReleaseAtOnce},
		"none waits for a restart":        {func(s *decide.ReleaseSeen) { s.NeedsRestart, s.Target = true, 0 }, decide.ReleaseAtOnce},
		"a start beside a stable one":     {func(s *decide.ReleaseSeen) { s.WasStopped, s.Stable = true, true }, decide.ReleaseRollsOut},
		"a start of what was written":     {func(s *decide.ReleaseSeen) { s.WasStopped, s.Stable, s.SameAsOwn = true, true, true }, decide.ReleaseRollsOut},
		"a start of the stable one":       {func(s *decide.ReleaseSeen) { s.WasStopped, s.Stable, s.SameAsStable = true, true, true }, decide.ReleaseAtOnce},
		"a stop beside a stable one":      {func(s *decide.ReleaseSeen) { s.Stopped, s.Stable = true, true }, decide.ReleaseAtOnce},
		"the least grows from zero":       {func(s *decide.ReleaseSeen) { s.Target, s.Stable = 0, true }, decide.ReleaseRollsOut},
		"the target stays zero":           {func(s *decide.ReleaseSeen) { s.Target, s.NextTarget, s.Stable = 0, 0, true }, decide.ReleaseAtOnce},
		"over what was given up":          {func(s *decide.ReleaseSeen) { s.State, s.Stable = fleet.DeploymentError, true }, decide.ReleaseRollsOut},
		"over what starts":                {func(s *decide.ReleaseSeen) { s.State, s.Stable = fleet.DeploymentProvisioning, true }, decide.ReleaseRollsOut},
		"what starts as a rollout": {func(s *decide.ReleaseSeen) {
			s.State, s.Stable, s.Rolling, s.SameAsNext = fleet.DeploymentProvisioning, true, true, true
		}, decide.ReleaseJoins},
		"it waits, and was given up": {func(s *decide.ReleaseSeen) { s.State, s.Stable, s.NeedsRestart = fleet.DeploymentError, true, true }, decide.ReleasePends},
	} {
		seen := decide.ReleaseSeen{State: fleet.DeploymentRunning, Target: 2, NextTarget: 2, Released: true}
		c.change(&seen)
		require.Equal(t, c.want, decide.Release(seen), name)
		require.Equal(t, c.want == decide.ReleaseJoins || c.want == decide.ReleaseRollsOut, c.want.Beside())
	}
}

// F1, F20: what holds at once of a release that waits for a restart.
func TestReleaseOfWhatIsApplied(t *testing.T) {
	t.Parallel()
	seen := decide.ReleaseSeen{State: fleet.DeploymentRunning, Target: 2, Released: true, NeedsRestart: true}
	require.Equal(t, decide.ReleaseKeeps, decide.Release(seen.Applied()))
	seen.Rolling = true
	require.Equal(t, decide.ReleaseJoins, decide.Release(seen.Applied()))
	seen.Returning = true
	require.Equal(t, decide.ReleaseKeeps, decide.Release(seen.Applied()))
}

// S33: the state in which the rollout of a release begins.
func TestBeganIn(t *testing.T) {
	t.Parallel()
	const running, pending, gaveUp = fleet.DeploymentRunning, fleet.DeploymentPending, fleet.DeploymentError
	require.Equal(t, running, decide.ReleaseSeen{State: running, Target: 2}.BeganIn())
	require.Equal(t, pending, decide.ReleaseSeen{State: running, Target: 2, WasStopped: true}.BeganIn())
	require.Equal(t, pending, decide.ReleaseSeen{State: running}.BeganIn())
	require.Equal(t, gaveUp, decide.ReleaseSeen{State: gaveUp, Target: 2}.BeganIn())
}
