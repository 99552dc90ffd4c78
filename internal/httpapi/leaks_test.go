package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	hiddenName  = "hidden-thing"
	missingName = "absent-thing"
)

// digestMember is of a plan, and of the names in it.
var digestMember = regexp.MustCompile(`"digest":"[0-9a-f]*",`)

// withHidden is a region in which project blue has one object of each kind under hiddenName. red is the token of
// an administrator of another project, hidden the id of an operation of blue.
func withHidden(t *testing.T) (r *region, red, hidden string) {
	t.Helper()
	r = setup(t)
	r.site()
	red = r.token("admin", "red")
	blue := r.token("admin", "blue")
	r.put("/api/v1/projects/"+hiddenName, nil)
	r.put("/api/v1/sites/"+hiddenName, api.SitePut{Project: "blue", Nodes: []api.SiteNode{{Name: hiddenName, Role: fleet.RoleActive}, {Name: "hidden-b", Role: fleet.RoleStandby}}})
	r.put("/api/v1/pools/"+hiddenName, `{"project":"blue","sites":["`+hiddenName+`"]}`)
	for path, body := range map[string]string{
		"templates/" + hiddenName:               `{"base":{}}`,
		"sites/plant-1/instances/" + hiddenName: `{"config":{}}`,
		"deployments/" + hiddenName:             `{"command":["x"],"health":{"type":"none"}}`,
	} {
		a := r.call(blue, http.MethodPut, "/api/v1/"+path, body)
		require.Less(t, a.status, 300, string(a.body))
		if op := into[api.Accepted](t, a).Operation; op != nil {
			hidden = op.ID
		}
	}
	return r, red, hidden
}

// pathsOf gives the paths of an operation of the document with a thing at its place.
func pathsOf(template, name, id string) (paths []string) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(template, "/api/v1/"), "/")
	switch {
	case strings.Contains(template, "{site}") && strings.Contains(template, "{name}"):
		paths = append(paths, strings.NewReplacer("{site}", "plant-1", "{name}", name).Replace(template))
		return append(paths, strings.NewReplacer("{site}", name, "{name}", "press").Replace(template))
	case kind == "operations":
		return []string{strings.Replace(template, "{id}", id, 1)}
	}
	return []string{strings.NewReplacer("{site}", name, "{name}", name, "{id}", "0123456789ab").Replace(template)}
}

// X10, X19: what is of another project reads as what does not exist, at each operation that names something.
func TestHiddenIsMissing(t *testing.T) {
	t.Parallel()
	r, red, hidden := withHidden(t)
	missing := strings.Repeat("0", len(hidden))
	same := func(t *testing.T, method, path, body string) (status int) {
		t.Helper()
		answer := func(name, id string) (int, string) {
			of := strings.NewReplacer(hiddenName, name, hidden, id)
			a := r.call(red, method, of.Replace(path), of.Replace(body), "Content-Type", "application/json")
			return a.status, digestMember.ReplaceAllString(strings.NewReplacer(name, "X", id, "X").Replace(string(a.body)), "")
		}
		foreign, said := answer(hiddenName, hidden)
		none, saidNone := answer(missingName, missing)
		require.Equal(t, none, foreign, "%s %s: %s", method, path, said)
		require.Equal(t, saidNone, said, "%s %s", method, path)
		require.NotContains(t, said, "blue")
		return foreign
	}

	t.Run("at each path", func(t *testing.T) {
		bodies := map[string]string{"scale-deployment": `{"replicas":1}`, "drain-node": `{"deadlineSeconds":10}`, "approve-orphans": `{"replicas":["0123456789ab"]}`}
		seen := 0
		for template, item := range r.server.Document().Paths {
			if !strings.Contains(template, "{") {
				continue
			}
			for _, path := range pathsOf(template, hiddenName, hidden) {
				if item.Get != nil {
					require.NotEqual(t, http.StatusOK, same(t, http.MethodGet, path, ""), path)
					seen++
				}
				if item.Post != nil {
					require.GreaterOrEqual(t, same(t, http.MethodPost, path, bodies[item.Post.OperationID]), 400, path)
					seen++
				}
				if item.Delete != nil {
					require.GreaterOrEqual(t, same(t, http.MethodDelete, path, ""), 400, path)
					seen++
				}
				if item.Put != nil && strings.Contains(path, hiddenName+"/instances/") {
					require.Equal(t, http.StatusNotFound, same(t, http.MethodPut, path, `{"config":{}}`))
					seen++
				}
			}
		}
		require.Greater(t, seen, 50)
	})

	t.Run("in what refers to it", func(t *testing.T) {
		const instance = "/api/v1/sites/plant-1/instances/mine"
		for path, bodies := range map[string][]string{
			instance:                    {`{"template":"hidden-thing"}`, `{"template":"hidden-thing","overrides":{}}`, `{"config":{},"project":"hidden-thing"}`},
			"/api/v1/templates/mine":    {`{"base":{},"compositions":["hidden-thing"]}`},
			"/api/v1/deployments/mine":  {`{"command":["x"],"health":{"type":"none"},"placement":{"sites":["hidden-thing"]}}`, `{"command":["x"],"health":{"type":"none"},"placement":{"pools":["hidden-thing"]}}`},
			"/api/v1/fleets/mine":       {`{"change":{"template":"hidden-thing"},"selector":{"sites":["plant-1"]}}`},
			"/api/v1/fleets/mine-sites": {`{"change":{"patch":{}},"selector":{"sites":["hidden-thing"]}}`},
		} {
			for _, body := range bodies {
				require.GreaterOrEqual(t, same(t, http.MethodPut, path, body), 400, body)
			}
		}
		for _, object := range []string{
			`{"kind":"Instance","site":"hidden-thing","name":"mine","spec":{"config":{}}}`,
			`{"kind":"Instance","site":"plant-1","name":"mine","spec":{"template":"hidden-thing"}}`,
			`{"kind":"Template","name":"mine","spec":{"base":{},"compositions":["hidden-thing"]}}`,
			`{"kind":"Template","name":"mine","project":"hidden-thing","spec":{"base":{}}}`,
			`{"kind":"Deployment","name":"mine","spec":{"command":["x"],"health":{"type":"none"},"placement":{"pools":["hidden-thing"]}}}`,
		} {
			for _, path := range []string{"/api/v1/plan", "/api/v1/apply"} {
				same(t, http.MethodPost, path, `{"objects":[`+object+`]}`)
			}
		}
	})

	t.Run("in lists that are narrowed to it", func(t *testing.T) {
		for _, path := range []string{
			"nodes?site=hidden-thing", "operations?site=hidden-thing", "operations?node=hidden-thing", "operations?fleet=hidden-thing",
			"operations?deployment=hidden-thing", "operations?site=plant-1&instance=hidden-thing", "replicas?deployment=hidden-thing",
			"replicas?node=hidden-thing", "events?project=hidden-thing", "sites?project=hidden-thing",
		} {
			same(t, http.MethodGet, "/api/v1/"+path, "")
		}
	})

	t.Run("a name that is taken says by which kind, and not by whom", func(t *testing.T) {
		for path, body := range map[string]string{
			"templates/" + hiddenName: `{"base":{}}`, "sites/plant-1/instances/" + hiddenName: `{"config":{}}`,
			"deployments/" + hiddenName: `{"command":["x"],"health":{"type":"none"}}`,
		} {
			a := r.call(red, http.MethodPut, "/api/v1/"+path, body)
			require.Equal(t, http.StatusConflict, a.status, string(a.body))
			require.NotContains(t, string(a.body), "blue")
		}
	})
}

// X10: the place where a list goes on names nothing of another project.
func TestCursorsNameWhatIsListed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	red := r.token("viewer", "red")
	r.token("viewer", "blue")
	for site, project := range map[string]string{"a-red": "red", "b-blue": "blue", "c-red": "red", "d-blue": "blue"} {
		put := pair(site)
		put.Project = project
		r.put("/api/v1/sites/"+site, put)
	}
	for _, kind := range []string{"nodes", "sites"} {
		var names []string
		cursor := ""
		for {
			page := into[api.List[struct{ Name string }]](t, r.call(red, http.MethodGet, "/api/v1/"+kind+"?limit=1&cursor="+cursor, nil))
			for _, n := range page.Items {
				names = append(names, n.Name)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
			place, err := base64.RawURLEncoding.DecodeString(cursor)
			require.NoError(t, err)
			require.Len(t, page.Items, 1, "a page that is short says that something is left out")
			require.Equal(t, page.Items[0].Name, string(place))
		}
		want := map[string][]string{"nodes": {"a-red-a", "a-red-b", "c-red-a", "c-red-b"}, "sites": {"a-red", "c-red"}}
		require.Equal(t, want[kind], names)
	}
}

// X10, X19, X23: an Idempotency-Key is one token's own, whatever the note of another, and whenever that was made.
func TestKeysAreOfOneToken(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	blue, red, again := r.token("operator", "blue"), r.token("operator", "red"), r.token("operator", "blue")
	a := r.call(blue, http.MethodPut, press7Path, `{"config":{}}`)
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	enable := func(token string) reply {
		return r.call(token, http.MethodPost, press7Path+"/enable", `{}`, "Idempotency-Key", "k")
	}
	first := into[api.Accepted](t, enable(blue)).Operation
	require.Equal(t, first.ID, into[api.Accepted](t, enable(blue)).Operation.ID)

	got := enable(red)
	require.Equal(t, http.StatusNotFound, got.status, string(got.body))
	require.NotContains(t, string(got.body), first.ID)
	second := into[api.Accepted](t, enable(again)).Operation
	require.NotEqual(t, first.ID, second.ID, "the same project by another token is another caller")
	require.NotEqual(t, first.RequestedBy, second.RequestedBy)

	tokens := into[api.List[api.Token]](t, r.call(r.admin, http.MethodGet, "/api/v1/tokens?project=blue", nil)).Items
	require.Len(t, tokens, 2)
	require.Equal(t, tokens[0].ID[:8], tokens[1].ID[:8], "they were made at nearly the same time")
	require.ElementsMatch(t, []string{"operator@" + tokens[0].ID, "operator@" + tokens[1].ID}, []string{first.RequestedBy, second.RequestedBy})
}

// X19: a small text with aliases of aliases is refused before it is written out.
func TestYAMLBombIsRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	a := r.call(r.operator, http.MethodPost, "/api/v1/plan", text, "Content-Type", "application/yaml")
	require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
	require.Contains(t, string(a.body), "aliases")
}

// X19: names of the environment hold nothing that reads as another variable.
func TestEnvironmentNames(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	for _, name := range []string{"A\nLD_PRELOAD=/tmp/x", "A\nB", "A=B", "A\x00", "A\x1b[2J", "1A", "", "A B", "Ä", strings.Repeat("A", 300)} {
		text, err := json.Marshal(map[string]string{name: "v"})
		require.NoError(t, err)
		mark, err := json.Marshal([]string{name})
		require.NoError(t, err)
		for path, body := range map[string]string{
			press7Path:                   `{"config":{},"run":{"command":["x"],"env":` + string(text) + `}}`,
			press7Path + "?deploy=false": `{"config":{},"secretEnv":` + string(mark) + `}`,
			webPath:                      `{"command":["x"],"health":{"type":"none"},"env":` + string(text) + `}`,
			webPath + "?deploy=false":    `{"command":["x"],"health":{"type":"none"},"secretEnv":` + string(mark) + `}`,
		} {
			a := r.call(r.operator, http.MethodPut, path, body)
			require.Equal(t, http.StatusBadRequest, a.status, "%q: %s", name, a.body)
		}
	}
	r.put(press7Path, `{"config":{},"run":{"command":["x"],"env":{"PATH":"/bin","a_1":"","spring.config-name":"x"}}}`)
}
