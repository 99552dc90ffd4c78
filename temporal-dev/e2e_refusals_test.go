//go:build slow

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// listed waits until holdfast get refusals has one by a node.
func (s *stack) listed(t *testing.T, by, door, identity, reason, what string) {
	t.Helper()
	waitFor(t, "refusals have "+strings.Join([]string{by, door, identity, reason, what}, " "), func(ctx context.Context) error {
		all, err := s.api.Refusals(ctx, api.Page{Limit: 500})
		for _, r := range all.Items {
			if r.By == by && r.Door == door && r.Identity == identity && r.Reason == reason && strings.Contains(r.What, what) {
				return nil
			}
		}
		if err == nil {
			err = errNotYet
		}
		return err
	})
}

// peerRefuses calls the door of a peer with the keys of a node, and with one that nobody has.
func (s *stack) peerRefuses(t *testing.T, node, peer string) {
	var address string
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT peer_address FROM nodes WHERE name = $1`, peer).Scan(&address))
	vote := func(audience, candidate string) error {
		th := s.steal(t, node, audience)
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(th))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = nodev1.NewLeasesClient(conn).Vote(t.Context(), &nodev1.VoteRequest{
			Call: nodev1.Call_CALL_ASK, Site: "plant-1", Candidate: candidate, Ttl: durationpb.New(time.Second),
		})
		return err
	}
	require.Equal(t, codes.Unauthenticated, status.Code(vote("holdfast", node)), "a token for the region is none for the peer")
	s.listed(t, peer, "peer", "?node:"+node, "unauthenticated", "Vote")
	require.Equal(t, codes.PermissionDenied, status.Code(vote(tenure.PeerAudience(fleet.NodeName(peer)), peer)))
	s.listed(t, peer, "peer", "node:"+node, "not_the_candidate", "Vote for")
}

// staleAction has a node told to delete an instance by the region's word, but by the right that its
// site had before it failed over and back.
func (s *stack) staleAction(t *testing.T, st *story, node, peer string) {
	var epoch int64
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT epoch FROM site_leases WHERE site = 'plant-1'`).Scan(&epoch))
	s.failover(t, "plant-1", peer)
	s.failover(t, "plant-1", node)
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	cmd := fleet.RefreshDeploymentCommand{
		DeploymentID: strings.Repeat("a", 32), Site: "plant-1", Instance: fleet.InstanceName(st.key.Name), Role: fleet.RoleActive, Epoch: epoch,
		Revision: fleet.Revision{Version: fleet.Version{Era: 1, Revision: 1000}, Action: fleet.ActionDelete},
	}
	cmd.Signed = keys.SignCommand(s.signingKey(t), fleet.NodeName(node), cmd, time.Now().Add(time.Minute))
	require.ErrorContains(t, s.command(t, s.orders(t), node, "RefreshDeployment", cmd), "stale_epoch")
	s.listed(t, node, "node", "region", "stale_epoch", "deliver "+st.key.Name+" 1.1000 as active at epoch")
	waitFor(t, "it is counted", func(ctx context.Context) error {
		n, err := s.api.Node(ctx, node)
		if err == nil && n.Counters["stale_refused"] == 0 {
			err = errNotYet
		}
		return err
	})
	st.good(t, hash)
}
