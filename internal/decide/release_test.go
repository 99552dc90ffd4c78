package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F11 to F13, F16, F41, F61, F62: how a release reaches what runs.
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
	} {
		seen := decide.ReleaseSeen{State: fleet.DeploymentRunning, Target: 2, Released: true}
		c.change(&seen)
		require.Equal(t, c.want, decide.Release(seen), name)
		require.Equal(t, c.want == decide.ReleaseJoins || c.want == decide.ReleaseRollsOut, c.want.Beside())
	}
}
