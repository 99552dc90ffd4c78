package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

const (
	compared = 10_000
	drifted  = compared / 100
	asks     = 20

	compareLimit = 50.0 // ms
	driftLimit   = 1.2
)

// seedSQL makes instances as though they had been delivered: that would take minutes.
//
//go:embed seed.sql
var seedSQL string

// measureReconcile compares a node that holds 10,000 instances: when all are equal, and when
// one in a hundred has changed, against fetching just those configs one by one.
func measureReconcile(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	db, err := r.postgres(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read and seeded
	c := &comparison{region: r, db: db}
	l.say("bringing %d instances to a node …", compared)
	rebuilt, err := c.fetches(ctx, "plant-1", 1, compared, 1)
	if err != nil {
		return nil, err
	}
	if c.store, err = openPlain(ctx, filepath.Join(l.dir, "alone.db"), plainKept); err != nil {
		return nil, err
	}
	defer c.store.Close() //nolint:errcheck // the lab's folder goes in the end
	if err := c.mayAsk(ctx); err != nil {
		return nil, err
	}
	var times, plain []time.Duration
	whole, err := l.inTurn(ctx, typical(asks, &times, c.asks), typical(asks, &plain, timed(c.plainAsks)))
	if err != nil {
		return nil, err
	}
	drift, err := l.inTurn(ctx, func(ctx context.Context, round int) (float64, error) {
		took, err := c.fetches(ctx, "plant-1", compared/drifted, compared, round+2)
		return inMillis(took), err
	}, c.plainFetches)
	return []figure{
		{
			name: "reconcile: expected set of 10,000, one round trip", unit: "ms", series: whole, by: byValue, limit: compareLimit,
			note: fmt.Sprintf("unchanged since the last time: %.1f ms", inMillis(quantile(c.unchanged, 0.5))),
		},
		{
			name: "reconcile: 10,000 instances with 1 % drift", unit: "ms", series: drift, limit: driftLimit,
			note: fmt.Sprintf("all 10,000 were fetched in %.1f s", rebuilt.Seconds()),
		},
	}, err
}

// comparison is a region whose nodes are compared.
type comparison struct {
	*region
	db        *pgx.Conn
	store     *sql.DB         // into which the yardstick writes
	unchanged []time.Duration // until it is heard that nothing changed
}

// postgres connects to the region's database.
func (r *region) postgres(ctx context.Context) (*pgx.Conn, error) {
	at, err := r.postgresURL()
	if err != nil {
		return nil, err
	}
	return pgx.Connect(ctx, at)
}

func (r *region) postgresURL() (string, error) {
	var known struct {
		Ports map[string]int `json:"ports"`
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "state.json"))
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	password, readErr := os.ReadFile(filepath.Join(r.dir, "postgres.password"))
	if err := errors.Join(err, readErr); err != nil {
		return "", fmt.Errorf("find the database: %w", err)
	}
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword("holdfast", strings.TrimSpace(string(password))),
		Host: "127.0.0.1:" + strconv.Itoa(known.Ports["postgres"]), Path: "/holdfast", RawQuery: "sslmode=disable",
	}
	return at.String(), nil
}

// fetches gives the instances of a site, by every step-th name, a revision that its active
// does not hold, and has it compared.
func (c *comparison) fetches(ctx context.Context, site string, step, last, revision int) (time.Duration, error) {
	sql := strings.NewReplacer("SITE", site, "FIRST", strconv.Itoa(step), "LAST", strconv.Itoa(last),
		"STEP", strconv.Itoa(step), "REVISION", strconv.Itoa(revision)).Replace(seedSQL)
	if _, err := c.db.Exec(ctx, sql); err != nil {
		return 0, fmt.Errorf("seed the region: %w", err)
	}
	return c.compare(ctx, site+"-a", last/step)
}

// compare runs ReconcileNode and takes the time between its first and its last step.
func (c *comparison) compare(ctx context.Context, node string, fetched int) (time.Duration, error) {
	run, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: workflows.QueueServers},
		workflows.TypeReconcileNode, workflows.ReconcileNodeInput{Node: fleet.NodeName(node)})
	if err != nil {
		return 0, fmt.Errorf("start the comparison of %s: %w", node, err)
	}
	var res workflows.DoorResult
	if err := run.Get(ctx, &res); err != nil {
		return 0, fmt.Errorf("compare %s: %w", node, err)
	}
	var took float64
	var report fleet.ReconcileReport
	err = c.db.QueryRow(ctx, `SELECT extract(epoch FROM ended_at - created_at), report FROM reconciles
		WHERE node = $1 AND report ? 'fetched' AND (report ->> 'fetched')::int > 0 ORDER BY created_at DESC LIMIT 1`, node).Scan(&took, &report)
	if err != nil {
		return 0, fmt.Errorf("read the comparison of %s: %w", node, err)
	}
	if !report.Clean() || report.Fetched != fetched && fetched < compared { // a long one may be tried again
		return 0, fmt.Errorf("the comparison of %s came to %+v, expected were %d fetched", node, report, fetched)
	}
	return time.Duration(took * float64(time.Second)), nil
}

const askToken = "bench"

// mayAsk makes the token by which the expected set is read.
func (c *comparison) mayAsk(ctx context.Context) error {
	hash := sha256.Sum256([]byte(askToken))
	_, err := c.db.Exec(ctx, `INSERT INTO reconciles (id, node, site, reason, token_hash, run, expires_at)
		VALUES (md5('bench'), 'bench', 'plant-1', 'bench', $1, '', now() + interval '5 minutes')`, hash[:])
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	return nil
}

// asks reads the whole expected set, and then hears that it has not changed.
func (c *comparison) asks(ctx context.Context) (time.Duration, error) {
	took, tag, err := c.ask(ctx, askToken, "", http.StatusOK)
	if err != nil {
		return 0, err
	}
	again, _, err := c.ask(ctx, askToken, tag, http.StatusNotModified)
	c.unchanged = append(c.unchanged, again)
	return took, err
}

// plainAsks reads the same rows by the shortest statement and writes them as JSON.
func (c *comparison) plainAsks(ctx context.Context) error {
	type row struct {
		Name     string `json:"name"`
		Revision int64  `json:"revision"`
		Hash     []byte `json:"hash"`
	}
	rows, err := c.db.Query(ctx, `SELECT p.name, p.revision, r.body_hash FROM snapshots p
		JOIN revisions r USING (site, name, revision) WHERE p.site = 'plant-1' ORDER BY p.name`)
	if err != nil {
		return fmt.Errorf("read the set plainly: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err == nil && len(all) != compared {
		err = fmt.Errorf("%d rows", len(all))
	}
	if err == nil {
		_, err = json.Marshal(all)
	}
	if err != nil {
		return fmt.Errorf("read the set plainly: %w", err)
	}
	return nil
}

func (c *comparison) ask(ctx context.Context, token, tag string, status int) (time.Duration, string, error) {
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.doc.API+"/api/internal/sites/plant-1/deployments", http.NoBody)
	if err != nil {
		return 0, "", fmt.Errorf("ask for the expected set: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "zstd")
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("ask for the expected set: %w", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, "", fmt.Errorf("read the expected set: %w", err)
	}
	if resp.StatusCode != status {
		return 0, "", fmt.Errorf("the expected set was answered %d, not %d", resp.StatusCode, status)
	}
	return time.Since(began), resp.Header.Get("ETag"), nil
}

// plainFetches is the yardstick: the configs that drifted, each by a ticket of its own from
// the endpoint of single deliveries, and committed to SQLite, one after the other.
func (c *comparison) plainFetches(ctx context.Context, round int) (float64, error) {
	const token = "alone"
	hash := sha256.Sum256([]byte(token))
	rows, err := c.db.Query(ctx, `WITH t AS (
		INSERT INTO snapshot_tickets (id, site, name, node, revision, expires_at)
		SELECT md5('alone' || $3::text || p.name), p.site, p.name, 'bench', p.revision, now() + interval '5 minutes'
		FROM (SELECT q.* FROM snapshots q WHERE q.site = $1 AND q.revision > 1 ORDER BY q.name) p RETURNING id, name),
		k AS (INSERT INTO fetch_tokens (deployment_id, node, hash, expires_at) SELECT id, 'bench', $2, now() + interval '5 minutes' FROM t)
		SELECT id, name FROM t`, "plant-1", hash[:], strconv.Itoa(round))
	if err != nil {
		return 0, fmt.Errorf("make tickets: %w", err)
	}
	type ticket struct{ ID, Name string }
	tickets, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ticket])
	if err == nil && len(tickets) != drifted {
		err = fmt.Errorf("%d tickets", len(tickets))
	}
	if err != nil {
		return 0, fmt.Errorf("make tickets: %w", err)
	}
	began := time.Now()
	for _, t := range tickets {
		body, err := c.config(ctx, t.ID, token)
		if err != nil {
			return 0, err
		}
		if _, err := c.store.ExecContext(ctx, plainReplace, t.Name, "", body); err != nil {
			return 0, fmt.Errorf("keep a config: %w", err)
		}
	}
	return inMillis(time.Since(began)), nil
}

func (c *comparison) config(ctx context.Context, id, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.doc.API+"/api/internal/deployments/"+id+"/config", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("fetch a config: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch a config: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it was answered %d", resp.StatusCode)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch a config: %w", err)
	}
	return body, nil
}
