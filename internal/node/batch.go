package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// ApplyBatch carries out many deliveries of one site (N98). The region gets the result of each by HTTP; an
// error is about the whole batch. Repeating a command is safe: what was done is answered as already done.
// Progress may be called concurrently.
func (a *Applier) ApplyBatch(ctx context.Context, cmd fleet.BatchCommand, progress func(phase string, done, total int64)) (fleet.BatchOutcome, error) {
	var none fleet.BatchOutcome
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	if err := a.admitBatch(ctx, cmd); err != nil {
		return none, err
	}
	token, err := a.opt.Keys.Open(cmd.FetchToken)
	if err != nil {
		return none, fmt.Errorf("open fetch token: %w", err)
	}
	client := &batchClient{fetcher: a.opt.Fetcher, cmd: cmd, token: token}
	items, err := client.items(ctx)
	if err != nil {
		return none, err
	}
	b := a.bulkOf(cmd, items)
	b.bodies, b.progress = client.bodies, progress
	told := b.opt.Telling(namesOf(b.pieces))
	err = b.carryAndTell(ctx, client)
	told()
	if err != nil {
		a.opt.Changed("") // a report tells the region what was done
		return none, err
	}
	return b.outcome(), nil
}

func (b *bulk) carryAndTell(ctx context.Context, client *batchClient) error {
	if err := b.carry(ctx); err != nil {
		return err
	}
	results, held, err := b.results(ctx)
	if err != nil {
		return err
	}
	b.opt.Failpoint("before_reply")
	if err := client.results(ctx, results); err != nil {
		return err
	}
	b.opt.Told(held)
	return nil
}

// admitBatch adopts the epoch of a batch, and refuses a batch that is stale or not for this node.
func (a *Applier) admitBatch(ctx context.Context, cmd fleet.BatchCommand) error {
	if err := checkBatch(cmd); err != nil {
		return err
	}
	if cmd.Site != a.opt.Site {
		return fleet.Errorf(fleet.Invalid, "this node belongs to site %s", a.opt.Site).At("/site")
	}
	right := sqlite.Right{Role: cmd.Role, Epoch: cmd.Epoch}
	err := a.Adopt(ctx, right, "")
	if err == nil {
		err = a.hasRight(ctx, right)
	}
	return a.countStale(fmt.Sprintf("batch %s of %d as %s at epoch %d", cmd.BatchID, cmd.Count, cmd.Role, cmd.Epoch), err)
}

// hasRight refuses an action for a right that the node does not have.
func (a *Applier) hasRight(ctx context.Context, right sqlite.Right) error {
	meta, err := a.opt.Store.Meta(ctx)
	if err == nil && meta.Right != right {
		return stale(audit.StaleEpoch, "the node is %s at epoch %d", meta.Role, meta.Epoch)
	}
	return err
}

func checkBatch(cmd fleet.BatchCommand) error {
	if !fleet.ValidID(string(cmd.BatchID)) {
		return fleet.Errorf(fleet.Invalid, "invalid batch id: want 32 hex digits").At("/batchId")
	}
	if cmd.Count < 1 || cmd.Count > fleet.MaxBatchItems {
		return fleet.Errorf(fleet.Invalid, "invalid count %d", cmd.Count).At("/count").
			WithHint(fmt.Sprintf("a batch has 1 to %d deliveries", fleet.MaxBatchItems))
	}
	return checkRole(cmd.Role)
}

// bulkOf makes a delivery of each item, the same as its own notify would make.
func (a *Applier) bulkOf(cmd fleet.BatchCommand, items []fleet.BatchItem) *bulk {
	b := &bulk{Applier: a, right: sqlite.Right{Role: cmd.Role, Epoch: cmd.Epoch}, stage: cmd.Stage}
	for _, item := range items {
		p := &piece{run: item.Run, cmd: fleet.RefreshDeploymentCommand{
			DeploymentID: item.DeploymentID, Site: cmd.Site, Instance: item.Instance, Revision: item.Revision,
			Role: cmd.Role, Epoch: cmd.Epoch, DeployedBy: cmd.DeployedBy, Timestamp: cmd.Timestamp,
			CentralFetchBaseURL: cmd.CentralFetchBaseURL, FetchToken: cmd.FetchToken, IdleTimeout: cmd.IdleTimeout,
		}}
		if item.Gone {
			p.fail(fleet.Errorf(fleet.Stale, "superseded"))
		}
		b.pieces = append(b.pieces, p)
	}
	return b
}

// results gives the results for the region, and the instances that reports need not repeat.
func (b *bulk) results(ctx context.Context) ([]fleet.BatchResult, []fleet.NodeInstance, error) {
	if err := b.holdings(ctx); err != nil {
		return nil, nil, err
	}
	all := make([]fleet.BatchResult, len(b.pieces))
	var known []fleet.NodeInstance
	for i, p := range b.pieces {
		all[i] = fleet.BatchResult{
			DeploymentID: p.cmd.DeploymentID, Instance: p.cmd.Instance, Held: p.resp.Held,
			Already: p.resp.Already, Staged: p.staged, Fetched: p.resp.Fetched,
		}
		if p.err != nil {
			all[i].Reason, all[i].Message = fleet.KindOf(p.err), messageOf(p.err)
			continue
		}
		b.opt.Answered(p.cmd.DeploymentID)
		if !p.alone { // what runs has more to report
			known = append(known, fleet.NodeInstance{Instance: p.cmd.Instance, Held: p.resp.Held})
		}
	}
	return all, known, nil
}

// holdings reads what the node holds of pieces without a report of their own.
func (b *bulk) holdings(ctx context.Context) error {
	var quiet []*piece
	for _, p := range b.pieces {
		if p.err != nil || p.staged || !p.resp.Held.Known {
			quiet = append(quiet, p)
		}
	}
	held, err := b.heldOf(ctx, namesOf(quiet))
	if err != nil {
		return err
	}
	for i, p := range quiet {
		p.resp.Held = held[i].Held
	}
	return nil
}

// messageOf is the text of an error for other machines: without its cause, and short.
func messageOf(err error) string {
	var known *fleet.Error
	if !errors.As(err, &known) {
		return string(fleet.KindOf(err))
	}
	text := known.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// outcome counts the pieces (X27).
func (b *bulk) outcome() fleet.BatchOutcome {
	out := fleet.BatchOutcome{Fetched: b.wire}
	for _, p := range b.pieces {
		switch {
		case p.err != nil:
			out.Failed++
		case p.resp.Already:
			out.Already++
		default:
			out.Applied++
		}
	}
	return out
}
