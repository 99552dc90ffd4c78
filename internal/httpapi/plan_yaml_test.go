//go:build !race

package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

func TestPlanOfYAML(t *testing.T) {
	t.Parallel()
	// Reading YAML takes all there is, and gives it back before the configs are flattened.
	r := setup(t, func(d *Deps) { d.Flatten = compose.NewBudget(1) })
	body := "kind: Site\nname: plant-1\nspec: {nodes: [{name: plant-1-a, role: active}]}\n---\nkind: Instance\nname: press-7\nsite: plant-1\nspec:\n  config: {a: 0x10}\n"
	a := r.call(r.admin, http.MethodPost, planPath+"?applySet=line", body, "Content-Type", "application/yaml; charset=utf-8")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	p := into[api.Plan](t, a)
	require.Equal(t, "plant-1 create, press-7 create", actions(p))
	require.Equal(t, "line", p.ApplySet)
	require.Equal(t, compose.HashOf([]byte(`{"a":16}`)), p.Objects[1].Hash)
	a = r.call(r.admin, http.MethodPost, applyPath, "kind: [", "Content-Type", "application/yaml")
	require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
	aliases := "kind: Template\nname: t\nspec:\n  base:\n    a: &a [" + strings.Repeat("x,", sized.Many(500_000)) + "x]\n    b: [" + strings.Repeat("*a,", 100) + "*a]\n"
	a = r.call(r.admin, http.MethodPost, planPath, aliases, "Content-Type", "application/yaml")
	require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, a.status)
	a = r.call(r.admin, http.MethodPost, planPath, strings.Repeat("#", 8<<20+1), "Content-Type", "application/yaml")
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	require.Zero(t, r.rows()["objects"])
}
