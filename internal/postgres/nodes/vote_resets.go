package nodes

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// VoteReset is what a reset changed in the region.
type VoteReset struct {
	Site   fleet.SiteName `json:"site"`
	Number int64          `json:"reset"`
	// Promised was the highest promised epoch before the reset; Epoch is it now.
	Promised int64 `json:"promised"`
	Epoch    int64 `json:"epoch"`
	// Lost says that the region's vote was lost before the reset, and still is.
	Lost bool `json:"lost,omitempty"`
}

// NodeReset is what a node last reported of the resets of its site.
type NodeReset struct {
	Node     fleet.NodeName `json:"node"`
	Revoked  bool           `json:"revoked,omitempty"`
	Enrolled bool           `json:"enrolled"`
	// Number is the last reset that it followed, From its highest epoch before that.
	Number int64 `json:"reset"`
	From   int64 `json:"from"`
}

// resetMargin is for epochs that nodes held and the region never heard of: a reset goes above them.
const resetMargin = 1 << 10

// ResetVotes resets the region's vote on a site to an epoch. Where epoch is 0, it takes the highest that
// not forged: forged ones are MaxEpochJump and above. Nodes follow when they learn of the reset.
func (s *Store) ResetVotes(ctx context.Context, site fleet.SiteName, epoch int64, actor string) (VoteReset, error) {
	out := VoteReset{Site: site}
	err := s.Tx(ctx, func(q *db.Queries) error {
		declared, before, err := lockSiteLease(ctx, q, site)
		if err != nil {
			return err
		}
		if declared == nil || before == nil {
			return postgres.OrNotFound(nil, "site", string(site), "holdfast get sites")
		}
		out.Promised, out.Epoch, out.Lost = before.Promised, epoch, before.Lost
		if epoch == 0 {
			believed, err := q.BelievedEpoch(ctx, db.BelievedEpochParams{Site: string(site), Far: fleet.MaxEpochJump})
			if err != nil {
				return err
			}
			out.Epoch = believed + resetMargin
		}
		out.Number, err = q.ResetVote(ctx, db.ResetVoteParams{Site: string(site), Epoch: out.Epoch})
		if err != nil {
			return err
		}
		if err := leaseEvent(ctx, q, declared, before, actor); err != nil {
			return err
		}
		return postgres.TellSite(ctx, q, string(site))
	})
	return out, err
}

// NodesReset lists how far the nodes of a site are with its last reset.
func (s *Store) NodesReset(ctx context.Context, site fleet.SiteName) ([]NodeReset, error) {
	rows, err := s.Q.NodesReset(ctx, string(site))
	out := make([]NodeReset, len(rows))
	for i, r := range rows {
		out[i] = NodeReset{Node: fleet.NodeName(r.Name), Revoked: r.Revoked, Enrolled: r.Enrolled, Number: r.Resets, From: r.ResetFrom}
	}
	return out, err
}
