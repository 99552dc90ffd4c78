package tenure

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// Region is the region's vote, and receives the epoch of a site with one node.
type Region interface {
	Vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error)
	Tell(ctx context.Context, site fleet.SiteName, epoch int64) error
}

// Tenant is the rest of the node, which the tenure controls. Its methods may take long and may be repeated.
type Tenant interface {
	// Lease moves the deadline of all that runs.
	Lease(ctx context.Context, l guardian.Lease) error
	// Owed does what must precede the first start of a new active; it has a time limit.
	Owed(ctx context.Context) error
	// Adopt takes a role at an epoch; an epoch that is not higher changes nothing.
	Adopt(ctx context.Context, role fleet.Role, epoch int64, holder fleet.NodeName) error
	// Settle requests a comparison of what runs with what should run.
	Settle()
	// Stop ends all that runs, gracefully, and returns when nothing does.
	Stop(ctx context.Context) error
	// Reset lowers epochs of the node's store that are too far ahead, once per number, and returns the highest
	// epoch before it.
	Reset(ctx context.Context, number, epoch int64) (from int64, err error)
	// Floor is the highest epoch that the node's store has seen.
	Floor(ctx context.Context) (int64, error)
}

// Options configure a Keeper. The last group has defaults.
type Options struct {
	Site fleet.SiteName
	Node fleet.NodeName
	Dir  string // directory of votes.json and site.json
	// Timing has the terms of the link: the lease's TTL is the timeout of heartbeats.
	TTL, Interval time.Duration
	Key           func() identity.Key
	Tenant        Tenant
	Region        Region // nil is a region that is never reached
	Log           *slog.Logger
	// Served is the TLS of calls from the peer, Dialled of calls to it; nil is plain text.
	Served, Dialled credentials.TransportCredentials

	// Refused gets calls from callers without the right, and tells whether to log the call: a flood is not logged.
	// nil logs all of them.
	Refused func(audit.Refusal) (row bool)

	// OwedLimit bounds Tenant.Owed, 2 s.
	OwedLimit time.Duration
	Wall      func() time.Time
	// Clock is CLOCK_BOOTTIME.
	Clock func() (lease.Instant, error)
}

// Keeper keeps a node's vote, and holds the lease for it when it can.
type Keeper struct {
	opt  Options
	boot string
	site atomic.Pointer[Site]
	held atomic.Pointer[right]
	hand *hand

	stats atomic.Pointer[Stats]

	epochs sync.Mutex   // held while the hand adopts, or a reset lowers
	resets atomic.Int64 // the number of the last reset that the store followed

	peer   *Remote
	keys   *acquaintance
	events chan event
	ended  chan struct{} // closed when the loop has ended
	calls  sync.WaitGroup

	// The fields below belong to the loop.
	ctx       context.Context //nolint:containedctx // of the calls that the loop starts
	seat      seat
	seated    bool // there is a voter and a candidate
	voter     lease.Voter
	candidate lease.Candidate
	life      int64 // of the candidate: answers to a former one do not count
	durable   lease.Record
	broken    bool // the content of the disk is unknown
	lapses    int64
	expired   int64 // tenures
	refused   int64 // renewals
	config    lease.Config
	follows   follows // of the vote
	resetFrom int64   // of the store
	foreign   elsewhere
	owesTell  tale
	answers   map[fleet.NodeName]lease.Reason
	releases  map[fleet.NodeName]bool // sent and not answered
	trouble   trouble                 // with the peer, until it answers
	waiting   []func(now lease.Instant) (done bool)
	handOvers map[chan<- fleet.HandOverResult]bool // requested and not finished
}

type event func(now lease.Instant)

// follows is the last reset that the vote followed, and what it had promised before.
type follows struct{ reset, from int64 }

// right is the basis of MayRun.
type right struct {
	until     lease.Instant
	unbounded bool
}

// elsewhere is the highest tenure of another node that this one knows.
type elsewhere struct {
	holder fleet.NodeName
	epoch  int64
}

var errEnded = fleet.Errorf(fleet.Unavailable, "the node is stopping")

// Open reads what is durable. Call Begin before anything of the node starts.
func Open(opt Options) (*Keeper, error) {
	if opt.Clock == nil {
		opt.Clock = boottime.Now
	}
	if opt.Refused == nil {
		opt.Refused = func(audit.Refusal) bool { return true }
	}
	if opt.Wall == nil {
		opt.Wall = time.Now
	}
	if opt.OwedLimit == 0 {
		opt.OwedLimit = 2 * time.Second
	}
	boot, err := boottime.Boot()
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		opt: opt, boot: boot, events: make(chan event, 64), ended: make(chan struct{}),
		answers: map[fleet.NodeName]lease.Reason{}, releases: map[fleet.NodeName]bool{},
		handOvers: map[chan<- fleet.HandOverResult]bool{},
	}
	k.hand = newHand(k)
	k.keys = newAcquaintance(k.peerKey)
	k.peer = &Remote{Key: opt.Key, Wall: opt.Wall, Redial: opt.Interval / 2, TLS: opt.Dialled, keys: k.keys}
	site, err := loadSite(filepath.Join(opt.Dir, SiteFile), opt.Site)
	if err != nil {
		return nil, err
	}
	k.site.Store(site)
	return k, nil
}

// Joined records that the region enrolled this name for the first time: it has not voted yet. Without it, a
// node without votes.json counts as one that lost its vote.
func Joined(dir string, site fleet.SiteName, node fleet.NodeName) error {
	path := filepath.Join(dir, votefile.Name)
	of := votefile.State{Site: site, Node: node}
	state, err := votefile.Load(path, of, votefile.First)
	if err != nil || state != of {
		return nil //nolint:nilerr // a file exists, and counts
	}
	return votefile.Save(path, of)
}

// Begin resumes a tenure that is still valid, or makes sure that nothing runs without one.
func (k *Keeper) Begin(ctx context.Context) error {
	now, err := k.opt.Clock()
	if err != nil {
		return err
	}
	k.ctx = ctx
	if err := k.sit(now, k.site.Load()); err != nil {
		return err
	}
	k.hand.want(k.desire(now))
	return k.hand.resume(ctx)
}

// Run votes and stands until the context ends; the node's lease stays held until its deadline.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.peer.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var hand sync.WaitGroup
	hand.Go(func() { k.hand.run(ctx) })
	k.ctx = ctx
	err := k.loop(ctx)
	cancel()
	close(k.ended)
	k.calls.Wait()
	hand.Wait()
	return err
}

// ticksPerInterval is the resolution of time: a failover waits for a tick.
const ticksPerInterval = 8

func (k *Keeper) loop(ctx context.Context) error {
	tick := time.NewTicker(k.opt.Interval / ticksPerInterval)
	defer tick.Stop()
	for {
		handle := event(k.tick)
		select {
		case <-ctx.Done():
			return nil
		case handle = <-k.events:
		case <-tick.C:
		}
		now, err := k.opt.Clock()
		if err != nil {
			return err
		}
		handle(now)
		k.after(now)
	}
}

// post runs a function in the loop.
func (k *Keeper) post(ctx context.Context, f event) error {
	select {
	case k.events <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-k.ended:
		return errEnded
	}
}

func (k *Keeper) tick(now lease.Instant) {
	if k.broken {
		k.reopen(now)
	}
	if !k.seated {
		return
	}
	v, _ := k.voter.Tick(now)
	k.keep(v)
	c, acts := k.candidate.Tick(now, rand.Float64()) //nolint:gosec // jitter is no secret
	k.carry(c, acts, now)
}

// after runs after each event: it gives the hand the desired state, and serves callers that wait.
func (k *Keeper) after(now lease.Instant) {
	k.listen()
	if site := k.site.Load(); site != nil && k.seated && !site.seat(k.opt.Node).votes {
		k.leave(now, site)
	}
	k.hand.want(k.desire(now))
	k.tell(now)
	k.publish()
	left := k.waiting[:0]
	for _, done := range k.waiting {
		if !done(now) {
			left = append(left, done)
		}
	}
	k.waiting = left
}

// SiteProject is the project of the site, "" before the region sent it.
func (k *Keeper) SiteProject() fleet.ProjectName {
	if s := k.site.Load(); s != nil {
		return s.Project
	}
	return ""
}

// SetSite applies what the region reports about the site; it ignores older reports.
func (k *Keeper) SetSite(ctx context.Context, s Site) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.Name != k.opt.Site {
		return fleet.Errorf(fleet.Invalid, "this node belongs to site %s", k.opt.Site)
	}
	done := make(chan error, 1)
	err := k.post(ctx, func(now lease.Instant) { done <- k.takeSite(now, s) })
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-k.ended:
		return errEnded
	}
}

func (k *Keeper) takeSite(now lease.Instant, s Site) error {
	if known := k.site.Load(); known != nil && s.Generation < known.Generation {
		return nil
	}
	if err := s.save(filepath.Join(k.opt.Dir, SiteFile)); err != nil {
		return err
	}
	k.site.Store(&s)
	return k.sit(now, &s)
}

// MayRun tells whether the node holds its site's lease, with enough time left to start something.
func (k *Keeper) MayRun() bool {
	r := k.held.Load()
	if r == nil {
		return false
	}
	now, err := k.opt.Clock()
	return err == nil && (r.unbounded || now < r.until.Add(-k.opt.TTL/8))
}

// Raise reports an epoch that was given: this node's vote goes only to higher ones.
func (k *Keeper) Raise(epoch int64) {
	read := k.resets.Load()
	k.hint(func(now lease.Instant) {
		if r := k.voter.Record(); k.seated && epoch > r.Promised && read == k.resets.Load() {
			k.keep(k.voter.See(r.Above(epoch), now))
		}
	})
}

// Told is Raise while this vote was never cast: a region gives epochs by itself until its nodes vote. Later
// epochs come from the votes, and their holder must be able to keep them.
func (k *Keeper) Told(epoch int64) {
	k.hint(func(now lease.Instant) {
		if r := k.voter.Record(); k.seated && r.Epoch == 0 && r.PromisedTo == "" && epoch > r.Promised {
			k.keep(k.voter.See(r.Above(epoch), now))
		}
	})
}

// hint drops the event if the loop is busy: it is repeated.
func (k *Keeper) hint(f event) {
	select {
	case k.events <- f:
	default:
	}
}

func nonce() (int64, error) {
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])>>1 | 1), nil //nolint:gosec // 63 bits
}
