package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestProblems(t *testing.T) {
	t.Parallel()

	t.Run("have a status for every kind", func(t *testing.T) {
		t.Parallel()
		for _, kind := range fleet.Kinds() {
			p := ProblemFor(fleet.Errorf(kind, "what"))
			require.Equal(t, problemStatus[kind], p.Status)
			require.GreaterOrEqual(t, p.Status, 400, kind)
			require.Equal(t, api.ProblemPrefix+string(kind), p.Type)
		}
		require.Len(t, problemStatus, len(fleet.Kinds()))
	})

	t.Run("keep internal details to themselves", func(t *testing.T) {
		t.Parallel()
		p := ProblemFor(fleet.Errorf(fleet.Internal, "password is hunter2: %w", io.ErrClosedPipe))
		require.NotContains(t, p.Detail+p.Hint, "hunter2")
		require.Equal(t, http.StatusInternalServerError, ProblemFor(io.ErrClosedPipe).Status)
	})

	t.Run("are read back by the client as the kind that they had", func(t *testing.T) {
		t.Parallel()
		for _, kind := range fleet.Kinds() {
			sent := httptest.NewRecorder()
			WriteProblem(sent, ProblemFor(fleet.Errorf(kind, "what").At("/a").WithHint("do")))
			require.Equal(t, kind, fleet.KindOf(api.ReadRefusal(sent.Result())))
		}
	})
}
