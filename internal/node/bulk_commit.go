package node

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// taking is a piece that has its lane, until it leaves it.
type taking struct {
	*piece
	job   *job
	ctx   context.Context //nolint:containedctx // of the job
	held  sqlite.Instance
	seen  *guardian.Status
	draft *draft // of a config file that will change
}

// commit stores a round in one transaction. Quiet pieces become current; of the others, and of staged ones, it
// stores the body for the later switch.
func (b *bulk) commit(ctx context.Context, round []*piece) {
	if b.stage {
		b.keepAll(ctx, round)
		return
	}
	taken := b.enter(ctx, round)
	b.weigh(ctx, taken)
	b.opt.Failpoint("before_switch")
	b.progress(PhaseSwitching, 0, 0)
	b.write(ctx, append(b.switches(taken), keeps(round)...))
	b.opt.Failpoint("after_switch")
	for _, t := range taken {
		b.project(t)
		b.leave(t)
	}
}

// enter takes the lanes that are free. A worker with a newer revision of a name wins; Apply, not this function,
// waits for other workers.
func (b *bulk) enter(ctx context.Context, round []*piece) []*taking {
	var together []*piece
	var cmds []*fleet.RefreshDeploymentCommand
	for _, p := range round {
		if !p.done && !p.alone {
			together, cmds = append(together, p), append(cmds, &p.cmd)
		}
	}
	var taken []*taking
	for i, e := range b.lanes.enterAll(ctx, cmds) {
		switch {
		case e.job != nil:
			taken = append(taken, &taking{piece: together[i], job: e.job, ctx: e.ctx})
		case e.err != nil:
			together[i].fail(e.err)
		default:
			together[i].alone = true
		}
	}
	return taken
}

// weigh decides again, now that no other worker touches the names, and announces what is quiet.
func (b *bulk) weigh(ctx context.Context, taken []*taking) {
	names := make([]fleet.InstanceName, len(taken))
	for i, t := range taken {
		names[i] = t.cmd.Instance
	}
	held, err := b.opt.Store.InstancesOf(ctx, names)
	if err != nil {
		failAll(taken, err)
		return
	}
	seen, err := b.seen(ctx)
	if err != nil {
		failAll(taken, err)
		return
	}
	for _, t := range taken {
		t.held, t.seen = held[t.cmd.Instance], seen[t.cmd.Instance]
		if err := b.verdict(ctx, t.piece, t.held); err != nil {
			t.fail(err)
			continue
		}
		quiet, err := b.quiet(t)
		if err == nil && quiet {
			err = b.prepare(ctx, t)
		}
		// Apply meets the same error, and restores the previous state.
		t.alone = err != nil || !quiet
	}
}

func failAll(taken []*taking, err error) {
	for _, t := range taken {
		t.fail(err)
	}
}

// seen lists all guardians once.
func (a *Applier) seen(ctx context.Context) (map[fleet.InstanceName]*guardian.Status, error) {
	list, err := a.opt.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(map[fleet.InstanceName]*guardian.Status, len(list))
	for i := range list {
		seen[list[i].Instance] = &list[i]
	}
	return seen, nil
}

// quiet tells whether nothing has to be started, stopped or settled: only the store changes, and on the active
// node a file.
func (b *bulk) quiet(t *taking) (bool, error) {
	switch {
	case t.held.Staged != nil:
		return false, nil
	case b.right.Role != fleet.RoleActive:
		return t.seen == nil, nil
	case !b.opt.MayRun():
		return false, nil
	case t.step == stepApply:
		return t.seen == nil && !needsProcess(sqlite.Slot{Revision: t.cmd.Revision, Run: t.run}), nil
	}
	cur := *t.held.Current // it is confirmed, or renumbered
	if needsProcess(cur) {
		if !live(t.seen) || !t.seen.Running || !runs(t.seen, cur) {
			return false, nil
		}
	} else if t.seen != nil {
		return false, nil
	}
	if cur.Deleted() {
		return true, nil
	}
	return b.files.matches(t.cmd.Instance, cur.Content, userOf(t.seen))
}

// userOf is the user of the running command, 0 if none runs.
func userOf(seen *guardian.Status) int {
	if seen == nil {
		return 0
	}
	return seen.UID
}

// prepare writes the config of an active instance beside its place.
func (b *bulk) prepare(ctx context.Context, t *taking) error {
	if b.right.Role != fleet.RoleActive || t.step != stepApply || t.deletes() {
		return nil
	}
	right, err := b.files.matches(t.cmd.Instance, t.want(), 0)
	if err != nil || right {
		return err
	}
	if t.body == nil {
		t.draft, err = b.files.prepare(ctx, t.cmd.Instance, t.want(), 0)
		return err
	}
	t.draft, err = b.files.redraft(t.cmd.Instance, t.want(), t.data)
	return err
}

// move is a step of the transaction and what to do after it.
type move struct {
	*piece
	sqlite.Step
	then func()
}

// switches gives the steps of quiet pieces. A confirmed piece needs none.
func (b *bulk) switches(taken []*taking) []move {
	var moves []move
	lost := b.right.Role == fleet.RoleActive && !b.opt.MayRun()
	for _, t := range taken {
		if err := t.ctx.Err(); err != nil && !t.done {
			t.fail(err) // leave handles the error
		}
		if lost && !t.done && !t.alone {
			t.fail(stale(audit.NoLease, "the node lost the lease of its site"))
		}
		if t.done || t.alone {
			continue
		}
		attempt := attemptOf(t.cmd)
		attempt.Run = t.run
		switch t.step {
		case stepConfirm:
			t.applied(heldOf(t.held, t.seen), true)
		case stepRenumber:
			moves = append(moves, move{t.piece, sqlite.Step{Attempt: attempt, Turn: sqlite.TurnRenumber}, func() {
				t.applied(renumbered(heldOf(t.held, t.seen), t.cmd.Revision), true)
			}})
		case stepApply, stepRefuse, stepConflict: // refusals came back as errors
			attempt.Body = t.body
			moves = append(moves, move{t.piece, sqlite.Step{Attempt: attempt, Turn: sqlite.TurnCommit}, func() {
				t.applied(fleet.Held{Revision: t.cmd.Revision, HighWater: t.cmd.Revision.Version, Known: true}, false)
			}})
		}
	}
	return moves
}

func renumbered(h fleet.Held, r fleet.Revision) fleet.Held {
	h.Version, h.HighWater, h.Action, h.Enabled = r.Version, r.Version, r.Action, r.Enabled
	return h
}

func (p *piece) applied(held fleet.Held, already bool) {
	p.done, p.resp.Held, p.resp.Already = true, held, already
}

// keeps gives the steps of pieces that continue alone, with their bodies from the stream.
func keeps(round []*piece) []move {
	var moves []move
	for _, p := range round {
		if !p.done && p.alone && p.body != nil {
			moves = append(moves, p.kept(sqlite.TurnKeep, func() {}))
		}
	}
	return moves
}

func (p *piece) kept(how sqlite.Turn, then func()) move {
	attempt := attemptOf(p.cmd)
	attempt.Body = p.body
	return move{p, sqlite.Step{Attempt: attempt, Turn: how}, then}
}

// write runs the transaction. A stored body that was collected since is fetched alone.
func (b *bulk) write(ctx context.Context, moves []move) {
	steps := make([]sqlite.Step, len(moves))
	for i, m := range moves {
		steps[i] = m.Step
	}
	refused, err := b.opt.Store.CommitBatch(ctx, steps)
	for i, m := range moves {
		switch {
		case err != nil:
			m.fail(err)
		case refused[i] == nil:
			m.then()
		case fleet.KindOf(refused[i]) == fleet.IllegalState:
			m.alone = true
		default:
			m.fail(refused[i])
		}
	}
}

// project puts the configs of switched pieces in place. The switch is already made, so an error here does not
// fail it: the sweep retries.
func (b *bulk) project(t *taking) {
	switched := t.done && t.err == nil && t.step == stepApply
	var err error
	switch {
	case t.draft != nil && switched:
		err = t.draft.swap()
	case t.draft != nil:
		err = t.draft.drop()
	case switched && t.deletes() && b.right.Role == fleet.RoleActive:
		err = b.files.remove(t.cmd.Instance)
	}
	switch {
	case err != nil:
		b.opt.Log.Warn("put a config file in place; the sweep retries", "instance", t.cmd.Instance, "err", err)
		b.blame(t.cmd.Instance, err)
	case switched:
		b.forgive(t.cmd.Instance)
	}
}

// leave frees a lane. For a piece that continues alone, jobs that joined get no answer from here.
func (b *bulk) leave(t *taking) {
	if t.done {
		t.resp, t.err = b.lanes.leave(t.cmd.Instance, t.job, t.resp, t.err)
		return
	}
	t.job.cancel(nil)
	_, _ = b.lanes.leave(t.cmd.Instance, t.job, t.resp, context.Canceled) // Apply finds out what is newer
}

// keepAll stores a round for a later switch, and accepts nothing: the node is owed older revisions until then.
func (b *bulk) keepAll(ctx context.Context, round []*piece) {
	var moves []move
	var bare []*piece
	for _, p := range round {
		switch {
		case p.done || p.alone:
		case p.step == stepConfirm:
			p.done, p.resp.Already = true, true
		default:
			moves = append(moves, p.kept(sqlite.TurnSetAside, func() { p.done, p.staged = true, true }))
			if p.body == nil && !p.deletes() {
				bare = append(bare, p)
			}
		}
	}
	b.write(ctx, moves)
	b.recall(ctx, bare)
}

// recall fetches again bodies that were stored, and were collected before they could be kept.
func (b *bulk) recall(ctx context.Context, bare []*piece) {
	hashes := make([]fleet.Hash, len(bare))
	for i, p := range bare {
		hashes[i] = p.want().Hash
	}
	there, err := b.opt.Store.CompleteContents(ctx, hashes)
	for _, p := range bare {
		if _, is := there[p.want().Hash]; p.err == nil && (err != nil || !is) {
			p.done, p.staged, p.alone = false, false, true
		}
	}
}
