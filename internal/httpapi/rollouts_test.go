package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// F63: a repeated rollback is answered as the first one was, although no earlier revision would be found by now.
func TestRollbackRepeated(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(webPath, `{"command":["one"],"replicas":1}`)
	r.put(webPath, `{"command":["two"],"replicas":1}`)
	_, err := r.pool.Exec(t.Context(), `INSERT INTO rollouts (deployment, number, uid, project, from_revision, to_revision, process_version, strategy, state, progress, deadline_at, created_by, ended_at)
		SELECT name, 1, uid, project, 1, 2, 2, '{}', 'DEPLOYED', 1, now(), 'x', now() FROM deployments WHERE name = 'web'`)
	require.NoError(t, err)
	back := func(key string) reply {
		return r.call(r.operator, http.MethodPost, webPath+"/rollback", `{}`, "Idempotency-Key", key)
	}
	first := back("k")
	require.Equal(t, http.StatusAccepted, first.status, string(first.body))
	_, err = r.pool.Exec(t.Context(), `DELETE FROM rollouts`)
	require.NoError(t, err)
	again := back("k")
	require.Equal(t, http.StatusAccepted, again.status, string(again.body))
	require.Equal(t, into[api.Accepted](t, first).Operation.ID, into[api.Accepted](t, again).Operation.ID)
	require.Equal(t, http.StatusUnprocessableEntity, back("other").status, "another one is refused")
}
