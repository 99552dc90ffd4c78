package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// connection is one with an open stream, as the link leaves it.
func (r *region) connection(provider fleet.ProviderName) string {
	r.t.Helper()
	const server = "server-1"
	require.NoError(r.t, r.store.LinkServerSeen(r.t.Context(), server, time.Minute))
	made, err := r.store.RegisterConnection(r.t.Context(), fleet.Registration{
		Identity: "token:x", Provider: provider, Namespace: fleet.ModuleNamespace("acme." + string(provider)), Group: "g", Executor: "10.0.0.7:9091",
		Protocol: 1, Modules: []fleet.ModuleOffer{{Name: "detect"}},
	}, server)
	require.NoError(r.t, err)
	_, err = r.store.OpenConnection(r.t.Context(), made.ID, "token:x", server)
	require.NoError(r.t, err)
	return string(made.ID)
}

// C86, C23, X5, X8: providers are listed and drained, and what a drain waits for is shown.
func TestProviders(t *testing.T) {
	t.Parallel()
	r := setup(t)
	one, two := r.connection("one"), r.connection("two")
	list := into[api.List[api.Provider]](t, r.call(r.viewer, http.MethodGet, "/api/v1/providers", nil))
	require.Len(t, list.Items, 2)
	p := list.Items[0]
	require.Equal(t, one, string(p.ID))
	require.Equal(t, []string{"detect"}, p.Modules)
	require.Equal(t, "acme.one g 10.0.0.7:9091 Active token:x server-1", p.ModuleNamespace+" "+p.Group+" "+p.Executor+" "+string(p.State)+" "+p.Identity+" "+p.Server)
	require.True(t, p.TakesWork)
	require.Nil(t, p.Drain)
	first := into[api.List[api.Provider]](t, r.call(r.viewer, http.MethodGet, "/api/v1/providers?limit=1", nil))
	rest := into[api.List[api.Provider]](t, r.call(r.viewer, http.MethodGet, "/api/v1/providers?limit=1&cursor="+first.Next, nil))
	require.Equal(t, two, string(rest.Items[0].ID))
	require.Empty(t, rest.Next)

	path := "/api/v1/providers/" + one
	require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, path+"/drain", nil).status)
	dry := r.call(r.operator, http.MethodPost, path+"/drain?dryRun=true", nil)
	require.Equal(t, http.StatusAccepted, dry.status, string(dry.body))
	require.Nil(t, into[api.Provider](t, dry).Drain)
	asked := into[api.Provider](t, r.call(r.operator, http.MethodPost, path+"/drain", api.DrainRequest{Reason: "new version", DeadlineSeconds: 60}))
	require.False(t, asked.TakesWork)
	require.Equal(t, "new version", asked.Drain.Reason)
	require.Equal(t, "ack", asked.Drain.Waits)
	require.WithinDuration(t, now().Add(time.Minute), asked.Drain.Deadline, 10*time.Second)
	// C72, C84: 30 s where nothing is said.
	brief := into[api.Provider](t, r.call(r.operator, http.MethodPost, "/api/v1/providers/"+two+"/drain", nil))
	require.WithinDuration(t, now().Add(30*time.Second), brief.Drain.Deadline, 10*time.Second)
	again := into[api.Provider](t, r.call(r.operator, http.MethodPost, path+"/drain", api.DrainRequest{DeadlineSeconds: 600}))
	require.Equal(t, asked.Drain.Deadline, again.Drain.Deadline)

	move := nodes.ConnectionMoves{Acked: map[fleet.ConnectionID]int{fleet.ConnectionID(one): 3}}
	require.NoError(t, r.store.MoveConnections(t.Context(), "server-1", move))
	drains := into[api.Provider](t, r.call(r.viewer, http.MethodGet, path, nil))
	require.Equal(t, fleet.ConnectionDraining, drains.State)
	require.Equal(t, "in_flight", drains.Drain.Waits)
	require.Equal(t, 3, drains.InFlight)

	for _, body := range []any{api.DrainRequest{DeadlineSeconds: -1}, api.DrainRequest{DeadlineSeconds: 1 << 40}} {
		require.Equal(t, http.StatusBadRequest, r.call(r.operator, http.MethodPost, path+"/drain", body).status)
	}
	for _, missing := range []string{"x", "00000000000000000000000000000000"} {
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/providers/"+missing+"/drain", nil).status)
	}
	end := nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{fleet.ConnectionID(one): fleet.StreamClosed}}
	require.NoError(t, r.store.MoveConnections(t.Context(), "server-1", end))
	require.Equal(t, http.StatusNotFound, r.call(r.viewer, http.MethodGet, path, nil).status)
}

// C87: a provider's token opens the link and nothing here.
func TestProviderToken(t *testing.T) {
	t.Parallel()
	r := setup(t)
	made := into[api.Token](t, r.call(r.admin, http.MethodPost, "/api/v1/tokens", api.TokenRequest{Role: "provider", ModuleNamespaces: []string{"acme.vision"}}))
	require.Equal(t, []string{"acme.vision"}, made.ModuleNamespaces)
	for _, path := range []string{"/api/v1/sites", "/api/v1/providers", "/api/v1/events", "/api/v1/tokens", "/api/v1/refusals", "/api/v1/operations"} {
		require.Equal(t, http.StatusForbidden, r.call(made.Token, http.MethodGet, path, nil).status, path)
	}
	for _, bad := range []api.TokenRequest{
		{Role: "provider", ModuleNamespaces: []string{"stdlib"}},
		{Role: "provider", ModuleNamespaces: []string{"Acme"}},
		{Role: "provider", Project: "default"},
		{Role: "admin", ModuleNamespaces: []string{"acme"}},
	} {
		got := r.call(r.admin, http.MethodPost, "/api/v1/tokens", bad)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusForbidden}, got.status, string(got.body))
	}
}

// C87: who may not do what they ask for is written down, whatever they ask for.
func TestRefusalsOfPeople(t *testing.T) {
	t.Parallel()
	r := setup(t)
	bound := r.token("operator", "other")
	id := func(role, project string) string {
		var id string
		require.NoError(t, r.pool.QueryRow(t.Context(), `SELECT id FROM api_tokens WHERE role = $1 AND project = $2`, role, project).Scan(&id))
		return "token:" + id
	}
	for _, row := range []struct {
		token, method, path string
		status              int
		want                audit.Refusal
	}{
		{r.viewer, http.MethodPost, "/api/v1/join-tokens", http.StatusForbidden, audit.Refusal{Identity: id("viewer", ""), Reason: "denied"}},
		{bound, http.MethodGet, "/api/v1/refusals", http.StatusForbidden, audit.Refusal{Identity: id("operator", "other"), Reason: "denied"}},
		{bound, http.MethodGet, "/api/v1/events?project=default", http.StatusForbidden, audit.Refusal{Identity: id("operator", "other"), Reason: "denied"}},
		{"nonsense", http.MethodGet, "/api/v1/sites", http.StatusUnauthorized, audit.Refusal{Reason: "unauthenticated"}},
		{"", http.MethodGet, "/api/v1/sites", http.StatusUnauthorized, audit.Refusal{Reason: "unauthenticated"}},
	} {
		require.Equal(t, row.status, r.call(row.token, row.method, row.path, nil).status, row.path)
		path, _, _ := strings.Cut(row.path, "?")
		row.want.Door, row.want.What = "http", row.method+" "+path
		require.Equal(t, []audit.Refusal{row.want}, r.refusals())
	}
	require.Equal(t, http.StatusNotFound, r.call(r.viewer, http.MethodGet, "/api/v1/sites/none", nil).status)
	require.Empty(t, r.refusals(), "what is not there is no refusal")
}

// C87: an auditor reads what was refused, newest first.
func TestListOfRefusals(t *testing.T) {
	t.Parallel()
	r := setup(t)
	require.NoError(t, r.store.AddRefusals(t.Context(), []audit.Refusal{
		{Door: "link", Identity: "node:a", Reason: "namespace_not_granted", What: "acme", Times: 1},
		{Door: "peer", Identity: "node:b", Reason: "not_the_candidate", What: "Vote", By: "a", Times: 1, At: now().Add(-time.Hour)},
		{Door: "tasks", Identity: "?node:b", Reason: "queue", What: "node.a", Times: 9},
	}, now()))
	require.Equal(t, http.StatusForbidden, r.call(r.operator, http.MethodGet, "/api/v1/refusals", nil).status)
	first := into[api.List[api.Refusal]](t, r.call(r.admin, http.MethodGet, "/api/v1/refusals?limit=1", nil))
	require.Equal(t, "?node:b", first.Items[0].Identity)
	require.EqualValues(t, 9, first.Items[0].Times)
	rest := into[api.List[api.Refusal]](t, r.call(r.admin, http.MethodGet, "/api/v1/refusals?limit=2&cursor="+first.Next, nil))
	require.Equal(t, "node:b", rest.Items[0].Identity)
	rest.Items = rest.Items[1:]
	require.Equal(t, "node:a", rest.Items[0].Identity)
	one := into[api.List[api.Refusal]](t, r.call(r.admin, http.MethodGet, "/api/v1/refusals?identity=node:a", nil))
	require.Len(t, one.Items, 2, "what it got, and what it gave")
	require.Equal(t, "a", one.Items[0].By)
	require.WithinDuration(t, now().Add(-time.Hour), one.Items[0].At, time.Minute)
}
