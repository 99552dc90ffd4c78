package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/strangers"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// region is a region's API over a real database.
type region struct {
	t        *testing.T
	store    *store.Store
	pool     *pgxpool.Pool
	server   *server
	routes   chi.Routes
	url      string
	database string
	log      *syncedBuffer

	admin, operator, viewer string // tokens

	mu      sync.Mutex
	woken   []string
	started []fleet.NodeName
	refused []audit.Refusal
}

// syncedBuffer is a log that is read while it is written.
type syncedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Wake remembers which subjects were woken.
func (r *region) Wake(_ context.Context, subject string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = append(r.woken, subject)
	return nil
}

func (r *region) wakes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.woken)
}

func (r *region) starts() []fleet.NodeName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.started)
}

// setup starts a fresh region; change alters its dependencies.
func setup(t *testing.T, change ...func(*Deps)) *region {
	t.Helper()
	database := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), database, "test")
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pool, err := pgxpool.New(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	r := &region{t: t, store: store, pool: pool, database: database, log: &syncedBuffer{}}
	d := Deps{
		Store: store, Waker: r, Flatten: compose.NewBudget(128 << 20), Limits: compose.DefaultLimits(),
		NodeStarted: func(_ context.Context, node fleet.NodeName) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.started = append(r.started, node)
			return nil
		},
		Region: "test", WebURL: "http://web.test", TemporalNamespace: "holdfast",
		PendingTTL: 5 * time.Minute, OperationLimit: time.Minute,
		Refused: func(said audit.Refusal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refused = append(r.refused, said)
		},
		Now: now, Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail})),
	}
	for _, f := range change {
		f(&d)
	}
	r.server, err = newServer(d)
	require.NoError(t, err)
	r.server.idlePoll = 5 * time.Millisecond
	handler, err := r.server.routes(d.Region)
	require.NoError(t, err)
	r.routes, _ = handler.(chi.Routes)
	web := httptest.NewUnstartedServer(handler)
	web.Listener = strangers.NewLimit(1000, time.Minute).Listen(web.Listener)
	web.Config.ConnContext = strangers.With
	web.Start()
	t.Cleanup(web.Close)
	r.url = web.URL
	r.admin, r.operator, r.viewer = r.token("admin", ""), r.token("operator", ""), r.token("viewer", "")
	return r
}

// refusals gives what was refused since the last call.
func (r *region) refusals() []audit.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.refused
	r.refused = nil
	return said
}

// now is the clock of the tests: connections have deadlines by it, so it is the real one.
var now = time.Now //nolint:forbidigo // see above

// token makes an API token, and declares its project.
func (r *region) token(role string, project fleet.ProjectName) string {
	r.t.Helper()
	if project != "" {
		w := postgres.Write{Request: postgres.Request{Project: project, Actor: "test"}, Key: fleet.ObjectKey{Kind: fleet.KindProject, Name: string(project)}}
		if _, err := r.store.GetObject(r.t.Context(), w.Key); err != nil {
			_, err = r.store.Declare(r.t.Context(), w, fleet.ProjectSpec{})
			require.NoError(r.t, err)
		}
	}
	token, hash, err := identity.NewToken(32)
	require.NoError(r.t, err)
	_, err = r.store.AddAPIToken(r.t.Context(), keyring.APIToken{Hash: hash[:], Role: role, Project: project, Note: role, CreatedBy: "test"})
	require.NoError(r.t, err)
	return token
}

// reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (a reply) problem(t *testing.T) api.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), string(a.body))
	var p api.Problem
	require.NoError(t, json.Unmarshal(a.body, &p))
	require.Equal(t, a.status, p.Status)
	return p
}

func into[T any](t *testing.T, a reply) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(a.body, &v), string(a.body))
	return v
}

// request is one call; headers come in pairs of name and value.
func (r *region) request(token, method, path string, body any, headers ...string) *http.Request {
	r.t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(b)
	case []byte:
		from = bytes.NewReader(b)
	case io.Reader:
		from = b
	default:
		text, err := json.Marshal(b)
		require.NoError(r.t, err)
		from = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, from)
	require.NoError(r.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// plain speaks HTTP without any help: no transparent compression.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true}}

func (r *region) call(token, method, path string, body any, headers ...string) reply {
	r.t.Helper()
	resp, err := plain.Do(r.request(token, method, path, body, headers...))
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return reply{resp.StatusCode, resp.Header, text}
}

func (r *region) get(path string) reply { return r.call(r.viewer, http.MethodGet, path, nil) }

// put declares something as an administrator and wants it to be taken.
func (r *region) put(path string, body any, headers ...string) reply {
	r.t.Helper()
	a := r.call(r.admin, http.MethodPut, path, body, headers...)
	require.Less(r.t, a.status, 300, string(a.body))
	return a
}

// site declares plant-1 with an active and a standby node.
func (r *region) site() {
	r.t.Helper()
	r.put("/api/v1/sites/plant-1", pair("plant-1"))
}

func pair(site string) api.SitePut {
	return api.SitePut{Nodes: []api.SiteNode{{Name: site + "-a", Role: fleet.RoleActive}, {Name: site + "-b", Role: fleet.RoleStandby}}}
}

// enrolled makes a node's key known to the region.
func (r *region) enrolled(node fleet.NodeName) identity.Key {
	r.t.Helper()
	made := r.call(r.admin, http.MethodPost, "/api/v1/join-tokens", api.JoinTokenRequest{Site: "plant-1", Node: string(node)})
	require.Equal(r.t, http.StatusCreated, made.status, string(made.body))
	key, err := identity.Generate(node)
	require.NoError(r.t, err)
	a := r.call("", http.MethodPost, "/api/internal/nodes/enrol", enrolment(r.t, key, into[api.Token](r.t, made).Token))
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	return key
}

func enrolment(t *testing.T, key identity.Key, token string) map[string]string {
	t.Helper()
	sealing, err := key.SealingPublic()
	require.NoError(t, err)
	return map[string]string{
		"joinToken": token, "node": string(key.Node()), "site": "plant-1",
		"signingKey": identity.EncodePublic(key.SigningPublic()), "sealingKey": identity.EncodePublic(sealing[:]),
	}
}

// asNode calls as a node does.
func (r *region) asNode(key identity.Key, tail string, body any) reply {
	r.t.Helper()
	token, err := key.Sign(identity.RegionAudience, now())
	require.NoError(r.t, err)
	return r.call(token, http.MethodPost, "/api/internal/nodes/"+string(key.Node())+"/"+tail, body)
}

// fromNode reads as a node does; headers come in pairs.
func (r *region) fromNode(key identity.Key, tail string, headers ...string) reply {
	r.t.Helper()
	return r.call(r.signed(key), http.MethodGet, "/api/internal/nodes/"+string(key.Node())+"/"+tail, nil, headers...)
}

func (r *region) signed(key identity.Key) string {
	r.t.Helper()
	token, err := key.Sign(identity.RegionAudience, now())
	require.NoError(r.t, err)
	return token
}

// fetchable is a delivery that is open, with a token for its active node.
type fetchable struct {
	id    fleet.DeliveryID
	token string
	path  string
}

var press = fleet.Subject{Site: "plant-1", Instance: "press-7", Run: "run-1", Build: "b1"}

// deliver claims the desired revision of an instance, as its entity does.
func (r *region) deliver(of fleet.Subject, step string) fetchable {
	r.t.Helper()
	claim := fleet.Claim{Subject: of, Step: step, Workflow: of.Name(), Deadline: time.Minute, TTL: time.Minute}
	token, hash, err := identity.NewToken(32)
	require.NoError(r.t, err)
	w := r.walk(of, fleet.Step{}, func(seen fleet.InstanceSeen, taken int) (fleet.Step, bool) {
		if taken == 1 {
			return fleet.Step{Claim: &claim}, true
		}
		return fleet.Step{Prepare: &fleet.Prepare{
			Subject: of, Delivery: seen.Open.ID, Node: seen.Open.Node, TTL: time.Minute, TokenHash: hash[:],
		}}, true
	})
	id := w.Seen.Open.ID
	return fetchable{id, token, "/api/internal/deployments/" + string(id)}
}

// walk takes steps of an instance's entity; next nil takes only the first.
func (r *region) walk(of fleet.Subject, first fleet.Step, next func(fleet.InstanceSeen, int) (fleet.Step, bool)) fleet.Walked {
	r.t.Helper()
	if next == nil {
		next = func(fleet.InstanceSeen, int) (fleet.Step, bool) { return fleet.Step{}, false }
	}
	w, err := r.store.Walk(r.t.Context(), of, first, next)
	require.NoError(r.t, err)
	return w
}

// delivery is a region with press-7 declared and its first delivery open.
func delivery(t *testing.T, put any) (*region, fetchable) {
	t.Helper()
	r := setup(t)
	r.site()
	r.enrolled("plant-1-a")
	r.put("/api/v1/sites/plant-1/instances/press-7", put)
	return r, r.deliver(press, "1")
}

// rows counts what a change would leave behind: a refused one leaves nothing.
func (r *region) rows() map[string]int {
	r.t.Helper()
	out := map[string]int{}
	for _, table := range []string{
		"objects", "events", "outbox", "operations", "subjects", "revisions", "template_generations", "nodes",
		"deliveries", "pending", "api_tokens", "join_tokens", "uploads", "idempotency", "bodies", "node_held", "instance_logs",
		"deployments", "deployment_revisions", "deployment_history", "replicas",
	} {
		var n int
		require.NoError(r.t, r.pool.QueryRow(r.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		out[table] = n
	}
	out["wakes"] = len(r.wakes())
	return out
}

func (r *region) sql(statement string, args ...any) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), statement, args...)
	require.NoError(r.t, err)
}
