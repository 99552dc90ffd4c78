package tenure

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

var wireCalls = map[lease.Call]nodev1.Call{
	lease.Ask: nodev1.Call_CALL_ASK, lease.Promise: nodev1.Call_CALL_PROMISE,
	lease.Grant: nodev1.Call_CALL_GRANT, lease.Release: nodev1.Call_CALL_RELEASE,
}

// callOf returns "" for an unknown call, which a voter refuses.
func callOf(in nodev1.Call) lease.Call {
	for call, wire := range wireCalls {
		if wire == in {
			return call
		}
	}
	return ""
}

func requestOf(in *nodev1.VoteRequest) lease.Request {
	return lease.Request{
		Site: fleet.SiteName(in.GetSite()), Candidate: fleet.NodeName(in.GetCandidate()), Epoch: in.GetEpoch(),
		Counter: in.GetCounter(), TTL: span(in.GetTtl()), Nonce: in.GetNonce(), Vote: standingOf(in.GetVote()),
	}
}

func wireRequest(call lease.Call, q lease.Request) *nodev1.VoteRequest {
	return &nodev1.VoteRequest{
		Call: wireCalls[call], Site: string(q.Site), Candidate: string(q.Candidate), Epoch: q.Epoch,
		Counter: q.Counter, Ttl: durationpb.New(q.TTL), Nonce: q.Nonce, Vote: wireStanding(q.Vote),
	}
}

func answerOf(in *nodev1.VoteResponse) lease.Answer {
	return lease.Answer{
		Voter: fleet.NodeName(in.GetVoter()), Granted: in.GetGranted(), Reason: lease.Reason(in.GetReason()),
		Vote: standingOf(in.GetVote()), Wait: span(in.GetWait()), Nonce: in.GetNonce(), Resets: in.GetResets(),
	}
}

func wireAnswer(a lease.Answer) *nodev1.VoteResponse {
	return &nodev1.VoteResponse{
		Voter: string(a.Voter), Granted: a.Granted, Reason: string(a.Reason), Vote: wireStanding(a.Vote),
		Wait: durationpb.New(a.Wait), Nonce: a.Nonce,
	}
}

func standingOf(in *nodev1.Standing) lease.Standing {
	return lease.Standing{
		Promised: in.GetPromised(), Holder: fleet.NodeName(in.GetHolder()), Epoch: in.GetEpoch(),
		Counter: in.GetCounter(), TTL: span(in.GetTtl()), Lost: in.GetLost(),
	}
}

func wireStanding(s lease.Standing) *nodev1.Standing {
	return &nodev1.Standing{
		Promised: s.Promised, Holder: string(s.Holder), Epoch: s.Epoch, Counter: s.Counter,
		Ttl: durationpb.New(s.TTL), Lost: s.Lost,
	}
}

func span(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.AsDuration()
}
