package tenure_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
	"github.com/holdfast-io/holdfast/internal/sqlite"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// ttl leaves a busy machine margins to kill in.
const (
	ttl      = 4 * time.Second
	interval = time.Second
	patience = 60 * time.Second
	site     = fleet.SiteName("plant-1")
	nodeA    = fleet.NodeName("plant-1-a")
	nodeB    = fleet.NodeName("plant-1-b")
	press    = fleet.InstanceName("press")
)

// wire is a TCP proxy that can be cut: nothing comes through then, and nobody is told.
type wire struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	cut   bool
	mute  bool // requests arrive, and nothing comes back
	conns []net.Conn
	wg    sync.WaitGroup
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{l: l, target: target}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		c, err := w.l.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.conns = append(w.conns, c)
		cut := w.cut
		w.mu.Unlock()
		if cut {
			continue // it hangs
		}
		out, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, out)
		w.mu.Unlock()
		w.wg.Go(func() { w.copy(out, c, &w.cut) })
		w.wg.Go(func() { w.copy(c, out, &w.mute) })
	}
}

func (w *wire) copy(to, from net.Conn, swallows *bool) {
	defer to.Close()   //nolint:errcheck // it ends either way
	defer from.Close() //nolint:errcheck // it ends either way
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		cut := *swallows
		w.mu.Unlock()
		if cut {
			continue // swallowed: the connection is half open
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.mute = cut, cut
}

// silence lets requests through and nothing back.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = true
}

func (w *wire) address() string { return w.l.Addr().String() }

// regionVote is a region's vote in memory, over a real socket.
type regionVote struct {
	nodev1.UnimplementedLeasesServer
	addr string

	mu       sync.Mutex
	keys     map[fleet.NodeName]ed25519.PublicKey
	voter    lease.Voter
	told     int64
	releases int
}

// released counts the leases that were given back.
func (r *regionVote) released() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.releases
}

func newRegion(t *testing.T, keys map[fleet.NodeName]ed25519.PublicKey, lasts time.Duration) *regionVote {
	t.Helper()
	now, err := boottime.Now()
	require.NoError(t, err)
	r := &regionVote{keys: keys}
	cfg := lease.VoterConfig{Site: site, Name: lease.Region, Others: [2]fleet.NodeName{nodeA, nodeB}, TTL: lasts, Nonce: 7}
	// As the first declaration of a site writes it.
	r.voter = lease.Start(cfg, lease.Record{Promised: 1, Holder: nodeA, Epoch: 1}, now)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.addr = l.Addr().String()
	s := grpc.NewServer()
	nodev1.RegisterLeasesServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	ctx, cancel := context.WithCancel(context.Background())
	ticked := make(chan struct{})
	go func() { defer close(ticked); r.ticks(ctx) }()
	t.Cleanup(func() { cancel(); s.Stop(); <-done; <-ticked })
	return r
}

// revoke takes a node's key back.
func (r *regionVote) revoke(node fleet.NodeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, node)
}

func (r *regionVote) ticks(ctx context.Context) {
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.mu.Lock()
			now, _ := boottime.Now()
			r.voter, _ = r.voter.Tick(now)
			r.mu.Unlock()
		}
	}
}

func (r *regionVote) caller(ctx context.Context) (fleet.NodeName, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	claims, err := identity.VerifyFor(identity.LinkAudience, token, func(n fleet.NodeName) (ed25519.PublicKey, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.keys[n], nil
	}, time.Now())
	return claims.Node, err
}

func (r *regionVote) Vote(ctx context.Context, in *nodev1.VoteRequest) (*nodev1.VoteResponse, error) {
	who, err := r.caller(ctx)
	if err != nil || string(who) != in.GetCandidate() {
		return nil, status.Error(codes.Unauthenticated, "no")
	}
	calls := map[nodev1.Call]lease.Call{1: lease.Ask, 2: lease.Promise, 3: lease.Grant, 4: lease.Release}
	q := lease.Request{
		Site: site, Candidate: who, Epoch: in.GetEpoch(), Counter: in.GetCounter(), TTL: in.GetTtl().AsDuration(), Nonce: in.GetNonce(),
		Vote: lease.Standing{
			Promised: in.GetVote().GetPromised(), Holder: fleet.NodeName(in.GetVote().GetHolder()), Epoch: in.GetVote().GetEpoch(),
			Counter: in.GetVote().GetCounter(), TTL: in.GetVote().GetTtl().AsDuration(), Lost: in.GetVote().GetLost(),
		},
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, _ := boottime.Now()
	var a lease.Answer
	r.voter, a, _ = r.voter.Handle(calls[in.GetCall()], q, now)
	if a.Granted && in.GetCall() == nodev1.Call_CALL_RELEASE {
		r.releases++
	}
	return &nodev1.VoteResponse{
		Voter: string(a.Voter), Granted: a.Granted, Reason: string(a.Reason), Wait: durationpb.New(a.Wait), Nonce: a.Nonce,
		Vote: &nodev1.Standing{
			Promised: a.Vote.Promised, Holder: string(a.Vote.Holder), Epoch: a.Vote.Epoch, Counter: a.Vote.Counter,
			Ttl: durationpb.New(a.Vote.TTL), Lost: a.Vote.Lost,
		},
	}, nil
}

func (r *regionVote) Tell(ctx context.Context, in *nodev1.TellRequest) (*nodev1.TellResponse, error) {
	if _, err := r.caller(ctx); err != nil {
		return nil, status.Error(codes.Unauthenticated, "no")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = in.GetEpoch()
	return &nodev1.TellResponse{}, nil
}

// machine is a node of the pair: a directory that outlives its agents.
type machine struct {
	t      *testing.T
	pair   *pair
	name   fleet.NodeName
	dir    string
	key    identity.Key
	listen string
	region *wire // from it to the region
	peer   *wire // from the other one to it

	agent *node.Agent
	stop  func()
}

// pair is a site of two nodes with its region.
type pair struct {
	t       *testing.T
	ttl     time.Duration
	a, b    *machine
	region  *regionVote
	site    tenure.Site
	witness string
}

func setup(t *testing.T, changes ...func(*tenure.Site)) *pair {
	t.Helper()
	return setupFor(t, ttl, changes...)
}

// setupFor is a pair whose leases last so long.
func setupFor(t *testing.T, lasts time.Duration, changes ...func(*tenure.Site)) *pair {
	t.Helper()
	p := &pair{t: t, ttl: lasts, witness: filepath.Join(testkit.Dir(t), "witness")}
	p.a, p.b = p.machine(nodeA), p.machine(nodeB)
	keys := map[fleet.NodeName]ed25519.PublicKey{nodeA: p.a.key.SigningPublic(), nodeB: p.b.key.SigningPublic()}
	p.region = newRegion(t, keys, lasts)
	for _, m := range []*machine{p.a, p.b} {
		m.region, m.peer = newWire(t, p.region.addr), newWire(t, m.listen)
	}
	p.site = tenure.Site{Name: site, Generation: 1, OnIsolation: lease.IsolationStop, Members: []tenure.Member{
		{Node: nodeA, Role: fleet.RoleActive, PeerAddress: p.a.peer.address(), SigningKey: keys[nodeA]},
		{Node: nodeB, Role: fleet.RoleStandby, PeerAddress: p.b.peer.address(), SigningKey: keys[nodeB]},
	}}
	for _, change := range changes {
		change(&p.site)
	}
	t.Cleanup(p.noOverlap)
	return p
}

// machine has enrolled, and holds one instance in its own store.
func (p *pair) machine(name fleet.NodeName) *machine {
	t := p.t
	m := &machine{t: t, pair: p, name: name, dir: testkit.Dir(t), listen: testkit.Address()}
	key, err := identity.Generate(name)
	require.NoError(t, err)
	m.key = key.Enrolled("eu-1")
	require.NoError(t, m.key.Save(filepath.Join(m.dir, "node.key")))
	require.NoError(t, tenure.Joined(m.dir, site, name))
	store, err := sqlite.Open(t.Context(), filepath.Join(m.dir, "node.db"))
	require.NoError(t, err)
	_, _, err = store.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 1}, "")
	require.NoError(t, err)
	data := []byte(`{"a":1}`)
	sum := sha256.Sum256(data)
	content := fleet.Content{Kind: fleet.ContentJSON, Hash: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(len(data))}
	body, err := store.OpenStaging(t.Context(), content)
	require.NoError(t, err)
	require.NoError(t, body.Append(t.Context(), data))
	require.NoError(t, body.Seal(t.Context()))
	self, err := os.Executable()
	require.NoError(t, err)
	run, err := json.Marshal(fleet.Run{Command: []string{self, "witness", p.witness}, StopSeconds: 1})
	require.NoError(t, err)
	sum = sha256.Sum256(run)
	attempt := sqlite.Attempt{
		Instance: press, Right: sqlite.Right{Role: fleet.RoleStandby, Epoch: 1}, Run: run, Body: body,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: 1}, Action: fleet.ActionDeploy, Enabled: true, Content: content,
			RunHash: fleet.Hash(hex.EncodeToString(sum[:])),
		},
	}
	require.NoError(t, store.Accept(t.Context(), attempt))
	require.NoError(t, store.Commit(t.Context(), attempt))
	require.NoError(t, store.Close())
	t.Cleanup(m.end)
	return m
}

// start runs an agent; told says whether the region told it of the site.
func (m *machine) start(told bool) {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	log := slog.New(slog.NewTextHandler(testLog{m}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	rt := &guardian.Runtime{Root: filepath.Join(m.dir, "run"), Executable: self, Log: log}
	region := &tenure.Remote{Key: func() identity.Key { return m.key }, Wall: time.Now, Redial: interval / 2}
	region.At(m.region.address(), identity.LinkAudience)
	m.agent, err = node.Open(m.t.Context(), node.AgentOptions{
		Node: m.name, Site: site, Dir: m.dir, API: "http://127.0.0.1:1", Runtime: rt, Tenancy: rt, Log: log, Now: time.Now,
		SettleEvery: interval, Lease: &node.LeaseOptions{TTL: m.pair.ttl, Interval: interval, Region: region, Peer: m.listen, OwedLimit: interval / 10},
	})
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.agent.Run(ctx) }()
	m.stop = func() {
		cancel()
		require.NoError(m.t, <-done)
		require.NoError(m.t, m.agent.Close())
		region.Close()
		m.stop = nil
	}
	if told {
		require.NoError(m.t, m.agent.Leases.SetSite(m.t.Context(), m.pair.site))
	}
}

// start runs both agents, and lets the declared active hold before the other stands: of two that
// ask at the same moment either may win.
func (p *pair) start() {
	p.t.Helper()
	p.a.start(true)
	p.eventually("the declared active holds", func() bool { return p.a.agent.Leases.MayRun() })
	p.b.start(true)
}

type testLog struct{ m *machine }

func (l testLog) Write(b []byte) (int, error) {
	l.m.t.Logf("%s: %s", l.m.name, strings.TrimSpace(string(b)))
	return len(b), nil
}

// end stops the agent and all that it left running.
func (m *machine) end() {
	if m.stop != nil {
		m.stop()
	}
	rt := &guardian.Runtime{Root: filepath.Join(m.dir, "run")}
	require.NoError(m.t, rt.Stop(context.Background(), press))
}

// line is one of the witness's.
type line struct {
	node  fleet.NodeName
	epoch int64
	at    time.Duration
}

func (p *pair) lines() []line {
	raw, err := os.ReadFile(p.witness)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.t, err)
	var all []line
	for text := range strings.Lines(string(raw)) {
		var l line
		if n, _ := fmt.Sscan(text, &l.node, &l.epoch, &l.at); n == 3 && strings.HasSuffix(text, "\n") {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(x, y line) int { return int(x.at - y.at) })
	return all
}

// noOverlap: in the order of time epochs never fall, and no epoch is of two nodes.
func (p *pair) noOverlap() {
	of := map[int64]fleet.NodeName{}
	var last line
	for _, l := range p.lines() {
		require.GreaterOrEqual(p.t, l.epoch, last.epoch, "two nodes ran at once: %v after %v", l, last)
		if of[l.epoch] == "" {
			of[l.epoch] = l.node
		}
		require.Equal(p.t, of[l.epoch], l.node, "epoch %d is of two nodes", l.epoch)
		last = l
	}
}

func (p *pair) eventually(what string, cond func() bool) {
	p.t.Helper()
	require.Eventually(p.t, cond, patience, 10*time.Millisecond, what)
}

// runsOn waits until an instance wrote on a node after an instant.
func (p *pair) runsOn(m *machine, after time.Duration) line {
	p.t.Helper()
	var found line
	p.eventually("it runs on "+string(m.name), func() bool {
		for _, l := range p.lines() {
			if l.node == m.name && l.at > after {
				found = l
				return true
			}
		}
		return false
	})
	return found
}

// revoke takes a node's key back: the region refuses it, and so does the other node, which is told.
func (p *pair) revoke(m *machine) (at time.Duration) {
	p.t.Helper()
	p.region.revoke(m.name)
	told := p.site
	told.Generation++
	told.Members = slices.Clone(told.Members)
	for i := range told.Members {
		if told.Members[i].Node == m.name {
			told.Members[i].SigningKey = nil
		}
	}
	for _, other := range []*machine{p.a, p.b} {
		if other != m {
			require.NoError(p.t, other.agent.Leases.SetSite(p.t.Context(), told))
		}
	}
	return guardian.SinceBoot()
}

func (r *regionVote) aim(to fleet.NodeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, _ := boottime.Now()
	r.voter, _ = r.voter.Aim(to, now)
}
