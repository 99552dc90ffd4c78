package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	r := setup(t)
	a := r.call("", http.MethodGet, "/openapi.json", nil)
	require.Equal(t, http.StatusOK, a.status)
	type operation struct {
		RequestBody struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				}
			}
		}
		Parameters []struct{ Name, In string }
	}
	doc := into[struct {
		OpenAPI    string
		Paths      map[string]map[string]operation
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}](t, a)
	require.Equal(t, "3.1.0", doc.OpenAPI)

	t.Run("shows the body of an instance, however it is read", func(t *testing.T) {
		put := doc.Paths[instancePath]["put"]
		require.Equal(t, "#/components/schemas/InstancePut", put.RequestBody.Content["application/json"].Schema.Ref)
		for _, name := range []string{"config", "template", "overrides", "artifact", "run"} {
			require.Contains(t, doc.Components.Schemas["InstancePut"].Properties, name)
		}
		var names []string
		for _, p := range put.Parameters {
			names = append(names, p.In+" "+p.Name)
		}
		require.ElementsMatch(t, []string{
			"path site", "path name", "header If-Match", "header Idempotency-Key", "query dryRun", "query region", "query deploy", "query project",
		}, names)
	})

	t.Run("shows how nodes are compared", func(t *testing.T) {
		approve := doc.Paths["/api/v1/nodes/{name}/orphans/approve"]["post"]
		require.Equal(t, "#/components/schemas/OrphanApproval", approve.RequestBody.Content["application/json"].Schema.Ref)
		require.Contains(t, doc.Components.Schemas["Operation"].Properties, "node")
		for _, p := range doc.Paths["/api/v1/nodes/{name}/reconcile"]["post"].Parameters {
			require.NotEqual(t, "If-Match", p.Name, "there is no object to match")
		}
	})

	t.Run("shows fleet changes", func(t *testing.T) {
		put := doc.Paths[fleetPath]["put"]
		require.Equal(t, "#/components/schemas/FleetPut", put.RequestBody.Content["application/json"].Schema.Ref)
		for _, name := range []string{"change", "selector", "waves", "windows", "errorThreshold", "deadlineSeconds"} {
			require.Contains(t, doc.Components.Schemas["FleetPut"].Properties, name)
		}
		require.Contains(t, doc.Components.Schemas["Operation"].Properties, "fleetRun")
		for _, turn := range api.FleetTurns() {
			require.Contains(t, doc.Paths[fleetPath+"/"+turn.Verb], "post")
		}
	})

	t.Run("shows deployments", func(t *testing.T) {
		put := doc.Paths[deploymentPath]["put"]
		require.Equal(t, "#/components/schemas/DeploymentPut", put.RequestBody.Content["application/json"].Schema.Ref)
		for _, name := range []string{"type", "command", "image", "env", "files", "ports", "health", "startup", "resources", "replicas", "placement", "state", "recovery", "secretEnv"} {
			require.Contains(t, doc.Components.Schemas["DeploymentPut"].Properties, name)
		}
		for _, name := range []string{"interval", "timeout", "unhealthy_threshold", "healthy_threshold", "path", "method"} { // S87
			require.Contains(t, doc.Components.Schemas["HealthCheck"].Properties, name)
		}
		for _, verb := range []string{"deploy", "restart", "scale"} {
			require.Contains(t, doc.Paths[deploymentPath+"/"+verb], "post")
		}
		require.Equal(t, "#/components/schemas/ScaleRequest", doc.Paths[deploymentPath+"/scale"]["post"].RequestBody.Content["application/json"].Schema.Ref)
		require.Contains(t, doc.Components.Schemas["Operation"].Properties, "deployment")
		require.Contains(t, doc.Components.Schemas["PoolPut"].Properties, "maxReplicas")
	})

	t.Run("shows every cause that an explanation may name", func(t *testing.T) { // S95
		var codes []any
		for _, rule := range causeRules {
			codes = append(codes, rule.code)
		}
		code, _ := doc.Components.Schemas["Cause"].Properties["code"].(map[string]any)
		require.ElementsMatch(t, codes, code["enum"])
	})

	t.Run("shows plan and apply", func(t *testing.T) {
		for _, path := range []string{planPath, applyPath} {
			content := doc.Paths[path]["post"].RequestBody.Content
			require.Equal(t, "#/components/schemas/PlanRequest", content["application/json"].Schema.Ref)
			require.Contains(t, content, "application/yaml")
		}
		for _, name := range []string{"objects", "applySet", "prune", "plan"} {
			require.Contains(t, doc.Components.Schemas["PlanRequest"].Properties, name)
		}
		require.Contains(t, doc.Components.Schemas["Plan"].Properties, "wouldPrune")
		require.Contains(t, doc.Components.Schemas["Applied"].Properties, "failed")
	})

	t.Run("has every path that users may call", func(t *testing.T) {
		walked := 0
		err := chi.Walk(r.routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if strings.HasPrefix(route, "/api/v1/") {
				walked++
				require.Contains(t, doc.Paths[route], strings.ToLower(method), route)
			}
			return nil
		})
		require.NoError(t, err)
		require.Greater(t, walked, 35)
	})
}
