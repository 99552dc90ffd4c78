package peers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// M32, M38: nothing is taken from a peer whose database went back: to a lower era, or to another one of the same number. An era
// that is raised above all that was seen ends that.
func TestEras(t *testing.T) {
	t.Parallel()
	w := newWorld()
	eu, us := w.region(t, "eu"), w.region(t, "us")
	us.join(eu)
	us.run()
	us.knows("eu")
	db, err := pgx.Connect(t.Context(), eu.url)
	require.NoError(t, err)
	defer func() { _ = db.Close(t.Context()) }()
	raise := func() {
		t.Helper()
		_, err := postgres.RaiseEra(t.Context(), eu.url, "eu")
		require.NoError(t, err)
	}
	refused := func(change string) {
		t.Helper()
		_, err := db.Exec(t.Context(), change)
		require.NoError(t, err)
		p := us.peer("eu")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL("/peer/v1/members"), nil)
		require.NoError(t, err)
		res, err := p.Client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		require.ErrorContains(t, err, "went back")
		require.Eventually(t, func() bool {
			p := us.peer("eu")
			return strings.Contains(p.Problem, "went back") && !p.Reachable
		}, patience, 10*time.Millisecond)
	}
	refused(`UPDATE region SET era_id = gen_random_uuid()`)
	raise()
	us.knows("eu")
	refused(`WITH undone AS (DELETE FROM eras) UPDATE region SET era = 1`)
	raise()
	refused(`SELECT 1`) // the same number once more
	raise()
	us.knows("eu")
}
