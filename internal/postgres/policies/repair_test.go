package policies_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// M1, M2, M4, M43, M49: the region finds objects whose syncing was altered without a write, of every kind of holder and of none, and
// repairs it with one event each; neither ETag, generation nor time changes, and what is right is not written.
func TestRepairSyncing(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.organization(policyOf(here, "ap"))
	b.project("acme", policyOf(here, "us"))
	b.service(nil)
	b.pool("a", "web")
	b.declare(stores.WriteOf(poolKey("private")), fleet.PoolSpec{})
	b.pools(600)
	n, err := b.RepairSyncing(b.Ctx())
	require.NoError(t, err)
	require.EqualValues(t, 600, n, "made as if nothing governed them")
	n, err = b.RepairSyncing(b.Ctx())
	require.NoError(t, err)
	require.Zero(t, n)
	right := map[fleet.ObjectKey]fleet.Object{}
	for _, key := range []fleet.ObjectKey{acme, redKey, web, poolKey("a"), poolKey("p-0599"), poolKey("private")} {
		right[key] = b.object(key)
	}
	for name, altered := range map[string]string{
		"more regions":   `{"owningRegion": "test", "regions": ["ap", "mars", "test", "us"]}`,
		"fewer regions":  `{"owningRegion": "test", "regions": ["test", "venus"]}`,
		"no regions":     `{"owningRegion": "test"}`,
		"another owner":  `{"owningRegion": "mars", "regions": ["test", "us"]}`,
		"another form":   `{"owningRegion": "test", "regions": "mars"}`,
		"no owner":       `{"regions": ["mars"]}`,
		"a fence":        `{"owningRegion": "test", "regions": ["test", "venus"], "fence": {"to": "us", "epoch": 7}}`,
		"not an object":  `[]`,
		"an empty array": `{"owningRegion": "test", "regions": []}`,
	} {
		b.Exec(`UPDATE objects SET syncing = $1::jsonb WHERE name IN ('acme', 'red', 'web', 'a', 'p-0599', 'private')`, altered)
		known := len(b.Feed(postgres.Cursor{}))
		n, err := b.RepairSyncing(b.Ctx())
		require.NoError(t, err, name)
		require.EqualValues(t, len(right), n, name)
		events := b.Feed(postgres.Cursor{})[known:]
		require.Len(t, events, len(right), name)
		for _, e := range events {
			was, is := right[e.Key], b.object(e.Key)
			require.Equal(t, was.SyncingNow().Regions, is.SyncingNow().Regions, "%s of %s", name, e.Key)
			require.Equal(t, here, is.SyncingNow().OwningRegion, "%s of %s", name, e.Key)
			require.Greater(t, is.Version.Number, was.Version.Number, "peers take it")
			is.Syncing, is.Version = was.Syncing, was.Version
			require.Equal(t, was, is, "%s of %s: all else stays", name, e.Key)
			var after struct {
				Syncing json.RawMessage `json:"syncing"`
			}
			require.NoError(t, json.Unmarshal(e.After, &after))
			require.Equal(t, was.SyncingNow().Regions, syncingOf(t, after.Syncing).Regions)
		}
		n, err = b.RepairSyncing(b.Ctx())
		require.NoError(t, err, name)
		require.Zero(t, n, name)
		require.Len(t, b.Feed(postgres.Cursor{}), known+len(right), "%s: once", name)
	}
}
