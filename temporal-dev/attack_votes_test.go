//go:build slow

package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

const (
	// forgedEpoch is the highest that leaves room for one more.
	forgedEpoch = int64(math.MaxInt64 - 1)
	// soundEpoch is above all epochs that come about by themselves in these tests.
	soundEpoch = 100
	// revocationLimit is how soon a site has its active node back once a stolen key is revoked.
	revocationLimit = time.Minute
)

// X10, X20, X21: who stole the key of a standby changes nothing on the active node, forges no number that
// stays, and the site works again within a minute of the revocation.
func TestAttackVotes(t *testing.T) {
	t.Parallel()
	s := startStack(t, 5)
	together(t, []part{
		{"releases above the promise", s.attackReleases},             // plant-1
		{"forged answers", s.attackAnswers},                          // plant-2
		{"forged numbers everywhere", s.attackReset},                 // plant-3
		{"a word while the active stands still", s.attackTellPaused}, // plant-4
		{"an address of something else", func(t *testing.T) { s.attackAddress(t, "plant-5") }},
	})
}

// peerAddress is where the region says that a node takes votes.
func (s *stack) peerAddress(t *testing.T, node string) (address string) {
	t.Helper()
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT peer_address FROM nodes WHERE name = $1`, node).Scan(&address))
	return address
}

// voters are the two that a standby may ask beside its own: the region and the active node.
func (s *stack) voters(t *testing.T, thief, active string) map[string]nodev1.LeasesClient {
	t.Helper()
	return map[string]nodev1.LeasesClient{
		"region": nodev1.NewLeasesClient(s.steal(t, thief, keys.LinkAudience).link),
		active:   nodev1.NewLeasesClient(s.dial(t, s.peerAddress(t, active), s.steal(t, thief, tenure.PeerAudience(fleet.NodeName(active))))),
	}
}

func asks(call nodev1.Call, site, node string, epoch int64) *nodev1.VoteRequest {
	return &nodev1.VoteRequest{Call: call, Site: site, Candidate: node, Epoch: epoch, Counter: 1, Ttl: durationpb.New(e2eLease)}
}

// sound checks that no number that somebody forged is kept by a node.
func (s *stack) sound(t *testing.T, site, node string) {
	t.Helper()
	db, err := s.stores.of(node)
	require.NoError(t, err)
	var stored int64
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT max(epoch) FROM (SELECT epoch FROM meta UNION ALL SELECT epoch FROM instances UNION ALL SELECT epoch FROM slots)`).Scan(&stored))
	require.Less(t, stored, int64(soundEpoch), "node.db of %s", node)
	state, err := votefile.Load(filepath.Join(s.data, "nodes", node, votefile.Name),
		votefile.State{Site: fleet.SiteName(site), Node: fleet.NodeName(node)}, votefile.Enrolled)
	require.NoError(t, err)
	require.Less(t, max(state.Record.Promised, state.Known, state.Claim.Epoch), int64(soundEpoch), "votes.json of %s", node)
}

// keepsActive checks that a site is as it was, and runs what it ran.
func (s *stack) keepsActive(t *testing.T, site string, was leaseRow) {
	t.Helper()
	now, err := s.lease(t.Context(), site)
	require.NoError(t, err)
	require.Equal(t, was, now)
	s.sound(t, site, was.holder)
}

// attackReleases gives back what the standby never had, by ever higher epochs, at both voters. It used to
// depose the active after some 550 calls.
func (s *stack) attackReleases(t *testing.T) {
	const site, calls = "plant-1", 600
	st := newStory(t, s, site, "press")
	was := s.agreed(t, site)
	thief, starts := peerOf(site, was.holder), len(st.witness.starts(t))
	voters := s.voters(t, thief, was.holder)
	for name, voter := range voters {
		promised := was.promised
		for n := range int64(calls) {
			for _, call := range []nodev1.Call{nodev1.Call_CALL_RELEASE, nodev1.Call_CALL_PROMISE, nodev1.Call_CALL_GRANT} {
				epoch := promised + []int64{1, lease.MaxJump / 2, lease.MaxJump}[n%3]
				out, err := voter.Vote(t.Context(), asks(call, site, thief, epoch))
				require.NoError(t, err)
				require.False(t, out.GetGranted(), "%s grants call %d, %s of %d", name, n, call, epoch)
				promised = max(promised, out.GetVote().GetPromised())
			}
		}
		require.Less(t, promised, int64(soundEpoch), name)
	}
	s.keepsActive(t, site, was)

	_, err := s.api.RevokeNode(t.Context(), thief, api.Mutation{})
	require.NoError(t, err)
	for name, voter := range voters {
		waitFor(t, name+" rejects the key", func(ctx context.Context) error {
			_, err := voter.Vote(ctx, asks(nodev1.Call_CALL_ASK, site, thief, 0))
			if status.Code(err) != codes.Unauthenticated {
				return fmt.Errorf("it answered %w", err)
			}
			return nil
		})
	}
	s.keepsActive(t, site, was)
	require.Len(t, st.witness.starts(t), starts, "the instance ran on")
	s.attackTell(t, site, was)
}

// attackTell has the only node of a site tell the region an epoch that nobody could follow.
func (s *stack) attackTell(t *testing.T, site string, was leaseRow) {
	_, err := s.api.PutSite(t.Context(), site, api.SitePut{Nodes: []api.SiteNode{{Name: was.holder, Role: fleet.RoleActive}}}, api.Mutation{})
	require.NoError(t, err)
	voter := nodev1.NewLeasesClient(s.steal(t, was.holder, keys.LinkAudience).link)
	for _, epoch := range []int64{was.epoch + 2*lease.MaxJump, lease.Most, forgedEpoch} {
		_, err := voter.Tell(t.Context(), &nodev1.TellRequest{Site: site, Epoch: epoch})
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%d: %v", epoch, err)
	}
	s.written(t, "leases", "node:"+was.holder, "bad_epoch", "Tell "+site+" %")
	now := s.alone(t, site)
	require.Equal(t, was.holder, now.holder)
	require.Less(t, now.promised, int64(soundEpoch))
	s.sound(t, site, was.holder)
}

// attackTellPaused has who stole the standby's key tell the region an epoch while the active stands still, as
// only a site's only node may: when the two are a pair, and when the vote waits for the word of the one that
// decided alone. docs/lease.md
func (s *stack) attackTellPaused(t *testing.T) {
	const site = "plant-4"
	was := s.agreed(t, site)
	thief := peerOf(site, was.holder)
	s.order(t, "stop", thief)
	voter := nodev1.NewLeasesClient(s.steal(t, thief, keys.LinkAudience).link)
	tells := func() {
		t.Helper()
		before, err := s.lease(t.Context(), site)
		require.NoError(t, err)
		for _, epoch := range []int64{before.epoch, before.epoch + 1, before.epoch + lease.MaxJump, lease.Most, forgedEpoch} {
			_, err := voter.Tell(t.Context(), &nodev1.TellRequest{Site: site, Epoch: epoch})
			require.Equal(t, codes.PermissionDenied, status.Code(err), "%d: %v", epoch, err)
		}
		after, err := s.lease(t.Context(), site)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	listed := func() {
		t.Helper()
		s.written(t, "leases", "node:"+thief, "not_alone", "Tell "+site)
	}
	counter := func(ctx context.Context) (n int64, lost bool, err error) {
		err = s.pg.QueryRow(ctx, `SELECT counter, lost FROM site_leases WHERE site = $1`, site).Scan(&n, &lost)
		return n, lost, err
	}
	goesOn := func() {
		t.Helper()
		before, _, err := counter(t.Context())
		require.NoError(t, err)
		s.signal(t, was.holder, syscall.SIGCONT)
		waitFor(t, "the active goes on", func(ctx context.Context) error {
			n, lost, err := counter(ctx)
			if err == nil && (lost || n == before) {
				err = fmt.Errorf("the counter is %d, it was %d; lost: %t", n, before, lost)
			}
			return err
		})
		now, err := s.lease(t.Context(), site)
		require.NoError(t, err)
		require.Equal(t, was.holder, now.holder)
		require.Less(t, now.promised, int64(soundEpoch))
		s.sound(t, site, was.holder)
	}
	both := api.SitePut{Nodes: []api.SiteNode{{Name: was.holder, Role: fleet.RoleActive}, {Name: thief, Role: fleet.RoleStandby}}}

	pause := func() (ranOut func()) {
		t.Helper()
		s.signal(t, was.holder, syscall.SIGSTOP)
		paused := time.Now()
		return func() {
			t.Helper()
			eventually(t, "the lease ran out", func() bool { return time.Since(paused) > e2eLease })
		}
	}

	ranOut := pause()
	ranOut()
	tells()
	listed()
	goesOn()

	_, err := s.api.PutSite(t.Context(), site, api.SitePut{Nodes: both.Nodes[:1]}, api.Mutation{})
	require.NoError(t, err)
	waitFor(t, "the node knows that it is alone", func(context.Context) error {
		var known tenure.Site
		err := readJSON(filepath.Join(s.data, "nodes", was.holder, tenure.SiteFile), &known)
		if err == nil && len(known.Members) != 1 {
			err = errNotYet
		}
		return err
	})
	from := int64(0)
	waitFor(t, "no report of it is on its way any more: it goes with the first renewal", func(context.Context) error {
		of := votefile.State{Site: site, Node: fleet.NodeName(was.holder)}
		state, err := votefile.Load(filepath.Join(s.data, "nodes", string(was.holder), votefile.Name), of, votefile.Enrolled)
		if from == 0 {
			from = state.Record.Counter
		}
		if err == nil && state.Record.Counter < from+3 {
			err = errNotYet
		}
		return err
	})
	ranOut = pause()
	_, err = s.api.PutSite(t.Context(), site, both, api.Mutation{})
	require.NoError(t, err)
	tells()
	_, lost, err := counter(t.Context())
	require.NoError(t, err)
	require.True(t, lost, "the vote waits for the word of the one that decided alone")
	ranOut()
	goesOn() // with the standby down: it reports the last epoch that it decided alone
	listed()
}

// alone waits until the region heard the epoch of a site's only node.
func (s *stack) alone(t *testing.T, site string) (now leaseRow) {
	t.Helper()
	waitFor(t, "the node decides alone", func(ctx context.Context) (err error) {
		if now, err = s.lease(ctx, site); err == nil && !now.held {
			err = errNotYet
		}
		return err
	})
	return now
}

// forger answers votes as the peer of a node, by numbers that nobody could follow.
type forger struct {
	nodev1.UnimplementedLeasesServer
	name  string
	calls atomic.Int64
	token atomic.Value // that the last call came with
}

// forge stands in for a node, with a certificate where the region speaks TLS.
func (s *stack) forge(t *testing.T, at net.Listener, node string) *forger {
	t.Helper()
	var options []grpc.ServerOption
	if s.doc.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.serves(t, s.authority(t), node))))
	}
	f := &forger{name: node}
	server := grpc.NewServer(options...)
	nodev1.RegisterLeasesServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(at) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-served) })
	return f
}

func (f *forger) Vote(ctx context.Context, in *nodev1.VoteRequest) (*nodev1.VoteResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.token.Store(strings.TrimPrefix(strings.Join(md.Get("authorization"), " "), "Bearer "))
	n := f.calls.Add(1)
	numbers := []int64{forgedEpoch, lease.Most, lease.MaxJump}
	forged := numbers[n%3]
	return &nodev1.VoteResponse{
		Voter: f.name, Granted: n%2 == 0, Reason: []string{"granted", "held", "outbid", "behind"}[n%4], Nonce: n, Wait: durationpb.New(0),
		Vote: &nodev1.Standing{Promised: forged, Holder: f.name, Epoch: forged, Counter: forged, Ttl: in.GetTtl()},
	}, nil
}

// attackAnswers stands in for the standby and answers the active, which used to keep one forged answer in
// its store for ever. Then it takes the lease of a node that is down, by ever higher epochs.
func (s *stack) attackAnswers(t *testing.T) {
	const site = "plant-2"
	was := s.agreed(t, site)
	thief := peerOf(site, was.holder)
	address := s.peerAddress(t, thief)
	voters := s.voters(t, thief, was.holder)
	s.order(t, "stop", thief)
	listener, err := net.Listen("tcp", address) //nolint:noctx // on this machine
	require.NoError(t, err)
	f := s.forge(t, listener, thief)
	answered := func() {
		t.Helper()
		until := f.calls.Load() + 12 // each of its answers, to whatever is asked
		waitFor(t, "the forged answers are heard", func(context.Context) error {
			if f.calls.Load() < until {
				return errNotYet
			}
			return nil
		})
	}
	answered()
	s.keepsActive(t, site, was)
	s.order(t, "stop", was.holder) // it gives the lease back
	s.order(t, "start", was.holder)
	answered()
	var now leaseRow
	waitFor(t, "it is active again", func(ctx context.Context) (err error) {
		if now, err = s.lease(ctx, site); err == nil && (!now.held || now.holder != was.holder) {
			err = errNotYet
		}
		return err
	})
	require.Less(t, now.promised, int64(soundEpoch))
	s.sound(t, site, was.holder)
	_, err = voters[was.holder].Vote(t.Context(), asks(nodev1.Call_CALL_PROMISE, site, thief, forgedEpoch))
	require.NoError(t, err)
	s.sound(t, site, was.holder)

	s.order(t, "stop", was.holder)
	took := int64(0)
	waitFor(t, "the stolen key has the region's vote", func(ctx context.Context) error {
		if now, err = s.lease(ctx, site); err != nil {
			return err
		}
		for range 100 {
			took = max(took, now.promised) + lease.MaxJump
			out, err := voters["region"].Vote(ctx, asks(nodev1.Call_CALL_GRANT, site, thief, took))
			if err == nil && !out.GetGranted() {
				took, err = 0, fmt.Errorf("it answers %s", out.GetReason())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.Greater(t, took, int64(100*lease.MaxJump))
	s.order(t, "start", was.holder)
	revoked := time.Now()
	_, err = s.api.RevokeNode(t.Context(), thief, api.Mutation{})
	require.NoError(t, err)
	s.activeWithin(t, site, was.holder, took, revoked)
}

// activeWithin waits until a node holds its site's lease by an epoch above one.
func (s *stack) activeWithin(t *testing.T, site, node string, above int64, since time.Time) {
	t.Helper()
	waitFor(t, node+" is active", func(ctx context.Context) error {
		now, err := s.lease(ctx, site)
		if err == nil && (!now.held || now.holder != node || now.epoch <= above) {
			err = fmt.Errorf("the lease is %+v", now)
		}
		return err
	})
	took := time.Since(since)
	t.Logf("%s is active after %v", node, took)
	require.Less(t, took, revocationLimit)
}

// poison writes what one forged message left on a machine before there was a bound. Its node is stopped.
func (s *stack) poison(t *testing.T, site, node, holder string) {
	t.Helper()
	state := map[string]any{ // as it was written then
		"site": site, "node": node, "claim": lease.Claim{},
		"record": lease.Record{Promised: forgedEpoch, Holder: fleet.NodeName(holder), Epoch: forgedEpoch, Counter: forgedEpoch, TTL: e2eLease},
	}
	raw, err := json.Marshal(state)
	require.NoError(t, err)
	sum := sha256.Sum256(raw)
	file, err := json.Marshal(map[string]any{"state": json.RawMessage(raw), "sum": hex.EncodeToString(sum[:])})
	require.NoError(t, err)
	dir := filepath.Join(s.data, "nodes", node)
	require.NoError(t, os.WriteFile(filepath.Join(dir, votefile.Name), file, 0o600))
	path := url.URL{Scheme: "file", Path: filepath.Join(dir, "node.db"), RawQuery: "_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", path.String())
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for _, table := range []string{"meta", "instances", "slots"} {
		_, err = db.ExecContext(t.Context(), "UPDATE "+table+" SET epoch = ?", forgedEpoch)
		require.NoError(t, err)
	}
}

// attackReset is the way back of a site whose numbers were forged before there was a bound: in the region
// and on both machines.
func (s *stack) attackReset(t *testing.T) {
	const site = "plant-3"
	st := newStory(t, s, site, "press")
	was, err := s.lease(t.Context(), site)
	require.NoError(t, err)
	thief := peerOf(site, was.holder)
	for _, node := range []string{was.holder, thief} {
		s.order(t, "stop", node)
		s.stores.forget(node)
		s.poison(t, site, node, thief)
	}
	_, err = s.pg.Exec(t.Context(), `UPDATE site_leases SET holder = $2, epoch = $3, promised = $3, promised_to = $2, counter = $3, released = false WHERE site = $1`,
		site, thief, forgedEpoch)
	require.NoError(t, err)
	s.order(t, "start", was.holder)
	operator := newCLI(t, s)
	began := time.Now()
	operator.call(t, cliOK, "node", "revoke", thief)
	var out struct {
		Promised, Epoch int64
		Nodes           []struct {
			Node, State string
			From        int64
		}
	}
	operator.json(t, &out, cliOK, "admin", "reset-votes", site, "--yes", "--database-url", s.database, "--region", regionName)
	s.activeWithin(t, site, was.holder, out.Epoch, began)
	require.Equal(t, forgedEpoch, out.Promised)
	require.Less(t, out.Epoch, int64(lease.MaxJump))
	for _, n := range out.Nodes {
		want := map[string]string{was.holder: "reset", thief: "revoked"}[n.Node]
		require.Equal(t, want, n.State, n.Node)
		if n.Node == was.holder {
			require.Equal(t, forgedEpoch, n.From)
		}
	}
	st.witness.runs(t, st.witness.starts(t)[0].hash)

	require.NoError(t, os.Remove(filepath.Join(s.data, "nodes", thief, "node.key")))
	s.order(t, "start", thief) // with a new join token, as each start on a laptop
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	st.good(t, hash)
	s.failover(t, site, thief)
	st.good(t, hash)
}
