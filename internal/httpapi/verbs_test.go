package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// X20: each row is in the document, under an id of its own, and answers with an operation.
func TestVerbs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	type operation struct {
		OperationID string `json:"operationId"`
		Responses   map[string]any
	}
	doc := into[struct {
		Paths map[string]map[string]operation
	}](t, r.call("", http.MethodGet, "/openapi.json", nil))
	seen := map[string]bool{}
	for _, v := range verbs() {
		op := v.endpoint()
		shown := doc.Paths[op.Path][strings.ToLower(op.Method)]
		require.Equal(t, v.name+"-"+string(v.kind), shown.OperationID)
		require.Contains(t, shown.Responses, "202")
		require.False(t, seen[shown.OperationID], shown.OperationID)
		seen[shown.OperationID] = true
	}
}

// X8: an operation of any kind says what it waits for.
func TestWaitsForEntity(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fleet.OperationKind]string{
		fleet.OperationFailover: "waiting for the workflow of site plant-1",
		"inspect":               "waiting for the workflow of site plant-1",
		fleet.OperationExecute:  "waiting for its workflow to begin",
	} {
		reason, message := waitsForEntity(postgres.Operation{Kind: kind, Site: "plant-1", Subject: fleet.SiteSubject("plant-1")})
		require.Equal(t, []string{"queued", want}, []string{reason, message}, kind)
	}
}
