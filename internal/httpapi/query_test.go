package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// documented is one operation of the OpenAPI document, with a path that fits it.
type documented struct {
	*huma.Operation
	path string
}

func (r *region) documented() []documented {
	fill := strings.NewReplacer("{id}", strings.Repeat("0", 32), "{site}", "plant-1", "nodes/{name}", "nodes/plant-1-a")
	var all []documented
	paths := r.server.Document().Paths
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Head, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			at := fill.Replace(path)
			for strings.Contains(at, "{") {
				before, rest, _ := strings.Cut(at, "{")
				_, after, _ := strings.Cut(rest, "}")
				at = before + "some" + after
			}
			all = append(all, documented{op, at})
		}
	}
	return all
}

// wantedOf is what is wanted of the formats of parameters.
var wantedOf = map[string]string{
	"name": "1 to 63 of a-z, 0-9 and '-', a letter or digit first and last", "replica": "the id of a replica, 12 hex digits",
	"sha256": "a SHA-256 in 64 lower-case hex digits", "cursor": serve.WantCursor, "event-id": "the id of an event, as it was sent",
	"wait": "a duration from 0s to 60s",
}

// nonsense is a value that a parameter of this schema cannot have, and words that say what it can.
func nonsense(s *huma.Schema) (value string, allowed []string) {
	switch {
	case s.Type == huma.TypeBoolean:
		return "perhaps", []string{"true", "false"}
	case s.Type == huma.TypeInteger && s.Maximum != nil:
		return fmt.Sprint(int64(*s.Maximum) + 1), []string{fmt.Sprintf("a whole number from %d to %d", int64(*s.Minimum), int64(*s.Maximum))}
	case s.Type == huma.TypeInteger:
		return "abc", []string{"a whole number from 0"}
	case len(s.Enum) > 0:
		for _, word := range s.Enum {
			allowed = append(allowed, fmt.Sprint(word))
		}
		return "NONSENSE", allowed
	case s.Format != "":
		return "§ nonsense", []string{cmp.Or(wantedOf[s.Format], "a row for "+s.Format)}
	}
	return strings.Repeat("x", *s.MaxLength+1), []string{fmt.Sprintf("at most %d characters", *s.MaxLength)}
}

// X19: each query parameter of each operation is refused with its name, what was given and what is allowed,
// and so is one that the operation does not have.
func TestQueriesSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	before := r.rows()
	operations, params := 0, 0
	for _, op := range r.documented() {
		if op.Method == http.MethodHead { // has no body to answer with
			continue
		}
		operations++
		refused := func(query string) api.Problem {
			a := r.call(r.admin, op.Method, op.path+"?"+query, nil)
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+string(fleet.Invalid), p.Type, op.OperationID+": "+string(a.body))
			require.Equal(t, http.StatusBadRequest, p.Status)
			return p
		}
		p := refused("dryrun=true")
		require.Equal(t, "dryrun", p.Field, op.OperationID)
		require.Contains(t, p.Detail, `unknown query parameter "dryrun"`)
		for _, param := range op.Parameters {
			if param.In != "query" {
				continue
			}
			params++
			require.Contains(t, p.Detail, param.Name, op.OperationID)
			value, allowed := nonsense(param.Schema)
			wrong := refused(url.Values{param.Name: {value}}.Encode())
			require.Equal(t, param.Name, wrong.Field, op.OperationID)
			require.Contains(t, wrong.Detail, fmt.Sprintf("%s %.40q", param.Name, value), op.OperationID)
			for _, word := range allowed {
				require.Contains(t, wrong.Detail, word, op.OperationID)
			}
			twice := refused(url.Values{param.Name: {"1", "2"}}.Encode())
			require.Equal(t, param.Name, twice.Field, op.OperationID)
			require.Contains(t, twice.Detail, "once", op.OperationID)
		}
		require.Equal(t, "?", refused("dryRun=true;deploy=false").Field, op.OperationID)
	}
	require.Equal(t, before, r.rows(), "something was stored or started")
	require.Greater(t, operations, 90)
	require.Greater(t, params, 90)
}

// X19: in the words that people read.
func TestQueryMistakes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	for _, c := range []struct{ method, path, field, detail string }{
		{"PUT", press7Path + "?dryrun=true", "dryrun", `unknown query parameter "dryrun"; use dryRun, region, deploy or project`},
		{"GET", press7Path + "?x", "x", `unknown query parameter "x"; use region or project`},
		{"PUT", press7Path + "?dryRun=perhaps", "dryRun", `invalid dryRun "perhaps": want true or false`},
		{"PUT", press7Path + "?dryRun", "dryRun", `invalid dryRun "": want true or false`},
		{"PUT", press7Path + "?dryRun=true&dryRun=false", "dryRun", "query parameter dryRun is given 2 times; give it once"},
		{"PUT", press7Path + "?dryRun=%zz", "?", "malformed query string: want name=value pairs, percent-encoded and separated by &"},
		{"GET", "/api/v1/sites?limit=abc", "limit", `invalid limit "abc": want a whole number from 1 to 1000`},
		{"GET", "/api/v1/sites?limit=0", "limit", `invalid limit "0": want a whole number from 1 to 1000`},
		{"GET", "/api/v1/events?limit=1001", "limit", `invalid limit "1001": want a whole number from 1 to 1000`},
		{"GET", "/api/v1/events?after=now", "after", `invalid after "now": want the id of an event, as it was sent`},
		{"GET", "/api/v1/operations?state=done", "state", `invalid state "done": want running, succeeded, failed, unknown, cancelled or superseded`},
		{"GET", "/api/v1/operations?site=Plant_1", "site", `invalid site "Plant_1": want 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last`},
		{"GET", "/api/v1/operations?cursor=cHJlc3M", "cursor", `invalid cursor "cHJlc3M": want "next" of the page before, of the same list`},
		{"GET", "/api/v1/refusals?identity=a%00b", "identity", `invalid identity "a\x00b": want UTF-8 without a zero byte`},
		{"GET", "/api/v1/operations/" + strings.Repeat("0", 32) + "?wait=61s", "wait", `invalid wait "61s": want a duration from 0s to 60s`},
		{"GET", press7Path + "/config?revision=first", "revision", `invalid revision "first": want deployed or desired`},
		{"POST", "/api/v1/artifacts?size=-1", "size", `invalid size "-1": want a whole number from 0 to 9223372036854775807`},
		{"POST", "/api/v1/artifacts?resumable=yes", "resumable", `invalid resumable "yes": want true or false`},
		{"POST", "/api/v1/artifacts?sha256=abc", "sha256", `invalid sha256 "abc": want a SHA-256 in 64 lower-case hex digits`},
	} {
		t.Run(c.path, func(t *testing.T) {
			p := r.call(r.admin, c.method, c.path, nil).problem(t)
			require.Equal(t, []string{c.field, c.detail}, []string{p.Field, p.Detail})
		})
	}

	t.Run("leaves out what is empty", func(t *testing.T) {
		require.Equal(t, http.StatusOK, r.get("/api/v1/operations?state=&site=&cursor=").status)
	})

	t.Run("asks who calls first", func(t *testing.T) {
		for path, status := range map[string]int{press7Path + "?dryrun=true": http.StatusForbidden, "/api/v1/artifacts?x=1": http.StatusForbidden} {
			method := http.MethodPut
			if strings.Contains(path, "artifacts") {
				method = http.MethodPost
			}
			require.Equal(t, status, r.call(r.viewer, method, path, nil).status)
		}
	})
}
