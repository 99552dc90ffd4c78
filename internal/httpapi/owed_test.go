package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X4, X21, N23
func TestNodeOwed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/sites/plant-1", pair("plant-1"))
	key, peer := r.enrolled("plant-1-b"), r.enrolled("plant-1-a")
	revision := func(n int, action string, enabled bool) {
		_, err := r.pool.Exec(t.Context(), `INSERT INTO revisions (site, name, revision, era, action, content_kind, body_hash, enabled, durability, generation, spec, created_by)
			SELECT site, name, $1, era, $2, content_kind, CASE WHEN $2 = 'delete' THEN NULL ELSE body_hash END, $3, durability, generation, spec, created_by
			FROM revisions WHERE name = 'press-7' AND revision = 1`, n, action, enabled)
		require.NoError(t, err)
		_, err = r.pool.Exec(t.Context(), `UPDATE subjects SET last_revision = $1, desired_revision = $1`, n)
		require.NoError(t, err)
		_, err = r.pool.Exec(t.Context(), `INSERT INTO snapshots (site, name, revision, delivery_id, epoch) VALUES ('plant-1', 'press-7', $1, 'x', 1)
			ON CONFLICT (site, name) DO UPDATE SET revision = excluded.revision`, n)
		require.NoError(t, err)
	}
	r.put("/api/v1/sites/plant-1/instances/press-7", map[string]any{"config": map[string]any{"a": 1}})
	ask := func(held int64) []fleet.RefreshDeploymentCommand {
		a := r.asNode(key, "owed", map[string]any{"instances": []fleet.Extra{
			{Instance: "press-7", Version: fleet.Version{Era: 1, Revision: held}}, {Instance: "never-known", Version: fleet.Version{Era: 1, Revision: 1}},
		}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return into[gotTickets](t, a).Commands
	}
	require.Empty(t, ask(1))

	revision(2, "disable", false)
	_, err := r.pool.Exec(t.Context(), `UPDATE operations SET state = 'succeeded', ended_at = now()`)
	require.NoError(t, err)
	got := ask(1)
	require.Len(t, got, 1)
	require.Equal(t, []any{fleet.InstanceName("press-7"), fleet.ActionDisable, int64(2)}, []any{got[0].Instance, got[0].Revision.Action, got[0].Revision.Version.Revision})
	token, err := key.Open(got[0].FetchToken)
	require.NoError(t, err)
	body := r.call(token, http.MethodGet, "/api/internal/deployments/"+got[0].DeploymentID+"/config", nil)
	require.Equal(t, http.StatusOK, body.status, "its content can be fetched by it")
	require.Empty(t, ask(2), "what the node has, it is not told")
	again := into[gotTickets](t, r.asNode(key, "owed", map[string]any{"again": true, "instances": []fleet.Extra{
		{Instance: "press-7", Version: fleet.Version{Era: 1, Revision: 1}},
	}})).Commands
	require.Equal(t, []any{int64(2), "", ""}, []any{again[0].Revision.Version.Revision, again[0].FetchToken, again[0].DeploymentID}, "it holds it back already")

	revision(3, "delete", false)
	got = ask(2)
	require.Len(t, got, 1)
	require.Equal(t, []any{fleet.ActionDelete, "", int64(3)}, []any{got[0].Revision.Action, got[0].FetchToken, got[0].Revision.Version.Revision})

	require.Equal(t, http.StatusBadRequest, r.asNode(key, "owed", map[string]any{"instances": []fleet.Extra{}}).status)
	signed, err := peer.Sign("holdfast", now())
	require.NoError(t, err)
	a := r.call(signed, http.MethodPost, "/api/internal/nodes/plant-1-b/owed", map[string]any{"instances": []fleet.Extra{{Instance: "press-7"}}})
	require.Equal(t, http.StatusUnauthorized, a.status, "another node's key does not ask for it")
}
