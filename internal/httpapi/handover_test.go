package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// joined makes a region known as a peer.
func (r *region) joined(name string) {
	r.sql(`INSERT INTO peers (name, public_key, number, admitted_by, admission, address, address_number, address_signature)
		VALUES ('` + name + `', decode(repeat('01', 32), 'hex'), 1, 'test', decode(repeat('00', 64), 'hex'), 'https://x:1', 1, decode(repeat('00', 64), 'hex'))`)
}

// M34, M39, X19: a hand-over is an administrator's request; what cannot be handed over is refused with what is allowed.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/projects/red", api.ProjectPut{MultiRegionPolicy: policyOf("test", "us")})
	r.put("/api/v1/projects/plain", api.ProjectPut{})
	const path = "/api/v1/projects/red/hand-over"
	to := func(region string) api.HandOverRequest { return api.HandOverRequest{To: region} }
	require.Equal(t, http.StatusForbidden, r.call(r.operator, http.MethodPost, path, to("us")).status)
	for _, row := range []struct {
		path   string
		in     any
		status int
		field  string
	}{
		{path, nil, http.StatusBadRequest, "/"},
		{path, to(""), http.StatusBadRequest, "/to"},
		{path, to("ap"), http.StatusBadRequest, "/to"},
		{path, to("test"), http.StatusUnprocessableEntity, "/to"},
		{path, to("us"), http.StatusUnprocessableEntity, "/multiRegionPolicy/defaultControlRegion"},
		{path, api.HandOverRequest{To: "us", Force: true}, http.StatusBadRequest, "/force"},
		{"/api/v1/projects/plain/hand-over", to("us"), http.StatusUnprocessableEntity, ""},
		{"/api/v1/projects/blue/hand-over", to("us"), http.StatusNotFound, "project"},
	} {
		p := r.call(r.admin, http.MethodPost, row.path, row.in).problem(t)
		require.Equal(t, []any{row.status, row.field}, []any{p.Status, p.Field}, "%v: %s", row.in, p.Detail)
	}
	r.joined("us")
	client, err := api.NewClient(r.url, r.admin)
	require.NoError(t, err)
	dry, err := client.HandOver(t.Context(), fleet.ProjectKey("red"), to("us"), api.Mutation{DryRun: true})
	require.NoError(t, err)
	require.Empty(t, dry.Operation.ID)
	r.put("/api/v1/projects/red", api.ProjectPut{MultiRegionPolicy: policyOf("test", "us")})
	require.Zero(t, r.apply(many(`"applySet":"line"`, `{"kind":"Template","name":"old","project":"red","spec":{"base":{}}}`)).Failed)
	out, err := client.HandOver(t.Context(), fleet.ProjectKey("red"), to("us"), api.Mutation{})
	require.NoError(t, err)
	require.Equal(t, []any{"hand-over", "project/red"}, []any{out.Operation.Kind, out.Operation.Holder})
	p := r.call(r.admin, http.MethodPut, "/api/v1/projects/red", api.ProjectPut{MultiRegionPolicy: policyOf("test", "us")}).problem(t)
	require.Equal(t, []any{http.StatusMisdirectedRequest, "us"}, []any{p.Status, p.Owner})
	p = r.call(r.admin, http.MethodPut, "/api/v1/templates/t", api.TemplatePut{Project: "red", Base: []byte(`{}`)}).problem(t)
	require.Equal(t, []any{http.StatusMisdirectedRequest, "us"}, []any{p.Status, p.Owner})
	pool := `{"kind":"Pool","name":"a","project":"red","spec":{}}`
	require.Zero(t, r.apply(many(`"applySet":"line"`, pool)).Failed)
	prune := r.plan(many(`"applySet":"line","prune":true`, pool))
	require.Equal(t, "a unchanged, old refused", actions(prune))
	require.Equal(t, "us", planOf(t, prune, "old").Problem.Owner)

	// A write of the policy is the same.
	r.put("/api/v1/organizations/acme", api.OrganizationPut{MultiRegionPolicy: policyOf("test", "us")})
	r.put("/api/v1/organizations/acme", api.OrganizationPut{MultiRegionPolicy: policyOf("us", "test")})
	require.Equal(t, http.StatusMisdirectedRequest, r.call(r.admin, http.MethodDelete, "/api/v1/organizations/acme", nil).status)
}
