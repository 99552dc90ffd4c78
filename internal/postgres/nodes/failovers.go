package nodes

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// FailoverRequest asks that a site's lease goes to a node, "" for the other of the pair.
type FailoverRequest struct {
	postgres.Request
	Site    fleet.SiteName
	To      fleet.NodeName
	Force   bool
	DrainOf fleet.NodeName // whose drain asks
}

// AskFailover opens an operation for a failover. What was asked towards another node ends: the newest request
// counts.
func (s *Store) AskFailover(ctx context.Context, in FailoverRequest) (postgres.Operation, error) {
	var site *fleet.Object
	var lease *db.SiteLease
	return postgres.Only(s.Request(ctx, in.Request, func(q *db.Queries) (err error) {
		site, lease, err = lockSiteLease(ctx, q, in.Site)
		return err
	}, func(q *db.Queries) (_ []postgres.Operation, err error) {
		if !in.OfSite(site) {
			return nil, postgres.OrNotFound(nil, "site", string(in.Site), "holdfast get sites")
		}
		if in.To, err = failoverTarget(ctx, q, in, lease); err != nil {
			return nil, err
		}
		op, err := openFailover(ctx, q, in, site.Project)
		return []postgres.Operation{op}, err
	}))
}

// failoverTarget checks that the node can be the holder, or finds the one that can.
func failoverTarget(ctx context.Context, q *db.Queries, in FailoverRequest, lease *db.SiteLease) (fleet.NodeName, error) {
	pair, err := q.PairNodes(ctx, string(in.Site))
	if err != nil {
		return "", err
	}
	if len(pair) < 2 || lease == nil {
		return "", fleet.Errorf(fleet.IllegalState, "site %s has no second node to take over", in.Site).At("site").
			WithHint("declare a standby: PUT /api/v1/sites/" + string(in.Site))
	}
	for _, n := range pair {
		if string(in.To) != n.Name && (in.To != "" || n.Name == lease.Holder) {
			continue
		}
		if n.RevokedAt != nil {
			return "", fleet.Errorf(fleet.IllegalState, "the key of node %s is revoked", n.Name).At("/to")
		}
		if n.CordonedAt != nil && !in.Force {
			return "", fleet.Errorf(fleet.IllegalState, "node %s is cordoned, so it cannot take over", n.Name).At("/to").
				WithHint("holdfast uncordon " + n.Name + ", or use --force")
		}
		return fleet.NodeName(n.Name), nil
	}
	return "", fleet.Errorf(fleet.Invalid, "node %s does not belong to the pair of site %s", in.To, in.Site).At("/to").
		WithHint("holdfast get nodes --site " + string(in.Site))
}

func openFailover(ctx context.Context, q *db.Queries, in FailoverRequest, project fleet.ProjectName) (postgres.Operation, error) {
	id, err := postgres.NewID()
	if err != nil {
		return postgres.Operation{}, err
	}
	subject := fleet.SiteSubject(in.Site)
	p := db.SupersedeFailoversParams{Subject: subject, Name: string(in.To), Message: "by operation " + id + ", towards node " + string(in.To)}
	if err := q.SupersedeFailovers(ctx, p); err != nil {
		return postgres.Operation{}, err
	}
	return postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
		ID: id, Kind: fleet.OperationFailover, Site: string(in.Site), Name: string(in.To), Subject: subject, Project: project,
		Forced: in.Force, DrainOf: in.DrainOf,
	})
}

// SeeFailover takes over what is asked of a site's lease, notes why it waits, and reads where
// the lease is.
func (s *Store) SeeFailover(ctx context.Context, in fleet.FailoverLook) (fleet.FailoverSeen, error) {
	var out fleet.FailoverSeen
	subject := fleet.SiteSubject(in.Site)
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = fleet.FailoverSeen{}
		if err := postgres.Serve(ctx, q, postgres.Server{Run: in.Run, Build: in.Build}, subject); err != nil {
			return err
		}
		if in.Reason != "" {
			p := db.NoteFailoverParams{Subject: subject, Name: string(in.To), Reason: in.Reason, Message: in.Message}
			if err := q.NoteFailover(ctx, p); err != nil {
				return err
			}
		}
		op, err := q.NewestFailover(ctx, subject)
		if postgres.NoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		out = fleet.FailoverSeen{
			Operation: fleet.OperationID(op.ID), To: fleet.NodeName(op.Name), Force: op.Forced, Cancelled: op.CancelRequested,
			Asked: op.CreatedAt, Deadline: op.DeadlineAt,
		}
		if out.At, err = q.Now(ctx); err != nil {
			return err
		}
		return seeLease(ctx, q, in.Site, &out)
	})
	return out, err
}

func seeLease(ctx context.Context, q *db.Queries, site fleet.SiteName, out *fleet.FailoverSeen) error {
	row, err := q.VoteOf(ctx, string(site))
	if postgres.NoRows(err) {
		return nil // it has no nodes any more
	}
	if err != nil {
		return err
	}
	v := voteOf(db.VotesRow(row))
	out.Holder, out.Epoch, out.Released = fleet.NodeName(row.Holder), row.Epoch, row.Released
	out.Target, out.Lost, out.Voters = v.Vote.Target, v.Vote.Lost, v.Pair
	out.Counter, out.TTL = v.Vote.Counter, v.Vote.TTL
	there, err := q.NodeOnLink(ctx, new(string(out.To)))
	if err != nil {
		return err
	}
	out.Away = !there
	return seeHolder(ctx, q, out)
}

// seeHolder reads whether the holder can be spoken to, or could not be yet. One that drains can.
func seeHolder(ctx context.Context, q *db.Queries, out *fleet.FailoverSeen) error {
	there, err := q.NodeHasStream(ctx, new(string(out.Holder)))
	if err != nil {
		return err
	}
	out.HolderAway = !there
	out.There, err = q.LinkThere(ctx)
	return err
}

// EndFailover ends what was asked towards one node; the same end again changes nothing.
func (s *Store) EndFailover(ctx context.Context, e fleet.FailoverEnd) error {
	return s.Q.EndFailovers(ctx, db.EndFailoversParams{
		Subject: fleet.SiteSubject(e.Site), Name: string(e.To), State: string(e.State), Reason: e.Reason, Message: e.Message,
		OnlyCancelled: e.OnlyCancelled,
	})
}

// Failbacks gives one page of the sites of a shard whose lease may be due to go back, by name.
func (s *Store) Failbacks(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.Failback, error) {
	rows, err := s.Q.Failbacks(ctx, db.FailbacksParams{After: after, Shards: int64(shards), Shard: int64(shard), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]fleet.Failback, len(rows))
	for i, r := range rows {
		out[i] = fleet.Failback{
			Site: fleet.SiteName(r.Site), Node: fleet.NodeName(r.Node), Holder: fleet.NodeName(r.Holder),
			Unsettled: r.Unsettled, UnderWay: r.UnderWay, Ready: r.Ready, Level: !r.Owed,
			Unseen: fromSeconds(r.UnseenSeconds), Up: fromSeconds(r.UpSeconds), Held: fromSeconds(r.HeldSeconds),
		}
		if out[i].Level {
			drifted, err := s.Q.DriftOfNode(ctx, db.DriftOfNodeParams{Node: r.Node, Site: r.Site, MaxRows: 1})
			if err != nil {
				return nil, err
			}
			out[i].Level = len(drifted) == 0
		}
	}
	return out, nil
}

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
