package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// namedRegion is a region that another one owns everything in, or that owns everything. It counts tokens that are not its own.
type namedRegion struct {
	*httptest.Server
	mu      sync.Mutex
	changes []string
	strange int
}

func newNamedRegion(t *testing.T, name, owner string) *namedRegion {
	t.Helper()
	r := &namedRegion{}
	refusal := fleet.OwnedBy(fleet.CopyKey{Region: "eu", ObjectKey: fleet.TemplateKey("press")}, owner)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case req.Header.Get("Authorization") != "Bearer token-of-"+name:
			r.strange++
			refuse(w, http.StatusUnauthorized, fleet.Unauthenticated, "the token is not valid", "")
		case req.URL.Path == "/api/v1/regions":
			status, _ := json.Marshal(api.RegionStatus{Self: true})
			reply(w, http.StatusOK, api.List[api.Object]{Items: []api.Object{{Kind: "region", Name: "other"}, {Kind: "region", Name: name, Status: status}}})
		case req.Method == http.MethodGet && req.URL.Path == "/api/v1/operations/"+op1:
			reply(w, http.StatusOK, api.Operation{ID: op1, Kind: "hand-over", State: fleet.OperationSucceeded})
		case owner != name:
			p := serve.ProblemFor(refusal)
			p.OwnerAddress = "http://stolen.example"
			serve.WriteProblem(w, p)
		default:
			r.changes = append(r.changes, req.Method+" "+req.URL.Path+" of "+req.URL.Query().Get("region"))
			out := api.Accepted{Object: &api.Object{Kind: "template", Name: "press", Generation: 7}}
			if req.Method == http.MethodPost {
				out = api.Accepted{Operation: &api.Operation{ID: op1, Kind: "hand-over", State: fleet.OperationRunning}}
			}
			reply(w, http.StatusOK, out)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// M39: a change of what another region owns continues with the user's own context for that region, once, and no token of a
// context is sent to another address.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	manifest := write(t, "t.yaml", "kind: Template\nname: press\nspec: {base: {v: 1}}\n")
	setup := func(t *testing.T, owner string, declared bool) (s *shell, eu, us *namedRegion) {
		t.Helper()
		eu, us = newNamedRegion(t, "eu", "us"), newNamedRegion(t, "us", owner)
		s = newShell(t, nil)
		s.ok("context", "set", "another", "--address", newNamedRegion(t, "ap", "ap").URL, "--token", "token-of-ap")
		add := []string{"context", "set", "friends", "--address", us.URL, "--token", "token-of-us"}
		if declared {
			add = append(add, "--region", "us")
		}
		s.ok(add...)
		s.ok("context", "set", "home", "--address", eu.URL, "--token", "token-of-eu")
		s.env[envToken] = "token-of-eu"
		return s, eu, us
	}
	t.Run("each change", func(t *testing.T) {
		t.Parallel()
		s, eu, us := setup(t, "us", false)
		got := s.ok("apply", "-f", manifest)
		require.Equal(t, "template/press is owned by us; continuing with context friends\n", got.stderr)
		require.Equal(t, "template/press applied, generation 7\n", got.stdout)
		require.Contains(t, s.ok("delete", "template", "press", "-o", "json").stdout, `"context": "friends"`)
		require.Contains(t, s.ok("region", "handover", "project/press", "--to", "ap").stdout, "succeeded")
		s.ok("region", "apply-policy", "project/press")
		require.Equal(t, []string{
			"PUT /api/v1/templates/press of eu", "DELETE /api/v1/templates/press of eu",
			"POST /api/v1/projects/press/hand-over of eu", "POST /api/v1/projects/press/apply-policy of eu",
		}, us.changes)
		require.Equal(t, []int{0, 0}, []int{eu.strange, us.strange})
	})
	t.Run("with a context that names its region, whose server is not asked", func(t *testing.T) {
		t.Parallel()
		s, _, us := setup(t, "us", true)
		s.ok("context", "set", "another", "--address", "http://127.0.0.1:1", "--token", "x")
		s.ok("context", "use", "home")
		require.NotContains(t, s.ok("apply", "-f", manifest).stderr, "another")
		require.Len(t, us.changes, 1)
		require.Regexp(t, `friends +no +us +http`, s.ok("context", "list").stdout)
		s.ok("context", "set", "friends", "--address", "http://127.0.0.1:1")
		require.NotRegexp(t, `friends +yes +us`, s.ok("context", "list").stdout, "a region belongs to an address")
	})
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		s, _, _ := setup(t, "eu", false)
		got := s.run("apply", "-f", manifest)
		require.Equal(t, exitConflict, got.code)
		require.Contains(t, got.stderr, "region eu owns template/press")
	})
	t.Run("not with a version of this region", func(t *testing.T) {
		t.Parallel()
		s, _, us := setup(t, "us", false)
		got := s.run("apply", "-f", manifest, "--if-match", "4")
		require.Equal(t, exitConflict, got.code)
		require.Contains(t, got.stderr, "read the object there")
		require.Empty(t, us.changes)
	})
	t.Run("not without a context", func(t *testing.T) {
		t.Parallel()
		s, _, us := setup(t, "us", false)
		s.ok("context", "delete", "friends")
		got := s.run("apply", "-f", manifest)
		require.Equal(t, exitConflict, got.code)
		require.Contains(t, got.stderr, "holdfast context set us --address URL --token - --region us")
		require.Zero(t, us.strange)
	})
}

// M39: the region that created an object is a flag, or a field of its manifest.
func TestNamedByRegion(t *testing.T) {
	t.Parallel()
	us := newNamedRegion(t, "us", "us")
	s := newShell(t, nil)
	s.env[envAddress], s.env[envToken] = us.URL, "token-of-us"
	two := write(t, "t.yaml", "kind: Template\nname: press\nspec: {base: {}}\n---\nkind: Template\nname: press\nregion: eu\nspec: {base: {}, compositions: [base]}\n---\nkind: Template\nname: base\nregion: eu\nspec: {base: {}}\n")
	s.ok("apply", "-f", two)
	s.ok("delete", "pool", "north", "--region", "ap")
	require.Equal(t, []string{
		"PUT /api/v1/templates/press of ", "PUT /api/v1/templates/base of eu", "PUT /api/v1/templates/press of eu", "DELETE /api/v1/pools/north of ap",
	}, us.changes)
	for _, args := range [][]string{
		{"plan", "-f", two},
		{"apply", "-f", two, "--apply-set", "a"},
		{"apply", "-f", write(t, "b.yaml", "kind: Pool\nname: a\nregion: A\n")},
		{"apply", "--region", "eu", "--apply-set", "a", "-f", two},
		{"delete", "replica", "web/0af3c21b9d44", "--region", "eu"},
		{"context", "set", "x", "--address", "http://x.example", "--region", "-"},
	} {
		got := s.run(args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, "region")
	}
}
