package deliveries

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// The phases of a delivery, as its history shows them.
const (
	phasePersisted = "persisted"
	phaseNotified  = "notified"
	phaseRecorded  = "recorded"
)

// claim numbers the attempt and writes the delivery and its pending row, superseding the
// older one of the same subject (N16), unless that can follow the lease. It is refused unless
// the run is the current one.
func (w *walk) claim(ctx context.Context, c fleet.Claim) error {
	_, err := w.q.DeliveryByClaim(ctx, c.Run+"/"+c.Step)
	if err == nil {
		return nil // claimed already
	}
	if !postgres.NoRows(err) {
		return err
	}
	if w.sub.EntityRun != c.Run {
		return fleet.Errorf(fleet.Conflict, "run %s no longer serves %s", c.Run, c.Name())
	}
	r, err := w.revision(ctx, w.sub.DesiredRevision)
	if err != nil {
		return err
	}
	lease, err := w.lockLease(ctx)
	if err != nil {
		return err
	}
	if lease == nil {
		return postgres.OrNotFound(nil, "active node of site", w.sub.Site, "give the site an active node")
	}
	followed, err := w.q.FollowLease(ctx, db.FollowLeaseParams{
		Site: r.Site, Name: r.Name, Revision: r.Revision, Node: lease.Holder, Epoch: lease.Epoch,
		Claim: c.Run + "/" + c.Step, WorkflowID: c.Workflow, RunID: c.Run,
	})
	if err != nil {
		return err
	}
	if len(followed) > 0 {
		w.delivery = nil // it is another one than what was read
		return nil
	}
	if err := w.supersede(ctx, r.Revision); err != nil {
		return err
	}
	return w.persist(ctx, c, r, lease)
}

// supersede ends the open delivery of the subject, every pending row of it, and the
// operations that asked for an older revision.
func (w *walk) supersede(ctx context.Context, revision int64) error {
	if err := supersede(ctx, w.q, w.sub.Site, w.sub.Name); err != nil {
		return err
	}
	return postgres.EndOperations(ctx, w.q, w.of.Name(), postgres.Ending{
		To: revision - 1, State: fleet.OperationSuperseded, Reason: "newer_revision",
		Message: "a newer revision was released",
	})
}

func (w *walk) persist(ctx context.Context, c fleet.Claim, r *db.Revision, lease *db.SiteLease) error {
	id, err := postgres.NewID()
	if err != nil {
		return err
	}
	from, err := w.deployed(ctx)
	if err != nil {
		return err
	}
	next := numbered{Site: r.Site}
	next.add(r.Name, fleet.ProjectName(w.sub.Project), 0, 1)
	got, err := next.write(ctx, w.q)
	if err != nil {
		return err
	}
	w.sub.Attempts = got[0].Attempts
	rows := openedRows{rows: db.InsertDeliveriesParams{
		Site: r.Site, Node: lease.Holder, Epoch: lease.Epoch, WorkflowID: c.Workflow, RunID: c.Run, Seconds: c.Deadline.Seconds(), Phase: phasePersisted,
	}}
	rows.add(opened{
		ID: id, Name: r.Name, Claim: c.Run + "/" + c.Step, Revision: r.Revision, Attempt: w.sub.Attempts, From: from.Version.Revision,
		RequestedBy: r.CreatedBy, Hash: r.BodyHash, Size: r.Size,
	})
	if err := rows.write(ctx, w.q, c.TTL, ""); err != nil {
		return err
	}
	w.delivery = &db.Delivery{ // locked, since it is new; its deadline comes with what is seen next
		ID: id, Site: r.Site, Name: r.Name, Revision: r.Revision, Attempt: w.sub.Attempts, Node: lease.Holder, Epoch: lease.Epoch,
		State: string(fleet.DeliveryOpen), Phase: phasePersisted,
	}
	return w.q.AttachDelivery(ctx, db.AttachDeliveryParams{
		DeliveryID: id, Subject: c.Name(), Revision: r.Revision,
	})
}

const waitsToEnrol = "waiting for the node to enrol: " + fleet.EnrolHint

// prepare re-reads who holds the lease and writes the token's hash, bound to the node. A
// node that has not enrolled keeps waiting, for that. If the state has changed since it was
// read, nothing is prepared, and the next read shows it.
func (w *walk) prepare(ctx context.Context, p fleet.Prepare) error {
	node, err := w.q.GetNode(ctx, string(p.Node))
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	if err != nil || !tellable(node) {
		return w.miss(ctx, fleet.Miss{
			Subject: p.Subject, Delivery: p.Delivery, Node: p.Node, State: fleet.TargetWaiting, Reason: fleet.Unavailable, Message: waitsToEnrol,
		})
	}
	lease, err := w.lockLease(ctx)
	if err != nil || lease == nil {
		return err
	}
	out := &fleet.Prepared{Node: p.Node, SealingKey: node.SealingKey, Command: fleet.RefreshDeploymentCommand{
		Site: p.Site, Instance: p.Instance, Role: nodes.RoleOf(node, lease.Holder), Epoch: lease.Epoch, Timestamp: time.Now().UTC(),
	}}
	fill := w.fillDelivery
	if p.Ticket != "" {
		fill = w.fillTicket
	}
	filled, err := fill(ctx, p, out)
	if filled {
		w.Prepared = out
	}
	return err
}

func (w *walk) fillDelivery(ctx context.Context, p fleet.Prepare, out *fleet.Prepared) (bool, error) {
	d, err := w.lockDelivery(ctx, p.Delivery)
	if err != nil {
		return false, err
	}
	if d.State != string(fleet.DeliveryOpen) || d.Epoch != out.Command.Epoch {
		return false, nil
	}
	if err := w.q.TellTargets(ctx, db.TellTargetsParams{Ids: []string{d.ID}, Node: string(p.Node)}); err != nil {
		return false, err
	}
	if d.Phase == phasePersisted {
		if err := w.setPhase(ctx, d, phaseNotified); err != nil {
			return false, err
		}
	}
	if err := w.q.OfferPending(ctx, db.OfferPendingParams{DeploymentID: d.ID, Seconds: p.TTL.Seconds()}); err != nil {
		return false, err
	}
	out.Deadline = d.DeadlineAt
	return w.fillCommand(ctx, p, d.ID, d.Revision, out)
}

func (w *walk) setPhase(ctx context.Context, d *db.Delivery, phase string) error {
	if d.State == string(fleet.DeliveryOpen) {
		d.Phase = phase
	}
	return setPhase(ctx, w.q, phase, d.ID)
}

// fillTicket gives what is deployed now a ticket; one that was made before, when something
// older was deployed, moves on with it.
func (w *walk) fillTicket(ctx context.Context, p fleet.Prepare, out *fleet.Prepared) (bool, error) {
	snap, err := w.deployed(ctx)
	if err != nil || snap.IsZero() {
		return false, err
	}
	number := snap.Version.Revision
	out.Deadline, err = w.q.InsertTicket(ctx, db.InsertTicketParams{
		ID: string(p.Ticket), Site: string(p.Site), Name: string(p.Instance), Node: string(p.Node),
		Revision: number, Seconds: p.TTL.Seconds(),
	})
	if postgres.NoRows(err) { // it is of something newer by now
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return w.fillCommand(ctx, p, string(p.Ticket), number, out)
}

func (w *walk) fillCommand(ctx context.Context, p fleet.Prepare, id string, revision int64, out *fleet.Prepared) (bool, error) {
	r, err := w.revision(ctx, revision)
	if err != nil {
		return false, err
	}
	out.Command.DeploymentID, out.Command.Revision, out.Command.DeployedBy = id, RevisionOf(r), r.CreatedBy
	err = w.q.InsertFetchTokens(ctx, db.InsertFetchTokensParams{
		Node: string(p.Node), Seconds: p.TTL.Seconds(), Until: &out.Deadline, Ids: []string{id}, Hashes: [][]byte{p.TokenHash},
	})
	return err == nil, err
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
	row, err := s.Q.PendingContent(ctx, id)
	if postgres.NoRows(err) {
		var ticket db.TicketContentRow
		ticket, err = s.Q.TicketContent(ctx, id)
		row = db.PendingContentRow(ticket)
	}
	if postgres.NoRows(err) {
		return out, fleet.Errorf(fleet.NotFound, "no delivery is open under this id")
	}
	if err != nil {
		return out, err
	}
	out.Content = fleet.Content{Kind: fleet.ContentKind(row.ContentKind), Hash: postgres.HashText(row.BodyHash), Size: row.Size}
	out.Run = row.Run
	for i, node := range row.TokenNodes {
		out.Tokens = append(out.Tokens, FetchToken{fleet.NodeName(node), row.TokenHashes[i]})
	}
	return out, nil
}
