package httpapi

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

func TestTokenLists(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/projects/line-a", nil)
	want := map[string][]string{}
	for i := range 7 {
		in := api.TokenRequest{Role: "viewer", Note: fmt.Sprint(i)}
		if i%2 == 0 {
			in.Project = "line-a"
		}
		a := r.call(r.admin, http.MethodPost, "/api/v1/tokens", in)
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		made := into[api.Token](t, a)
		want["/api/v1/tokens?"] = append([]string{made.ID}, want["/api/v1/tokens?"]...)
		if in.Project != "" {
			want["/api/v1/tokens?project=line-a&"] = append([]string{made.ID}, want["/api/v1/tokens?project=line-a&"]...)
		}
		a = r.call(r.admin, http.MethodPost, "/api/v1/join-tokens", api.JoinTokenRequest{Site: "plant-1", Node: "plant-1-a"})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		want["/api/v1/join-tokens?"] = append([]string{into[api.Token](t, a).ID}, want["/api/v1/join-tokens?"]...)
	}
	// Rows of one moment are told apart by their id.
	r.sql(`UPDATE join_tokens SET created_at = (SELECT min(created_at) FROM join_tokens)`)

	for path, ids := range want {
		t.Run("page through "+path, func(t *testing.T) {
			var got []string
			for cursor, pages := "", 0; pages < 10; pages++ {
				a := r.call(r.admin, http.MethodGet, path+"limit=3&cursor="+cursor, nil)
				require.Equal(t, http.StatusOK, a.status, string(a.body))
				l := into[api.List[api.Token]](t, a)
				require.LessOrEqual(t, len(l.Items), 3)
				for _, i := range l.Items {
					if i.Note != "admin" && i.Note != "operator" && i.Note != "viewer" { // of the bench
						got = append(got, i.ID)
					}
				}
				if cursor = l.Next; cursor == "" {
					break
				}
			}
			require.ElementsMatch(t, ids, got, "each once")
			if path != "/api/v1/join-tokens?" {
				require.Equal(t, ids, got, "newest first")
			}
		})
		t.Run("refuse a cursor that is none at "+path, func(t *testing.T) {
			a := r.call(r.admin, http.MethodGet, path+"cursor=bm9uZQ", nil)
			require.Equal(t, "cursor", a.problem(t).Field)
		})
	}
}

// A project is deleted only when nothing would be left to the next one of its name.
func TestDeleteProject(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.token("operator", "red")
	r.put("/api/v1/templates/base?project=red", `{"project":"red","base":{}}`)
	p := r.call(r.admin, http.MethodDelete, "/api/v1/projects/red", nil).problem(t)
	require.Equal(t, []any{http.StatusUnprocessableEntity, "project red still has 1 template, 1 token"}, []any{p.Status, p.Detail})
	require.Contains(t, p.Hint, "holdfast token list")
}
