package httpapi

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func TestEnrolment(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	key, err := identity.Generate("plant-1-a")
	require.NoError(t, err)
	join := func() string {
		made := r.call(r.admin, http.MethodPost, "/api/v1/join-tokens", api.JoinTokenRequest{Site: "plant-1", Node: "plant-1-a"})
		return into[api.Token](t, made).Token
	}
	enrol := func(in map[string]string) int {
		return r.call("", http.MethodPost, "/api/internal/nodes/enrol", in).status
	}

	t.Run("takes a join token once, and once more from the same key, whose answer was lost", func(t *testing.T) {
		token := join()
		in := enrolment(t, key, token)
		require.Equal(t, http.StatusOK, enrol(in))
		require.Equal(t, http.StatusOK, enrol(in))
		other, err := identity.Generate("plant-1-a")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, enrol(enrolment(t, other, token)))
	})

	t.Run("refuses what is not in order, and keeps the token", func(t *testing.T) {
		token := join()
		for field, value := range map[string]string{
			"node": "plant-1-b", "site": "plant-2", "joinToken": r.admin,
		} {
			in := enrolment(t, key, token)
			in[field] = value
			require.Equal(t, http.StatusUnauthorized, enrol(in), field)
		}
		for field, value := range map[string]string{"node": "Plant", "site": "", "signingKey": "short", "sealingKey": "!"} {
			in := enrolment(t, key, token)
			in[field] = value
			require.Equal(t, http.StatusBadRequest, enrol(in), field)
		}
		require.Equal(t, http.StatusOK, enrol(enrolment(t, key, token)))
	})

	t.Run("again revokes the old key", func(t *testing.T) {
		newer, err := identity.Generate("plant-1-a")
		require.NoError(t, err)
		made := r.call("", http.MethodPost, "/api/internal/nodes/enrol", enrolment(t, key, join()))
		require.True(t, into[nodes.Welcome](t, made).First, "no other key was ever enrolled: it has not voted")
		made = r.call("", http.MethodPost, "/api/internal/nodes/enrol", enrolment(t, newer, join()))
		require.Equal(t, http.StatusOK, made.status)
		require.False(t, into[nodes.Welcome](t, made).First)
		require.Equal(t, http.StatusUnauthorized, r.asNode(key, "reports", map[string]any{}).status)
		require.Equal(t, http.StatusOK, r.asNode(newer, "reports", map[string]any{}).status)
	})
}

func heldAt(revision int64) fleet.NodeInstance {
	v := fleet.Version{Era: 1, Revision: revision}
	return fleet.NodeInstance{Instance: "press-7", Held: fleet.Held{
		Known: true, Running: true, HighWater: v, Revision: fleet.Revision{Version: v, Action: fleet.ActionDeploy, Enabled: true},
	}}
}

func TestNodeCalls(t *testing.T) {
	t.Parallel()
	r, f := delivery(t, `{"config":{"a":1}}`)
	key := r.enrolled("plant-1-a")

	t.Run("are taken from the node that signs them only", func(t *testing.T) {
		other := r.enrolled("plant-1-b")
		token, err := other.Sign(identity.RegionAudience, now())
		require.NoError(t, err)
		old, err := key.Sign(identity.RegionAudience, now().Add(-time.Hour))
		require.NoError(t, err)
		stranger, err := identity.Generate("plant-1-a")
		require.NoError(t, err)
		forged, err := stranger.Sign(identity.RegionAudience, now())
		require.NoError(t, err)
		before := r.rows()
		for name, wrong := range map[string]string{
			"no token": "", "a user's": r.admin, "another node's": token, "an old one": old, "a forged one": forged,
		} {
			for _, tail := range []string{"started", "reports", "logs"} {
				a := r.call(wrong, http.MethodPost, "/api/internal/nodes/plant-1-a/"+tail, map[string]any{"startId": "x", "last": true, "instance": "press-7", "data": "eA=="})
				require.Equal(t, http.StatusUnauthorized, a.status, name+" "+tail)
			}
		}
		require.Equal(t, before, r.rows())
	})

	t.Run("tell what the node holds", func(t *testing.T) {
		page := r.asNode(key, "started", map[string]any{"startId": "s1", "instances": []fleet.NodeInstance{heldAt(1)}, "fromALaterVersion": 1})
		require.Equal(t, http.StatusOK, page.status, string(page.body))
		require.Empty(t, r.starts(), "more pages are to come")
		end := r.asNode(key, "started", map[string]any{"startId": "s1", "last": true})
		require.Equal(t, http.StatusOK, end.status)
		require.Equal(t, []fleet.NodeName{"plant-1-a"}, r.starts())
		var status api.InstanceStatus
		require.NoError(t, json.Unmarshal(into[api.Object](t, r.get(press7Path)).Status, &status))
		require.EqualValues(t, 1, status.Nodes[0].Revision)
		require.True(t, status.Nodes[0].Running)
	})

	t.Run("are refused above what the region ever gave out", func(t *testing.T) {
		a := r.asNode(key, "reports", map[string]any{"instances": []fleet.NodeInstance{heldAt(99)}})
		require.Equal(t, api.ProblemPrefix+string(fleet.Precondition), a.problem(t).Type)
	})

	t.Run("move the expiry of a fetch forward", func(t *testing.T) { // N90, N103
		r.sql(`UPDATE pending SET expires_at = now() + interval '1 second'`)
		a := r.asNode(key, "reports", map[string]any{"progress": []any{map[string]any{"deploymentId": f.id, "bytes": 3, "total": 7}}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		var left float64
		require.NoError(t, r.pool.QueryRow(t.Context(), `SELECT extract(epoch FROM expires_at - now()) FROM pending`).Scan(&left))
		require.Greater(t, left, 30.0)
		require.LessOrEqual(t, left, 60.0, "not beyond the delivery's deadline")
		ops := into[api.List[api.Operation]](t, r.get("/api/v1/operations"))
		require.EqualValues(t, 3, ops.Items[0].Progress[0].Fetched)
	})

	t.Run("bring output, bounded", func(t *testing.T) { // X27
		for offset := range int64(5) {
			a := r.asNode(key, "logs", map[string]any{
				"instance": "press-7", "offset": offset << 19, "data": []byte(strings.Repeat(string(rune('a'+offset)), 1<<19)), "skipped": 0,
			})
			require.Equal(t, http.StatusNoContent, a.status, string(a.body))
		}
		var kept int64
		require.NoError(t, r.pool.QueryRow(t.Context(), `SELECT sum(length(data)) FROM instance_logs`).Scan(&kept))
		require.LessOrEqual(t, kept, int64(2<<20))
		logs := into[api.List[api.LogChunk]](t, r.get(press7Path+"/logs?node=plant-1-a&after=2097152"))
		require.Len(t, logs.Items, 1)
		require.EqualValues(t, 4<<19, logs.Items[0].Offset)
	})

	t.Run("tell what the node refused, and when", func(t *testing.T) { // X21, C87
		r.refusals()
		one := map[string]any{"door": "peer", "identity": "?node:x", "reason": "unauthenticated", "what": "Vote", "times": 3, "ageMs": 3_600_000}
		a := r.asNode(key, "reports", map[string]any{"refusals": []any{one, map[string]any{
			"door": "node", "identity": "region", "reason": "of a later version", "what": "it", "times": 1, "ageMs": 0, "by": "plant-9", "more": 1,
		}}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		said := r.refusals()
		require.Len(t, said, 2)
		require.WithinDuration(t, now().Add(-time.Hour), said[0].At, time.Minute)
		said[0].At, said[1].At = time.Time{}, time.Time{}
		require.Equal(t, []audit.Refusal{
			{Door: "peer", Identity: "?node:x", Reason: "unauthenticated", What: "Vote", Times: 3, By: "plant-1-a"},
			{Door: "node", Identity: "region", Reason: "other", What: "it", Times: 1, By: "plant-1-a"},
		}, said)
		for field, all := range map[string][]any{
			"door": {"link", "record", "", "of a later version"}, "identity": {"token:x", "region", "node:No Name", "?x", strings.Repeat("x", 300), "\x00"},
		} {
			for _, bad := range all {
				wrong := maps.Clone(one)
				wrong[field] = bad
				require.Equal(t, http.StatusOK, r.asNode(key, "reports", map[string]any{"refusals": []any{wrong, one}}).status, "%s %q", field, bad)
				require.Len(t, r.refusals(), 1, "what no node says is left out: %s %q", field, bad)
			}
		}
		for _, age := range []int64{-1, math.MaxInt64, math.MinInt64} {
			odd := maps.Clone(one)
			odd["ageMs"] = age
			require.Equal(t, http.StatusOK, r.asNode(key, "reports", map[string]any{"refusals": []any{odd}}).status)
			require.NotPanics(t, func() {
				at := r.refusals()[0].At
				require.False(t, at.After(now()))
				require.True(t, at.After(now().AddDate(-2, 0, 0)))
			})
		}
		above := r.asNode(key, "reports", map[string]any{"instances": []fleet.NodeInstance{heldAt(99)}, "refusals": []any{one}})
		require.NotEqual(t, http.StatusOK, above.status)
		require.Empty(t, r.refusals(), "a report that fails comes again, and with it these")
	})

	t.Run("are refused when they are too long or make no sense", func(t *testing.T) {
		long := r.asNode(key, "logs", map[string]any{"instance": "press-7", "data": make([]byte, 1<<20)})
		require.Equal(t, http.StatusRequestEntityTooLarge, long.status)
		for tail, body := range map[string]any{
			"started": map[string]any{"startId": ""},
			"reports": map[string]any{"instances": []any{map[string]any{"instance": "No Name"}}},
			"logs":    map[string]any{"instance": "press-7", "offset": -1},
		} {
			require.Equal(t, http.StatusBadRequest, r.asNode(key, tail, body).status, tail)
		}
	})
}

// N92, N104, X10
func TestTheLogHoldsNoSecret(t *testing.T) {
	t.Parallel()
	r, f := delivery(t, `{"config":{"password":"hunter2"},"run":{"command":["/bin/x"],"env":{"KEY":"swordfish"}}}`)
	key := r.enrolled("plant-1-a")
	r.asNode(key, "started", map[string]any{"startId": "s1", "last": true})
	for _, token := range []string{f.token, "wrong-fetch-token", ""} {
		r.call(token, http.MethodGet, f.path+"/config?token=query-secret", nil)
		r.call(token, http.MethodGet, f.path+"/run", nil)
	}
	r.call("wrong-user-token", http.MethodGet, "/api/v1/sites?limit=query-secret", nil)
	r.call(r.admin, http.MethodPut, press7Path, `{"config":{"password":"hunter2","password":"hunter2"}}`)
	r.call(r.admin, http.MethodPut, press7Path, `{"config":"hunter2","enabled":"hunter2"}`)

	text := r.log.String()
	metrics := string(r.call(r.viewer, http.MethodGet, "/metrics", nil).body)
	require.Contains(t, text, "/api/internal/deployments/{id}/config")
	require.Contains(t, metrics, `holdfast_http_requests_total{method="GET",route="/api/internal/deployments/{id}/config",status="200"} 1`)
	for _, secret := range []string{
		"hunter2", "swordfish", "query-secret", f.token, r.admin, r.viewer, "wrong-fetch-token", "wrong-user-token",
	} {
		require.NotContains(t, text, secret)
		require.NotContains(t, metrics, secret)
	}
}
