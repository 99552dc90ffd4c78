package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// outputs reads the output of instances.
type outputs interface {
	// Names lists instances that may have output.
	Names() ([]fleet.InstanceName, error)
	ReadOutput(name fleet.InstanceName, offset int64) (guardian.Output, error)
}

// AgentOptions configure a node. The first group is required.
type AgentOptions struct {
	Node    fleet.NodeName
	Site    fleet.SiteName
	Dir     string // holds the lock, node.key, node.db and instances/
	API     string
	Runtime runtime
	Log     *slog.Logger
	Now     func() time.Time

	// JoinToken enrols a key that no region knows yet; after that it is not needed.
	JoinToken string
	// Serving is closed once the node takes deliveries; only then does it tell the region so. nil means at once.
	Serving <-chan struct{}
	// Tenancy gets the lease and ends what runs when it ends; nil is a runtime without deadlines.
	Tenancy tenancy
	// Lease makes the node vote and stand for its site's lease; then it runs instances only while it holds it.
	// nil, for tests, is a node that may always run them.
	Lease *LeaseOptions
	// Outputs is the source of logs; nil sends none.
	Outputs outputs
	// HTTP is for tests; the default is NewHTTPClient.
	HTTP *http.Client
	// Isolation separates the commands of projects; nil runs all as the agent's user.
	Isolation confiner
	BaseEnv   []string
	MayRun    func() bool
	Failpoint func(name string)
	// ReadIdle, SettleEvery and ReportEvery (the shortest pause between two reports, 2 s), LogEvery (2 s) and
	// Retry (the first pause after a failed call to the region, 500 ms) have defaults.
	ReadIdle, SettleEvery, ReportEvery, LogEvery, Retry time.Duration
}

// Agent is the inner half of a node: key, store, applier, and reports to the region.
type Agent struct {
	// Applier carries out deliveries. It is ready once Ready is closed.
	Applier *Applier
	Store   *sqlite.Store
	// Leases is the node's part in its site's lease, nil without AgentOptions.Lease.
	Leases *tenure.Keeper

	opt      AgentOptions
	lock     *os.File
	client   *Client
	counters *Counters
	refusals refusals
	ready    chan struct{}
	enrolled chan struct{}
	news     *news

	asking    keyedLocks // one request about owed deletes and disables at a time
	comparing keyedLocks // one comparison with the expected set at a time

	rotateAsked  atomic.Bool
	rotateResume time.Time // the earliest time

	tasks *Tasks

	mu      sync.Mutex
	key     identity.Key // as in its file
	signing identity.Key // the key that the node signs by: its next half, once the region has accepted it
}

// Open locks the directory for this process, loads or makes the key and opens the store; it uses no network.
func Open(ctx context.Context, opt AgentOptions) (*Agent, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("locate node directory: %w", err)
	}
	opt.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make node directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	a, err := openLocked(ctx, opt)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	a.lock = lock
	return a, nil
}

func openLocked(ctx context.Context, opt AgentOptions) (*Agent, error) {
	key, err := loadKey(opt)
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, filepath.Join(opt.Dir, "node.db"))
	if err != nil {
		return nil, err
	}
	if opt.HTTP == nil {
		opt.HTTP = NewHTTPClient(nil)
	}
	a := &Agent{
		Store: store, opt: opt, key: key, signing: key, counters: &Counters{}, ready: make(chan struct{}), enrolled: make(chan struct{}), news: newNews(),
	}
	a.refusals = refusals{Window: audit.NewWindow(opt.Now), now: opt.Now, wake: a.news.wake}
	if err := a.openLease(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	a.client = &Client{API: opt.API, HTTP: opt.HTTP, Key: a.Key, Now: opt.Now}
	a.Applier = NewApplier(ApplierOptions{
		Site: opt.Site, Node: opt.Node, Dir: opt.Dir, Store: store, Runtime: opt.Runtime, Log: opt.Log, Keys: keyring{a},
		Fetcher:   &Fetcher{Client: opt.HTTP, ReadIdle: opt.ReadIdle, Counters: a.counters, Log: opt.Log},
		Isolation: opt.Isolation, BaseEnv: opt.BaseEnv, MayRun: a.opt.MayRun, Failpoint: opt.Failpoint, SettleEvery: opt.SettleEvery,
		Changed: a.news.changed, Begun: a.news.begun, Fetched: a.news.fetched, Answered: a.news.answered, Told: a.news.tell, Telling: a.news.tells, Refused: func(r audit.Refusal) { a.refusals.add(r) },
	})
	a.tasks = &Tasks{agent: a, used: map[string]time.Time{}}
	return a, nil
}

func loadKey(opt AgentOptions) (identity.Key, error) {
	path := filepath.Join(opt.Dir, "node.key")
	key, err := identity.Load(path)
	if fleet.KindOf(err) == fleet.NotFound {
		if key, err = identity.Generate(opt.Node); err == nil {
			err = key.Save(path)
		}
	}
	if err != nil {
		return key, err
	}
	if key.Node() != opt.Node {
		return key, fleet.Errorf(fleet.IllegalState, "%s has the key of node %s", path, key.Node()).
			WithHint("start the node under that name, or use another directory")
	}
	return key, nil
}

// keyring reads the key when it is used.
type keyring struct{ a *Agent }

func (k keyring) Open(sealed string) (string, error) { return k.a.saved().Open(sealed) }

// Key is the node's current key.
func (a *Agent) Key() identity.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signing
}

// Figures are the node's counters and the main values of its lease.
func (a *Agent) Figures() map[string]int64 {
	all := a.counters.Snapshot()
	if a.Leases == nil {
		return all
	}
	s := a.Leases.Stats()
	all["lease_held"] = 0
	if s.Holds {
		all["lease_held"] = 1
	}
	all["lease_epoch"], all["lease_left_ms"] = s.Epoch, s.Left.Milliseconds()
	all["lease_renewals_refused"], all["lease_lapses"] = s.Refused, s.Lapses
	all["lease_resets"], all["lease_reset_from"] = s.Resets, s.ResetFrom
	return all
}

// SiteProject is the project of the node's site, "" before the region sent it.
func (a *Agent) SiteProject() fleet.ProjectName {
	if a.Leases == nil {
		return ""
	}
	return a.Leases.SiteProject()
}

// Counters gives the node's counters.
func (a *Agent) Counters() *Counters { return a.counters }

// Ready is closed once the store is recovered: from then on Apply may be called.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Enrolled is closed once a region knows the node's key.
func (a *Agent) Enrolled() <-chan struct{} { return a.enrolled }

// Region is the node's client of its region.
func (a *Agent) Region() *Client { return a.client }

// Close closes the store and unlocks the directory; call it after Run has ended.
func (a *Agent) Close() error { return errors.Join(a.Store.Close(), a.lock.Close()) }

// Run recovers the node and keeps it going until the context ends. Only enrolment, reports and logs wait for
// the region; instances never do.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.grant(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.enforce(ctx) }) // also during recovery
	group.Go(func() error { return a.stand(ctx) })
	group.Go(func() error { return a.work(ctx) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

func (a *Agent) work(ctx context.Context) error {
	if err := a.Applier.Recover(ctx); err != nil {
		return err
	}
	close(a.ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Applier.Run(ctx) })
	group.Go(func() error {
		if err := a.join(ctx); err != nil {
			return err
		}
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return a.report(ctx) })
		both.Go(func() error { return a.shipLogs(ctx) })
		return both.Wait()
	})
	return group.Wait()
}

// join enrols the node if no region knows its key and, once the node takes deliveries, reports what it holds.
func (a *Agent) join(ctx context.Context) error {
	if err := a.enrol(ctx); err != nil {
		return err
	}
	if err := a.resumeRotation(ctx); err != nil {
		return err
	}
	if a.opt.Serving != nil {
		select {
		case <-a.opt.Serving:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return a.started(ctx)
}

func (a *Agent) enrol(ctx context.Context) error {
	if a.Key().Region() != "" {
		return nil
	}
	if a.opt.JoinToken == "" {
		return fleet.Errorf(fleet.Unauthenticated, "node %s is not enrolled", a.opt.Node).
			WithHint("start it once with a join token: holdfast join-token create")
	}
	var at Placement
	err := a.insist(ctx, "enrol", func() (err error) {
		at, err = a.client.Enrol(ctx, a.opt.JoinToken, a.opt.Site)
		return err
	})
	if err != nil {
		return err
	}
	if at.First && a.Leases != nil {
		if err := tenure.Joined(a.opt.Dir, a.opt.Site, a.opt.Node); err != nil {
			return err
		}
	}
	// The key is marked last: after a kill before that, or a lost answer, the node enrols again with the same key.
	// The region accepts the same join token for that.
	if err := a.Store.SetRegion(ctx, at.Region); err != nil {
		return err
	}
	if err := a.adopt(ctx, at); err != nil {
		return err
	}
	return a.save(a.saved().Enrolled(at.Region))
}

func (a *Agent) adopt(ctx context.Context, at Placement) error {
	if err := a.learn(at.CommandKeys); err != nil {
		return err
	}
	if at.RotateKey {
		a.rotateAsked.Store(true)
		poke.Once(a.news.wake)
	}
	if at.Role == "" {
		return nil // the region has not placed the node yet
	}
	if a.Leases != nil {
		a.Leases.Told(at.Epoch)
	}
	if at.Role == fleet.RoleActive && a.opt.MayRun != nil && !a.opt.MayRun() {
		return nil // the node adopts that role once it holds the lease
	}
	err := a.Applier.Adopt(ctx, sqlite.Right{Role: at.Role, Epoch: at.Epoch}, "")
	if fleet.KindOf(err) == fleet.Stale { // read before a reset of the votes: the next answer has the new epoch
		return nil
	}
	return err
}

// insist retries a call until the region answers. A refusal is an answer: a retry would not change it.
func (a *Agent) insist(ctx context.Context, what string, call func() error) error {
	first := orDefault(a.opt.Retry, 500*time.Millisecond)
	for failed := 0; ; failed++ {
		err := call()
		if err == nil || !fleet.KindOf(err).Retryable() {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed == 0 {
			a.opt.Log.Warn("reach the region, retrying", "what", what, "err", err)
		}
		wait := first << min(failed, 6)
		if pause.For(ctx, wait/2+rand.N(wait)) != nil { //nolint:gosec // jitter is no secret
			return ctx.Err()
		}
	}
}
