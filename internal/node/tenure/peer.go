package tenure

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// peerMessage is far above the size of a vote.
const peerMessage = 64 << 10

// peerStreams is how many calls one connection may have at once.
const peerStreams = 64

// booth is the Leases service of a node, for its peer only.
type booth struct {
	nodev1.UnimplementedLeasesServer
	k *Keeper
}

// Serve answers the peer's calls until the context ends.
func (k *Keeper) Serve(ctx context.Context, l net.Listener) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(peerMessage), grpc.MaxConcurrentStreams(peerStreams), grpc.ConnectionTimeout(2 * k.opt.TTL),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 10 * time.Minute}),
	}
	if k.opt.Served != nil {
		options = append(options, grpc.Creds(k.opt.Served))
	}
	s := grpc.NewServer(options...)
	nodev1.RegisterLeasesServer(s, &booth{k: k})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err := s.Serve(l)
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Vote answers the peer.
func (b *booth) Vote(ctx context.Context, in *nodev1.VoteRequest) (*nodev1.VoteResponse, error) {
	who, err := b.k.caller(ctx)
	if err != nil {
		return nil, err
	}
	q := requestOf(in)
	if q.Candidate != who {
		b.k.refuse("node:"+string(who), audit.NotTheCandidate, "Vote for "+strconv.Quote(string(q.Candidate[:min(len(q.Candidate), audit.MaxText)])), nil)
		return nil, status.Error(codes.PermissionDenied, "the caller is not the candidate")
	}
	b.k.keys.hear(in.GetKnowsKey())
	answer, err := b.k.vote(ctx, callOf(in.GetCall()), q)
	if err != nil {
		return nil, status.Error(codes.Unavailable, "this node cannot vote now")
	}
	out := wireAnswer(answer)
	out.KnowsKey = b.k.keys.knows()
	return out, nil
}

// caller authenticates the caller: the peer, by its key from the region.
func (k *Keeper) caller(ctx context.Context) (fleet.NodeName, error) {
	site := k.site.Load()
	if site == nil {
		return "", status.Error(codes.Unavailable, "this node does not know its site yet")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	token := ""
	if all := md.Get("authorization"); len(all) == 1 {
		token, _ = strings.CutPrefix(all[0], "Bearer ")
	}
	peer := site.seat(k.opt.Node).peer
	claims, err := identity.VerifyByAny(PeerAudience(k.opt.Node), token, func(node fleet.NodeName) ([]ed25519.PublicKey, error) {
		if node != peer.Node {
			return nil, fleet.Errorf(fleet.NotFound, "%s is not the peer", node)
		}
		return peer.keys(), nil
	}, k.opt.Wall())
	if err != nil {
		claimed := ""
		if node := identity.Claimed(token); node != "" {
			claimed = "?node:" + string(node)
		}
		k.refuse(claimed, audit.Unauthenticated, "Vote", errors.Unwrap(err))
		return "", status.Error(codes.Unauthenticated, "node token refused")
	}
	return claims.Node, nil
}

// refuse records that a call was refused; only the log gets the cause.
func (k *Keeper) refuse(who, reason, what string, why error) {
	if k.opt.Refused(audit.Refusal{Door: audit.DoorPeer, Identity: who, Reason: reason, What: what}) {
		k.opt.Log.Warn("refused", "door", audit.DoorPeer, "identity", who, "reason", reason, "what", what, "err", why)
	}
}

// vote casts this node's vote in the loop, and answers when it is durable.
func (k *Keeper) vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error) {
	type result struct {
		answer lease.Answer
		err    error
	}
	out := make(chan result, 1)
	if err := k.post(ctx, func(now lease.Instant) {
		a, err := k.handle(call, q, now)
		out <- result{a, err}
	}); err != nil {
		return lease.Answer{}, err
	}
	select {
	case r := <-out:
		return r.answer, r.err
	case <-ctx.Done():
		return lease.Answer{}, ctx.Err()
	case <-k.ended:
		return lease.Answer{}, errEnded
	}
}
