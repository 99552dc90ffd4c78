package decide

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X4, X21: what was deleted or disabled is not started by a node that becomes active.
func TestOwedStops(t *testing.T) {
	t.Parallel()
	stop := func(name fleet.InstanceName, revision int64, change ...func(*fleet.StopSeen)) fleet.StopSeen {
		s := fleet.StopSeen{InstanceRevision: fleet.InstanceRevision{
			Instance: name, Revision: fleet.Revision{Version: fleet.Version{Era: 1, Revision: revision}, Action: fleet.ActionDisable},
		}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	deployed := func(s *fleet.StopSeen) { s.Deployed = true }
	staged := func(s *fleet.StopSeen) { s.Staged = true }
	awaited := func(s *fleet.StopSeen) { s.Awaited = true }
	owed := func(s *fleet.StopSeen) { s.Owed = true }
	held := map[fleet.InstanceName]fleet.Version{"press": {Era: 1, Revision: 3}}
	for name, c := range map[string]struct {
		seen []fleet.StopSeen
		want []int64
	}{
		"nothing":                            {nil, []int64{}},
		"deployed":                           {[]fleet.StopSeen{stop("press", 4, deployed)}, []int64{4}},
		"deployed, its window came":          {[]fleet.StopSeen{stop("press", 4, deployed, staged)}, []int64{4}},
		"asked for":                          {[]fleet.StopSeen{stop("press", 4, awaited)}, []int64{4}},
		"owed":                               {[]fleet.StopSeen{stop("press", 4, owed)}, []int64{4}},
		"waits for its window":               {[]fleet.StopSeen{stop("press", 4, awaited, owed, staged)}, []int64{}},
		"nobody waits, nobody is owed":       {[]fleet.StopSeen{stop("press", 4)}, []int64{}},
		"the node holds it":                  {[]fleet.StopSeen{stop("press", 3, deployed)}, []int64{}},
		"the node holds a newer one":         {[]fleet.StopSeen{stop("press", 2, deployed)}, []int64{}},
		"the newest of a name":               {[]fleet.StopSeen{stop("press", 5, owed), stop("press", 4, deployed)}, []int64{5}},
		"the newest is not in force":         {[]fleet.StopSeen{stop("press", 5), stop("press", 4, deployed)}, []int64{4}},
		"each name, and one that is unknown": {[]fleet.StopSeen{stop("saw", 1, owed), stop("press", 4, owed)}, []int64{4, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := []int64{}
			for _, r := range OwedStops(c.seen, held) {
				got = append(got, r.Revision.Version.Revision)
			}
			require.Equal(t, c.want, got)
		})
	}
}
