package tenure_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// noted is a voter that notes by which connection each call came.
type noted struct {
	nodev1.UnimplementedLeasesServer

	mu sync.Mutex
	by map[nodev1.Call][]string
}

func (n *noted) Vote(ctx context.Context, in *nodev1.VoteRequest) (*nodev1.VoteResponse, error) {
	from, _ := peer.FromContext(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.by[in.GetCall()] = append(n.by[in.GetCall()], from.Addr.String())
	return &nodev1.VoteResponse{}, nil
}

func (n *noted) last(call nodev1.Call) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.by[call]
	return all[len(all)-1]
}

// X21: a holder has a connection ready that was silent, and by which it gives the lease back; who
// holds nothing has one alone.
func TestRemoteReleases(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	voter := &noted{by: map[nodev1.Call][]string{}}
	s := grpc.NewServer()
	nodev1.RegisterLeasesServer(s, voter)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	key, err := identity.Generate(nodeA)
	require.NoError(t, err)
	r := &tenure.Remote{Key: func() identity.Key { return key }, Wall: time.Now, Redial: 100 * time.Millisecond}
	t.Cleanup(r.Close)
	r.At(l.Addr().String(), tenure.PeerAudience(nodeB))
	vote := func(call lease.Call) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.Vote(ctx, call, lease.Request{Site: site, Candidate: nodeA})
		require.NoError(t, err)
	}
	vote(lease.Ask)
	vote(lease.Release)
	require.Equal(t, voter.last(nodev1.Call_CALL_ASK), voter.last(nodev1.Call_CALL_RELEASE), "it never held")
	vote(lease.Grant)
	require.Eventually(t, func() bool {
		vote(lease.Release)
		return voter.last(nodev1.Call_CALL_RELEASE) != voter.last(nodev1.Call_CALL_GRANT)
	}, patience, 5*time.Millisecond)
	used := voter.last(nodev1.Call_CALL_RELEASE)
	vote(lease.Grant)
	vote(lease.Ask)
	require.NotEqual(t, used, voter.last(nodev1.Call_CALL_GRANT), "it stays silent")
	require.NotEqual(t, used, voter.last(nodev1.Call_CALL_ASK))
}
