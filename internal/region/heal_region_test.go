package region

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/workflows"
)

const healSite = fleet.SiteName("plant")

// healNow is what signatures of nodes are dated by; the region's time is the database's.
var healNow = time.Now

// healRegion is the region's real half: its database, its API, its activities. Many runs
// share it, one after another, each with an empty database.
type healRegion struct {
	pool    *pgxpool.Pool
	store   *store.Store
	server  *server
	handler *httpapi.Handler
	admin   string
	work    activities.Reconciles
	visits  activities.Instances
	batches activities.Batches
	fleets  activities.Fleets
	sweep   *operationsSweep
	clear   string   // empties the database
	shift   []string // lets time pass
	now     *healWorld
}

func openHealRegion(t *testing.T) *healRegion {
	t.Helper()
	ctx := t.Context()
	database := testkit.DatabaseURL(t)
	store, err := store.Open(ctx, database, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pool, err := pgxpool.New(ctx, database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := &healRegion{pool: pool, store: store}
	log := slog.New(slog.DiscardHandler)
	flows := &workflows.Client{Temporal: &healTemporal{region: r}}
	r.server = &server{store: store, flows: flows, log: log, cfg: ServerConfig{Timing: DefaultTiming()}}
	again := &waker{store: store, flows: flows}
	doors := &tellers{store: store, flows: flows}
	sealing, signs := tokens{32}, &signer{read: store.SigningKey, now: healNow}
	r.visits = activities.Instances{Store: store, Tokens: sealing, Signer: signs, Doors: doors, FetchBaseURL: healURL, Log: log}
	r.work = activities.Reconciles{
		Store: store, Passes: store, Entities: again, Doors: doors, Tokens: sealing, Signer: signs, BaseURL: healURL, TokenLife: workflows.DefaultPendingTTL,
	}
	none := func(context.Context) ([]string, error) { return nil, nil }
	r.sweep = &operationsSweep{store: store, flows: flows, waker: again, doors: doors, live: none, lately: none, closed: func([]fleet.OperationEnded) {}}
	limits := compose.DefaultLimits()
	budget := compose.NewBudget(int64(limits.MaxBytes))
	r.handler, err = httpapi.New(httpapi.Deps{
		Store: store, Waker: healCrowd{r, flows}, NodeStarted: r.server.nodeStarted,
		Flatten: budget, Limits: limits, Region: testkit.Region,
		PendingTTL: workflows.DefaultPendingTTL, OperationLimit: r.server.operationLimit(), Now: healNow, Log: log,
	})
	require.NoError(t, err)
	r.fleets = activities.Fleets{Store: &healWindows{store, r}, Doors: doors, Log: log}
	r.batches = activities.Batches{
		Maker: &batchMaker{store, declaration.New(store, testkit.Region, nil, budget, limits)}, Gatherer: &siteGatherer{store, again}, Store: store,
		Tokens: sealing, Signer: signs, Doors: doors, Log: log, FetchBaseURL: healURL,
	}
	var hash [32]byte
	r.admin, hash, err = identity.NewToken(32)
	require.NoError(t, err)
	_, err = store.AddAPIToken(ctx, keyring.APIToken{Hash: hash[:], Role: "admin", Note: "test", CreatedBy: "test"})
	require.NoError(t, err)
	r.readTables(t)
	return r
}

// readTables finds out how to empty the database, and which columns hold a time.
func (r *healRegion) readTables(t *testing.T) {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), `SELECT c.table_name::text, coalesce(string_agg(c.column_name || ' = ' || c.column_name || ' - make_interval(secs => $1)', ', ')
		FILTER (WHERE c.data_type = 'timestamp with time zone'), '') FROM information_schema.columns c
		JOIN information_schema.tables b USING (table_schema, table_name)
		WHERE c.table_schema = 'public' AND b.table_type = 'BASE TABLE' GROUP BY c.table_name ORDER BY c.table_name`)
	require.NoError(t, err)
	defer rows.Close()
	kept := " region schema_migrations api_tokens bodies body_chunks body_projects feed_horizon collection_places "
	var all strings.Builder
	for rows.Next() {
		var table, set string
		require.NoError(t, rows.Scan(&table, &set))
		if strings.Contains(kept, " "+table+" ") || strings.Contains(table, "migration") {
			continue
		}
		all.WriteString("DELETE FROM " + table + ";")
		if set != "" && table != "events" {
			r.shift = append(r.shift, "UPDATE "+table+" SET "+set)
		}
	}
	require.NoError(t, rows.Err())
	// Triggers and foreign keys sleep meanwhile: nothing happens, and the order does not matter.
	r.clear = "BEGIN; SET LOCAL session_replication_role = replica;" + all.String() + "COMMIT"
}

func (r *healRegion) empty(ctx context.Context) error {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, r.clear).ReadAll()
	return err
}

// pass lets time pass in the region: everything that it wrote down is so much older.
func (r *healRegion) pass(ctx context.Context, d time.Duration) error {
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // committed when all went well
	if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica"); err != nil {
		return err
	}
	for _, statement := range r.shift {
		if _, err := tx.Exec(ctx, statement, d.Seconds()); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// call is one request of an operator, who is never cut off.
func (r *healRegion) call(ctx context.Context, method, path string, body any) (int, api.Accepted) {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body) // plain structs
	}
	req := httptest.NewRequestWithContext(ctx, method, healURL+path, bytes.NewReader(text))
	req.Header.Set("Authorization", "Bearer "+r.admin)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	var out api.Accepted
	if w.Code < http.StatusMultipleChoices {
		_ = json.Unmarshal(w.Body.Bytes(), &out) // what is no change has another shape
	}
	return w.Code, out
}
