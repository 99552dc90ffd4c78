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
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// outputs reads what instances print.
type outputs interface {
	// Names lists those that may have printed something.
	Names() ([]fleet.InstanceName, error)
	ReadOutput(name fleet.InstanceName, offset int64) (guardian.Output, error)
}

// AgentOptions configure a node. Those of the first group must be set.
type AgentOptions struct {
	Node    fleet.NodeName
	Site    fleet.SiteName
	Dir     string // lock, node.key, node.db and instances/ lie in it
	API     string
	Runtime runtime
	Log     *slog.Logger
	Now     func() time.Time

	// JoinToken enrols a key that no region knows yet; not needed afterwards.
	JoinToken string
	// Serving is closed when the node takes deliveries: the region counts on it only from
	// then on. nil holds nothing back.
	Serving <-chan struct{}
	// Tenancy is told of the lease and ends what runs with it; nil is a runtime without deadlines.
	Tenancy tenancy
	// Lease has the node vote and stand for its site's lease, by which alone it runs anything
	// then; nil is a node that always may, for tests.
	Lease *LeaseOptions
	// Outputs is where logs come from; nil ships none.
	Outputs outputs
	// HTTP is for tests; the default is NewHTTPClient.
	HTTP *http.Client
	// Isolation is asked how commands of projects are kept apart; nil runs all as the agent's user.
	Isolation confiner
	BaseEnv   []string
	MayRun    func() bool
	Failpoint func(name string)
	// ReadIdle, SettleEvery and ReportEvery (the least pause between two reports, 2 s),
	// LogEvery (2 s) and Retry (the first pause after the region was not reached, 500 ms)
	// have defaults.
	ReadIdle, SettleEvery, ReportEvery, LogEvery, Retry time.Duration
}

// Agent is a node's inner half: key, store, applier, and what it tells the region.
type Agent struct {
	// Applier carries out deliveries. It is ready once Run has closed Ready.
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

	asking    keyedLocks // one question about what is owed at a time
	comparing keyedLocks // one comparison with the expected set at a time

	rotateAsked  atomic.Bool
	rotateResume time.Time // not before it

	tasks *Tasks

	mu      sync.Mutex
	key     identity.Key // as in its file
	signing identity.Key // by which the node signs: its next half, once the region has taken it
}

// Open takes the directory for this process, loads or makes the key and opens the store; it
// speaks to nobody.
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
		Changed: a.news.changed, Fetched: a.news.fetched, Answered: a.news.answered, Told: a.news.tell, Telling: a.news.tells, Refused: func(r audit.Refusal) { a.refusals.add(r) },
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
		return key, fleet.Errorf(fleet.IllegalState, "%s is the key of node %s", path, key.Node()).
			WithHint("start the node under its own name, or in another directory")
	}
	return key, nil
}

// keyring reads the key at the moment of use.
type keyring struct{ a *Agent }

func (k keyring) Open(sealed string) (string, error) { return k.a.saved().Open(sealed) }

// Key is the node's key as it is now.
func (a *Agent) Key() identity.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signing
}

// Figures are the node's counters and, of its lease, what people watch.
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

// SiteProject is the project of the node's site, "" before the region told.
func (a *Agent) SiteProject() fleet.ProjectName {
	if a.Leases == nil {
		return ""
	}
	return a.Leases.SiteProject()
}

// Counters are the node's counters.
func (a *Agent) Counters() *Counters { return a.counters }

// Ready is closed when the store has been recovered: from then on Apply may be called.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Enrolled is closed when a region knows the node's key.
func (a *Agent) Enrolled() <-chan struct{} { return a.enrolled }

// Region is how the node calls its region.
func (a *Agent) Region() *Client { return a.client }

// Close closes the store and lets go of the directory; Run must have ended.
func (a *Agent) Close() error { return errors.Join(a.Store.Close(), a.lock.Close()) }

// Run recovers the node and keeps it until the context ends. What runs never waits for the
// region: only enrolling, reports and logs do.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.grant(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.enforce(ctx) }) // also while what runs is recovered
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

// join enrols the node if no region knows its key and, once it takes deliveries, tells the
// region what it holds.
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
	// The key is marked last: a kill before it enrols once more, with the same key, as does a lost
	// answer. The region takes the same join token for that.
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
		poke(a.news.wake)
	}
	if at.Role == "" {
		return nil // the region has not placed the node yet
	}
	if a.Leases != nil {
		a.Leases.Told(at.Epoch)
	}
	if at.Role == fleet.RoleActive && a.opt.MayRun != nil && !a.opt.MayRun() {
		return nil // it is when it holds the lease, and adopts that by itself
	}
	err := a.Applier.Adopt(ctx, sqlite.Right{Role: at.Role, Epoch: at.Epoch}, "")
	if fleet.KindOf(err) == fleet.Stale { // read before a reset of the votes: the next answer has the epoch
		return nil
	}
	return err
}

// insist repeats a call until it is answered. A refusal is an answer: repeating it would
// not change it.
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
			a.opt.Log.Warn("the region is not reached, trying on", "what", what, "err", err)
		}
		wait := first << min(failed, 6)
		if err := pause(ctx, wait/2+rand.N(wait)); err != nil { //nolint:gosec // jitter is no secret
			return err
		}
	}
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
