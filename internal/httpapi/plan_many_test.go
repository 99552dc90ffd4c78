//go:build !race

package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// N107: 10,000 objects, first none of which changes, then all. How long that takes is bench's.
func TestPlanOfTenThousand(t *testing.T) {
	t.Parallel()
	const sites = 10
	count := sized.Many(10_000)
	r := setup(t)
	filler := strings.Repeat("x", 40)
	var all []string
	for i := range sites {
		all = append(all, siteManifest(fmt.Sprintf("plant-%d", i)))
	}
	for i := range count {
		var config strings.Builder
		for k := range 75 {
			fmt.Fprintf(&config, `"key-%d":"%s-%d",`, k, filler, i)
		}
		all = append(all, fmt.Sprintf(`{"kind":"Instance","name":"i-%d","site":"plant-%d","spec":{"config":{%s"n":%d}}}`, i, i%sites, config.String(), i))
	}
	body := many(`"applySet":"all"`, all...)
	done := r.apply(body)
	require.Zero(t, done.Failed)
	r.sql(`INSERT INTO node_held (site, name, node, era, revision, hash, enabled, deleted, running, high_era, high_revision)
		SELECT v.site, v.name, n.name, v.era, v.revision, v.body_hash, true, false, true, v.era, v.revision FROM revisions v JOIN nodes n ON n.site = v.site`)
	r.sql(`ANALYZE`)
	before := r.rows()
	p := r.plan(body)
	require.Equal(t, count+sites, p.Summary.Unchanged)

	p = r.plan(strings.ReplaceAll(body, `"key-7":"x`, `"key-7":"y`))
	require.Equal(t, count, p.Summary.Change)
	require.Len(t, p.Objects[sites].Nodes, 1)
	require.Len(t, p.Objects[sites].Nodes[0].Changes, 1)
	require.Equal(t, before, r.rows())
}
