package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// N50, X7, X13, X21: a start that was cut off runs on until it has a result and then becomes current. It ends if its process or the lease
// was lost, if a newer revision was accepted, or if no attempt adopts it after its delivery was closed.
func TestStaged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seen decide.StagedSeen
		rule string
		then decide.Course
	}{
		{decide.StagedSeen{InForce: true}, "nothing_to_start", decide.CourseForward},
		{decide.StagedSeen{}, "not_running", decide.CourseBack},
		{decide.StagedSeen{InForce: true, Process: true}, "not_running", decide.CourseBack},
		{decide.StagedSeen{Process: true, Runs: true}, "started", decide.CourseForward},
		{decide.StagedSeen{InForce: true, Process: true, Runs: true, Starting: true}, "starting", decide.CourseWait},
		{decide.StagedSeen{Process: true, Runs: true, Late: true}, "started", decide.CourseForward},
		{decide.StagedSeen{Process: true, Runs: true, Closed: true}, "closed", decide.CourseWait},
		{decide.StagedSeen{Process: true, Runs: true, Closed: true, Starting: true}, "closed", decide.CourseWait},
		{decide.StagedSeen{Process: true, Runs: true, Closed: true, Starting: true, Late: true}, "not_claimed", decide.CourseBack},
		{decide.StagedSeen{Process: true, Runs: true, Superseded: true}, "superseded", decide.CourseBack},
	} {
		rule, then := decide.Staged(c.seen)
		require.Equal(t, []any{c.rule, c.then}, []any{rule, then}, "%+v", c.seen)
	}
}
