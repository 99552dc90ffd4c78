package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// The phases of a delivery, as its history shows them.
const (
	phasePersisted = "persisted"
	phaseNotified  = "notified"
	phaseRecorded  = "recorded"
)

// Claim numbers the attempt and writes the delivery and its pending row, superseding the
// older one of the same subject (N16). It is refused unless the run is the current one.
func (s *Store) Claim(ctx context.Context, c fleet.Claim) (fleet.InstanceSeen, error) {
	return s.act(ctx, "claim", c.Subject, func(q *db.Queries, sub db.Subject) error {
		_, err := q.DeliveryByClaim(ctx, c.Run+"/"+c.Step)
		if err == nil {
			return nil // claimed already
		}
		if !noRows(err) {
			return failed("read the claim", err)
		}
		if sub.EntityRun != c.Run {
			return fleet.Errorf(fleet.Conflict, "run %s does not speak for %s any more", c.Run, c.Name())
		}
		return s.claim(ctx, q, c, sub)
	})
}

func (s *Store) claim(ctx context.Context, q *db.Queries, c fleet.Claim, sub db.Subject) error {
	r, err := q.GetRevision(ctx, db.GetRevisionParams{Site: sub.Site, Name: sub.Name, Revision: sub.DesiredRevision})
	if err != nil {
		return failed("read revision", err)
	}
	lease, err := q.LockLease(ctx, sub.Site)
	if err != nil {
		return noActive(err, sub.Site)
	}
	if err := supersede(ctx, q, c.Subject, r.Revision); err != nil {
		return err
	}
	attempt, err := q.NextAttempt(ctx, db.NextAttemptParams{Site: sub.Site, Name: sub.Name})
	if err != nil {
		return failed("number the attempt", err)
	}
	id, err := NewID()
	if err != nil {
		return err
	}
	from, err := snapshot(ctx, q, c.Key())
	if err != nil {
		return err
	}
	p := db.InsertDeliveryParams{
		ID: id, Site: sub.Site, Name: sub.Name, Revision: r.Revision, Attempt: attempt, Claim: c.Run + "/" + c.Step,
		Node: lease.Holder, Epoch: lease.Epoch, RequestedBy: r.CreatedBy, WorkflowID: c.Workflow, RunID: c.Run,
		Seconds: c.Deadline.Seconds(),
	}
	if from != nil {
		p.FromRevision = from.Revision
	}
	if err := q.InsertDelivery(ctx, p); err != nil {
		return failed("write the delivery", err)
	}
	return persist(ctx, q, c, r, id, lease.Holder)
}

// supersede ends the open delivery of the subject and every pending row of it.
func supersede(ctx context.Context, q *db.Queries, of fleet.Subject, revision int64) error {
	site, name := string(of.Site), string(of.Instance)
	if _, err := q.SupersedeOpen(ctx, db.SupersedeOpenParams{Site: site, Name: name}); err != nil {
		return failed("supersede the open delivery", err)
	}
	if err := q.DeletePendingOf(ctx, db.DeletePendingOfParams{Site: site, Name: name}); err != nil {
		return failed("delete pending rows", err)
	}
	return endOperations(ctx, q, of.Name(), ending{
		To: revision - 1, State: fleet.OperationSuperseded, Reason: "newer_revision",
		Message: "a newer revision was released",
	})
}

func persist(ctx context.Context, q *db.Queries, c fleet.Claim, r db.Revision, id, holder string) error {
	err := q.InsertPending(ctx, db.InsertPendingParams{
		DeploymentID: id, Site: r.Site, Name: r.Name, Revision: r.Revision, RevisionHash: r.BodyHash, Seconds: c.TTL.Seconds(),
	})
	if err != nil {
		return failed("write the pending row", err)
	}
	nodes, err := q.NodesOfSite(ctx, r.Site)
	if err != nil {
		return failed("read the site's nodes", err)
	}
	for _, n := range nodes {
		role := roleOf(n, holder)
		if role == fleet.RoleWorker {
			continue
		}
		t := db.InsertTargetParams{DeliveryID: id, Node: n.Name, Role: string(role), Total: r.Size}
		if err := q.InsertTarget(ctx, t); err != nil {
			return failed("write a target", err)
		}
	}
	return failed("attach the delivery", q.AttachDelivery(ctx, db.AttachDeliveryParams{
		DeliveryID: id, Subject: c.Name(), Revision: r.Revision,
	}))
}

func noActive(err error, site string) error {
	if !noRows(err) {
		return failed("read the lease", err)
	}
	return orNotFound(nil, "active node of site", site, "give the site an active node")
}

// Prepare re-reads who holds the lease and writes the token's hash, bound to the node.
func (s *Store) Prepare(ctx context.Context, p fleet.Prepare) (fleet.Prepared, error) {
	var out fleet.Prepared
	err := s.tx(ctx, "prepare the notify", func(q *db.Queries) error {
		node, err := q.GetNode(ctx, string(p.Node))
		if err != nil && !noRows(err) {
			return failed("read the node", err)
		}
		if err != nil || node.SealingKey == nil || node.RevokedAt != nil || node.RemovedAt != nil {
			return fleet.Errorf(fleet.Unavailable, "node %s is not enrolled", p.Node).
				WithHint("make a join token and start the node with it")
		}
		lease, err := q.GetLease(ctx, string(p.Site))
		if err != nil {
			return noActive(err, string(p.Site))
		}
		out.SealingKey = node.SealingKey
		out.Command = fleet.RefreshDeploymentCommand{
			Site: p.Site, Instance: p.Instance, Role: roleOf(node, lease.Holder), Epoch: lease.Epoch, Timestamp: time.Now().UTC(),
		}
		if p.Ticket != "" {
			return prepareTicket(ctx, q, p, &out)
		}
		return prepareDelivery(ctx, q, p, lease.Epoch, &out)
	})
	return out, err
}

func prepareDelivery(ctx context.Context, q *db.Queries, p fleet.Prepare, epoch int64, out *fleet.Prepared) error {
	d, err := q.LockDelivery(ctx, string(p.Delivery))
	if err != nil {
		return failed("read the delivery", err)
	}
	if d.State != string(fleet.DeliveryOpen) || d.Epoch != epoch {
		return fleet.Errorf(fleet.Conflict, "delivery %s is %s in epoch %d", p.Delivery, d.State, d.Epoch)
	}
	if _, err := q.NotifyTarget(ctx, db.NotifyTargetParams{DeliveryID: d.ID, Node: string(p.Node)}); err != nil {
		return failed("mark the target as notified", err)
	}
	if d.Phase == phasePersisted {
		if err := q.SetPhase(ctx, db.SetPhaseParams{ID: d.ID, Phase: phaseNotified}); err != nil {
			return failed("mark the delivery as notified", err)
		}
	}
	extend := db.ExtendPendingParams{DeploymentID: d.ID, Seconds: p.TTL.Seconds()}
	if err := q.ExtendPending(ctx, extend); err != nil {
		return failed("extend the pending row", err)
	}
	out.Deadline = d.DeadlineAt
	return fillCommand(ctx, q, p, d.ID, d.Revision, out)
}

func prepareTicket(ctx context.Context, q *db.Queries, p fleet.Prepare, out *fleet.Prepared) error {
	snap, err := snapshot(ctx, q, p.Key())
	if err != nil {
		return err
	}
	if snap == nil {
		return orNotFound(nil, "deployed revision of", p.Name(), "deploy it first")
	}
	err = q.InsertTicket(ctx, db.InsertTicketParams{
		ID: string(p.Ticket), Site: string(p.Site), Name: string(p.Instance), Node: string(p.Node),
		Revision: snap.Revision, Seconds: p.TTL.Seconds(),
	})
	if err != nil {
		return failed("write the snapshot ticket", err)
	}
	out.Deadline = time.Now().Add(p.TTL)
	return fillCommand(ctx, q, p, string(p.Ticket), snap.Revision, out)
}

func fillCommand(ctx context.Context, q *db.Queries, p fleet.Prepare, id string, revision int64, out *fleet.Prepared) error {
	r, err := q.GetRevision(ctx, db.GetRevisionParams{Site: string(p.Site), Name: string(p.Instance), Revision: revision})
	if err != nil {
		return failed("read revision", err)
	}
	out.Command.DeploymentID, out.Command.Revision, out.Command.DeployedBy = id, revisionOf(&r), r.CreatedBy
	return failed("write the fetch token", q.InsertFetchToken(ctx, db.InsertFetchTokenParams{
		DeploymentID: id, Node: string(p.Node), Hash: p.TokenHash, Seconds: max(p.TTL, time.Until(out.Deadline)).Seconds(),
	}))
}

// FetchContent is what a deploymentId can be exchanged for.
type FetchContent struct {
	Content fleet.Content
	Run     json.RawMessage
	Tokens  []FetchToken
}

// FetchToken is what the region keeps of a token: its hash and the node it was sealed to.
type FetchToken struct {
	Node fleet.NodeName
	Hash []byte
}

// Fetchable finds what an id stands for now: an open delivery's pending row or a snapshot
// ticket, else NotFound, whatever the token (N91).
func (s *Store) Fetchable(ctx context.Context, id string) (FetchContent, error) {
	var out FetchContent
	row, err := s.q.PendingContent(ctx, id)
	if noRows(err) {
		ticket, ticketErr := s.q.TicketContent(ctx, id)
		row = db.PendingContentRow{ContentKind: ticket.ContentKind, BodyHash: ticket.BodyHash, Size: ticket.Size, Run: ticket.Run}
		err = ticketErr
	}
	if noRows(err) {
		return out, fleet.Errorf(fleet.NotFound, "no delivery is open under this id")
	}
	if err != nil {
		return out, failed("read the pending row", err)
	}
	tokens, err := s.q.FetchTokens(ctx, id)
	if err != nil {
		return out, failed("read the tokens", err)
	}
	out.Content = fleet.Content{Kind: fleet.ContentKind(row.ContentKind), Hash: hashText(row.BodyHash), Size: row.Size}
	out.Run = row.Run
	for _, t := range tokens {
		out.Tokens = append(out.Tokens, FetchToken{fleet.NodeName(t.Node), t.Hash})
	}
	return out, nil
}
