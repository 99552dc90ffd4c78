package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// X10, X14: what the caller is not told is in the log, so that an operator can find it.
func TestFailureIsLoggedWithItsCause(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.store.Close()
	a := r.call(r.viewer, http.MethodGet, "/api/v1/sites", nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotContains(t, string(a.body), "closed pool")
	require.Contains(t, r.log.String(), "closed pool")
}
