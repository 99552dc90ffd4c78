package httpapi

import (
	"net/http"
	"testing"
	"time"

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

// X8: the clocks of a paused rollout stand still, also that of the operation that waits for it; what bounds the pause is shown.
func TestPausedRollout(t *testing.T) {
	t.Parallel()
	r := setup(t)
	op := into[api.Accepted](t, r.put(webPath, `{"command":["one"],"replicas":1}`)).Operation
	paused, until := now().Add(-time.Hour), now().Add(71*time.Hour)
	_, err := r.pool.Exec(t.Context(), `INSERT INTO rollouts (deployment, number, uid, project, from_revision, to_revision, process_version, strategy, state, progress, deadline_at, until, since, created_by)
		SELECT name, 1, uid, project, 1, 1, process_version, '{}', 'PAUSED', 1, now(), $1, $2, 'x' FROM deployments WHERE name = 'web'`, until, paused)
	require.NoError(t, err)
	is := into[api.Operation](t, r.get("/api/v1/operations/"+op.ID))
	require.WithinDuration(t, op.Deadline.Add(time.Hour), is.Deadline, time.Second)
	rollouts := into[api.List[api.Rollout]](t, r.get(webPath+"/rollouts"))
	require.Nil(t, rollouts.Items[0].Deadline)
	require.WithinDuration(t, until, *rollouts.Items[0].Until, time.Second)
	_, err = r.pool.Exec(t.Context(), `UPDATE rollouts SET state = 'DEPLOYING'`)
	require.NoError(t, err)
	require.Equal(t, op.Deadline, into[api.Operation](t, r.get("/api/v1/operations/"+op.ID)).Deadline)
	require.NotNil(t, into[api.List[api.Rollout]](t, r.get(webPath+"/rollouts")).Items[0].Deadline)
}
