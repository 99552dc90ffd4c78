package leases

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// calls of the wire; the voter rejects any other.
var calls = map[nodev1.Call]lease.Call{
	nodev1.Call_CALL_ASK: lease.Ask, nodev1.Call_CALL_PROMISE: lease.Promise,
	nodev1.Call_CALL_GRANT: lease.Grant, nodev1.Call_CALL_RELEASE: lease.Release,
}

func requestOf(in *nodev1.VoteRequest) (lease.Call, lease.Request) {
	return calls[in.GetCall()], lease.Request{
		Site: fleet.SiteName(in.GetSite()), Candidate: fleet.NodeName(in.GetCandidate()), Epoch: in.GetEpoch(), Counter: in.GetCounter(),
		TTL: duration(in.GetTtl()), Nonce: in.GetNonce(), Vote: standingOf(in.GetVote()),
	}
}

func standingOf(in *nodev1.Standing) lease.Standing {
	return lease.Standing{
		Promised: in.GetPromised(), Holder: fleet.NodeName(in.GetHolder()), Epoch: in.GetEpoch(), Counter: in.GetCounter(),
		TTL: duration(in.GetTtl()), Lost: in.GetLost(),
	}
}

// duration is rounded up to the resolution of the database: a voter rather waits longer.
func duration(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return (d.AsDuration() + time.Microsecond - 1).Truncate(time.Microsecond)
}

func responseOf(a lease.Answer) *nodev1.VoteResponse {
	return &nodev1.VoteResponse{
		Voter: string(a.Voter), Granted: a.Granted, Reason: string(a.Reason), Wait: durationpb.New(a.Wait), Nonce: a.Nonce, Resets: a.Resets,
		Vote: &nodev1.Standing{
			Promised: a.Vote.Promised, Holder: string(a.Vote.Holder), Epoch: a.Vote.Epoch, Counter: a.Vote.Counter,
			Ttl: durationpb.New(a.Vote.TTL), Lost: a.Vote.Lost,
		},
	}
}
