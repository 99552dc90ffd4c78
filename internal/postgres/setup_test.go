package postgres_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The names that every test uses; each has a database of its own.
const (
	project = fleet.ProjectName("default")
	plant   = fleet.SiteName("plant")
	press   = fleet.InstanceName("press")
	nodeA   = fleet.NodeName("plant-a") // the configured active
	nodeB   = fleet.NodeName("plant-b") // the configured standby
	run1    = "run-1"
	run2    = "run-2"
	minute  = time.Minute
	// deadline bounds every wait of these tests.
	deadline = 2 * time.Minute
)

var (
	pressKey = fleet.InstanceKey(plant, press)
	siteKey  = fleet.ObjectKey{Kind: fleet.KindSite, Name: string(plant)}
)

// bench is a region with one site, and a connection of its own beside the store.
type bench struct {
	*store.Store
	t   *testing.T
	url string
	raw *pgxpool.Pool
}

// setup gives a fresh region whose site has two enrolled nodes.
func setup(t *testing.T) *bench {
	t.Helper()
	b := bare(t)
	b.putSite(plant, nodeA, nodeB)
	b.enrol(nodeA)
	b.enrol(nodeB)
	return b
}

// bare gives a fresh region in which nothing is declared.
func bare(t *testing.T) *bench {
	t.Helper()
	url := testkit.DatabaseURL(t)
	s, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 16 // transactions that are held open, and a look beside them
	raw, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	return &bench{Store: s, t: t, url: url, raw: raw}
}

func (b *bench) ctx() context.Context { return b.t.Context() }

// scan reads one row by plain SQL.
func scan[T any](b *bench, sql string, args ...any) T {
	b.t.Helper()
	var v T
	require.NoError(b.t, b.raw.QueryRow(b.ctx(), sql, args...).Scan(&v), sql)
	return v
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.raw.Exec(b.ctx(), sql, args...)
	require.NoError(b.t, err, sql)
}

func refused(t *testing.T, kind fleet.Kind, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind, fleet.KindOf(err), "%v", err)
}

// twoNodes is a site with an active and, unless it is "", a standby.
func twoNodes(active, standby fleet.NodeName) fleet.SiteSpec {
	spec := fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: active, Role: fleet.RoleActive}}}
	if standby != "" {
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: standby, Role: fleet.RoleStandby})
	}
	return spec
}

func (b *bench) putSite(site fleet.SiteName, active, standby fleet.NodeName) {
	b.t.Helper()
	_, err := b.Declare(b.ctx(), writeOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}), twoNodes(active, standby))
	require.NoError(b.t, err)
}

// move grants the plant's lease to a node, as votes do.
func (b *bench) move(to fleet.NodeName) {
	b.t.Helper()
	was, err := b.VoteOf(b.ctx(), plant)
	require.NoError(b.t, err)
	written, err := b.CastVote(b.ctx(), granted(was, to), "node:"+string(to))
	require.NoError(b.t, err)
	require.True(b.t, written)
}

// granted is what a vote is after a grant.
func granted(was nodes.SiteVote, to fleet.NodeName) nodes.VoteChange {
	now := was.Vote
	now.Promised, now.PromisedTo, now.Holder, now.Counter, now.TTL = now.Promised+1, to, to, now.Counter+1, 15*time.Second
	now.Epoch = now.Promised
	return nodes.VoteChange{Site: was.Site, Was: was.Vote, Now: now}
}

func (b *bench) enrol(node fleet.NodeName) {
	b.t.Helper()
	_, err := b.Enrol(b.ctx(), b.joinToken(node, string(node)))
	require.NoError(b.t, err)
}

// joinToken makes a join token and the request of the node that has it.
func (b *bench) joinToken(node fleet.NodeName, secret string) nodes.Enrolment {
	b.t.Helper()
	return b.joinTokenAt(plant, node, secret)
}

func (b *bench) joinTokenAt(site fleet.SiteName, node fleet.NodeName, secret string) nodes.Enrolment {
	b.t.Helper()
	sum := sha256.Sum256([]byte(secret))
	_, err := b.AddJoinToken(b.ctx(), keyring.JoinToken{Hash: sum[:], Site: site, Node: node, CreatedBy: "ann"}, time.Hour)
	require.NoError(b.t, err)
	key := sha256.Sum256([]byte("key " + secret))
	return nodes.Enrolment{JoinTokenHash: sum[:], Node: node, Site: site, SigningKey: key[:], SealingKey: key[:]}
}

func writeOf(k fleet.ObjectKey) postgres.Write {
	return postgres.Write{Request: postgres.Request{Project: project, Actor: "ann", Limit: time.Hour}, Key: k}
}

// jsonOf is a canonical body and the content that names it.
func jsonOf(body string) fleet.Content {
	sum := sha256.Sum256([]byte(body))
	return fleet.Content{Kind: fleet.ContentJSON, Hash: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(len(body))}
}

// change is a PUT of the press with a stored body; edits come after the defaults.
func (b *bench) change(body string, edits ...func(*deliveries.InstanceChange)) deliveries.InstanceChange {
	b.t.Helper()
	_, err := b.PutBody(b.ctx(), project, []byte(body))
	require.NoError(b.t, err)
	content := jsonOf(body)
	c := deliveries.InstanceChange{
		Write: writeOf(pressKey), Content: content, Release: true, Reason: "because",
		Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilitySync},
	}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

// base is a template with a stored body.
func (b *bench) base(body string) fleet.TemplateSpec {
	b.t.Helper()
	_, err := b.PutBody(b.ctx(), project, []byte(body))
	require.NoError(b.t, err)
	return fleet.TemplateSpec{Base: jsonOf(body)}
}

func (b *bench) put(body string, edits ...func(*deliveries.InstanceChange)) postgres.Started {
	b.t.Helper()
	out, err := b.PutInstance(b.ctx(), b.change(body, edits...))
	require.NoError(b.t, err)
	return out
}

func as(d fleet.Durability) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Spec.Durability = d }
}

func unreleased(c *deliveries.InstanceChange) { c.Release = false }

func dryRun(c *deliveries.InstanceChange) { c.DryRun = true }

func named(name string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Key.Name = name }
}

func labelled(labels map[string]string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) { c.Labels = labels }
}

func keyed(key, hash string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) {
		c.Idempotency = postgres.Idempotency{Key: key, Hash: []byte(hash)}
	}
}

func running(command string) func(*deliveries.InstanceChange) {
	return func(c *deliveries.InstanceChange) {
		c.Spec.Run = &fleet.Run{Command: []string{command}}
		c.RunJSON = json.RawMessage(fmt.Sprintf(`{"command":[%q]}`, command))
		c.RunHash = jsonOf(string(c.RunJSON)).Hash
	}
}

func turnOf(kind fleet.OperationKind) deliveries.InstanceTurn {
	return deliveries.InstanceTurn{Write: writeOf(pressKey), Kind: kind}
}

func (b *bench) turn(kind fleet.OperationKind) postgres.Started {
	b.t.Helper()
	out, err := b.TurnInstance(b.ctx(), turnOf(kind))
	require.NoError(b.t, err)
	return out
}

func subject(run string) fleet.Subject {
	return fleet.Subject{Site: plant, Instance: press, Run: run, Build: "build-1"}
}

// step takes one step of an entity and no more.
func (b *bench) step(ctx context.Context, of fleet.Subject, step fleet.Step) (fleet.Walked, error) {
	return b.Walk(ctx, of, step, func(fleet.InstanceSeen, int) (fleet.Step, bool) { return fleet.Step{}, false })
}

// The steps, one at a time.
func (b *bench) Observe(ctx context.Context, of fleet.Subject) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, of, fleet.Step{})
	return w.Seen, err
}

func (b *bench) Claim(ctx context.Context, c fleet.Claim) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, c.Subject, fleet.Step{Claim: &c})
	return w.Seen, err
}

func (b *bench) Prepare(ctx context.Context, p fleet.Prepare) (fleet.Walked, error) {
	return b.step(ctx, p.Subject, fleet.Step{Prepare: &p})
}

func (b *bench) Record(ctx context.Context, r fleet.Record) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, r.Subject, fleet.Step{Record: &r})
	return w.Seen, err
}

func (b *bench) Miss(ctx context.Context, m fleet.Miss) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, m.Subject, fleet.Step{Miss: &m})
	return w.Seen, err
}

func (b *bench) Settle(ctx context.Context, in fleet.Settle) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, in.Subject, fleet.Step{Settle: &in})
	return w.Seen, err
}

func (b *bench) End(ctx context.Context, e fleet.End) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, e.Subject, fleet.Step{End: &e})
	return w.Seen, err
}

func (b *bench) observe(run string) fleet.InstanceSeen {
	b.t.Helper()
	seen, err := b.Observe(b.ctx(), subject(run))
	require.NoError(b.t, err)
	return seen
}

func claimOf(run, step string) fleet.Claim {
	return fleet.Claim{Subject: subject(run), Step: step, Workflow: "instance.plant.press", Deadline: time.Hour, TTL: 5 * minute}
}

// claim observes and claims, and gives the open delivery.
func (b *bench) claim(run, step string) *fleet.DeliverySeen {
	b.t.Helper()
	b.observe(run)
	seen, err := b.Claim(b.ctx(), claimOf(run, step))
	require.NoError(b.t, err)
	require.NotNil(b.t, seen.Open)
	return seen.Open
}

// notify prepares a notify of a node with a token of its own.
func (b *bench) notify(d fleet.DeliveryID, node fleet.NodeName, token string) fleet.Prepared {
	b.t.Helper()
	sum := sha256.Sum256([]byte(token))
	w, err := b.Prepare(b.ctx(), fleet.Prepare{Subject: subject(run1), Delivery: d, Node: node, TTL: 5 * minute, TokenHash: sum[:]})
	require.NoError(b.t, err)
	require.NotNil(b.t, w.Prepared)
	return *w.Prepared
}

// holding is what a node says that took a revision.
func holding(r fleet.Revision) fleet.Held {
	return fleet.Held{Revision: r, HighWater: r.Version, Known: true, Running: r.Enabled && r.Action != fleet.ActionDelete}
}

func recordOf(d fleet.DeliveryID, node fleet.NodeName, r fleet.Revision) fleet.Record {
	return fleet.Record{
		Subject: subject(run1), Delivery: d, Node: node, Response: fleet.DeploymentStatusResponse{Held: holding(r)},
	}
}

func (b *bench) record(d *fleet.DeliverySeen, node fleet.NodeName) fleet.InstanceSeen {
	b.t.Helper()
	seen, err := b.Record(b.ctx(), recordOf(d.ID, node, d.Revision))
	require.NoError(b.t, err)
	return seen
}

func (b *bench) end(d *fleet.DeliverySeen, state fleet.DeliveryState, edits ...func(*fleet.End)) fleet.InstanceSeen {
	b.t.Helper()
	e := fleet.End{Subject: subject(run1), Delivery: d.ID, State: state, Operation: fleet.OperationState(state)}
	for _, edit := range edits {
		edit(&e)
	}
	seen, err := b.End(b.ctx(), e)
	require.NoError(b.t, err)
	return seen
}

func because(reason string) func(*fleet.End) { return func(e *fleet.End) { e.Reason = reason } }

func owing(e *fleet.End) { e.Owe = true }

// deploy brings the desired revision to both nodes, and ends well.
func (b *bench) deploy(step string) *fleet.DeliverySeen {
	b.t.Helper()
	d := b.claim(run1, step)
	b.record(d, nodeA)
	b.record(d, nodeB)
	b.end(d, fleet.DeliverySucceeded)
	return d
}

func (b *bench) operation(id fleet.OperationID) postgres.Operation {
	b.t.Helper()
	o, err := b.GetOperation(b.ctx(), id)
	require.NoError(b.t, err)
	return o
}

func (b *bench) delivery(id fleet.DeliveryID) deliveries.Delivery {
	b.t.Helper()
	all, err := b.ListDeliveries(b.ctx(), pressKey, 0, 100)
	require.NoError(b.t, err)
	for _, d := range all {
		if d.ID == id {
			return d
		}
	}
	require.Fail(b.t, "there is no such delivery", "%s", id)
	return deliveries.Delivery{}
}

func (b *bench) deployed() fleet.Revision {
	b.t.Helper()
	snap, _, err := b.Deployed(b.ctx(), pressKey)
	require.NoError(b.t, err)
	return snap
}

// owed lists what the press owes, as "node revision due reason".
func (b *bench) owed() []string {
	b.t.Helper()
	return scan[[]string](b, `SELECT coalesce(array_agg(format('%s %s %s %s', node, revision,
		CASE WHEN due THEN 'due' ELSE 'parked' END, reason) ORDER BY node), '{}') FROM owed WHERE site = $1 AND name = $2`, plant, press)
}

// feed reads all that is committed after a cursor. Transactions of other tests hold the end
// back too, for their ids are of the whole cluster.
func (b *bench) feed(after postgres.Cursor) []postgres.Event {
	b.t.Helper()
	newest := scan[int64](b, "SELECT coalesce(max(xid::text::bigint), 0) FROM events")
	eventually(b.t, "the feed has passed all that is committed", func() bool {
		end, err := b.FeedEnd(b.ctx())
		return err == nil && end.Xid >= newest
	})
	events, err := b.ReadFeed(b.ctx(), after, 10_000)
	require.NoError(b.t, err)
	return events
}

// eventually asks again until it is so; the database has nothing to wait on.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, deadline, 2*time.Millisecond, what)
}

// waitsForLock says when some backend of this database waits for a lock.
func (b *bench) waitsForLock(n int) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%d backends wait for a lock", n), func() bool {
		var waiting int
		err := b.raw.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting >= n
	})
}

func contextWithDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), deadline)
}

// atOnce runs f in n goroutines and gives their errors.
func atOnce(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

func bodyBytes(n int) []byte {
	return bytes.Repeat([]byte("holdfast"), n/8+1)[:n]
}
