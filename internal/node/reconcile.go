package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// fetchers bounds how many instances a comparison fetches at once.
const fetchers = 8

// The number of names in one request of a comparison: many if their bodies come in one stream.
const (
	namesAtOnce   = 100
	ticketsAtOnce = fleet.MaxComparedNames
)

// Reconcile compares the node with its site's expected set: it fetches what is missing or stale, drops what the
// region confirms absent by name, and leaves the rest alone (N54 to N57, N86, X3). Deliveries continue during a
// comparison; the higher number wins.
func (a *Agent) Reconcile(ctx context.Context, cmd fleet.ReconcileCommand) (fleet.ReconcileReport, error) {
	if cmd.Site != a.opt.Site {
		return fleet.ReconcileReport{}, fleet.Errorf(fleet.Invalid, "this node belongs to site %s", a.opt.Site).At("/site")
	}
	token, err := a.Key().Open(cmd.Token)
	if err != nil {
		return fleet.ReconcileReport{}, fmt.Errorf("open reconcile token: %w", err)
	}
	action := fmt.Sprintf("compare as %s at epoch %d", cmd.Role, cmd.Epoch)
	if err := a.Applier.adoptFor(ctx, sqlite.Right{Role: cmd.Role, Epoch: cmd.Epoch}, action); err != nil {
		return fleet.ReconcileReport{}, err
	}
	done, err := a.comparing.lock(ctx, "") // two at once would fetch everything twice
	if err != nil {
		return fleet.ReconcileReport{}, err
	}
	defer done()
	r := &reconcile{agent: a, site: &siteClient{a.client, cmd.BaseURL, cmd.Site, token}}
	err = r.run(ctx)
	if err == nil && cmd.Files {
		err = a.Applier.verifyFiles(ctx, r.restored)
	}
	if err != nil {
		a.news.changed("") // also if it ended early: of what it fetched before
		return r.report, err
	}
	return r.report, r.tell(ctx)
}

// reconcile is one comparison under way.
type reconcile struct {
	agent  *Agent
	site   *siteClient
	seen   sqlite.SeenSet
	set    fleet.ExpectedSet
	held   map[fleet.InstanceName]fleet.Held
	fetch  []fleet.InstanceName
	extras []fleet.Extra

	mu      sync.Mutex
	report  fleet.ReconcileReport
	touched []fleet.InstanceName
	cut     int // of the last page, because of a missing answer

	single bool // the region has no stream of bodies
}

func (r *reconcile) run(ctx context.Context) error {
	again, err := r.observe(ctx)
	if err != nil || !again {
		return err
	}
	r.compare()
	// Not clean from here on, until this comparison succeeds.
	if err := r.agent.Store.CleanSet(ctx, fleet.SetVersion{}); err != nil {
		return err
	}
	if err := r.agent.Store.SeeSet(ctx, r.set.Version); err != nil {
		return err
	}
	if err := r.fetchAll(ctx); err != nil {
		return err
	}
	return r.dropAll(ctx)
}

// observe reads the set and the store at the same time: revisions delivered in between are ordered by their
// number when they are applied. It tells whether there is anything to do.
func (r *reconcile) observe(ctx context.Context) (bool, error) {
	var err error
	if r.seen, err = r.agent.Store.SeenSet(ctx); err != nil {
		return false, err
	}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		r.set, r.report.Unchanged, err = r.site.expected(both, r.seen.Clean)
		return err
	})
	group.Go(func() (err error) {
		r.held, err = r.agent.Applier.standing(both)
		return err
	})
	if err := group.Wait(); err != nil {
		return false, err
	}
	r.report.Set = r.set.Version
	if r.report.Unchanged {
		return false, nil
	}
	r.report.Expected = len(r.set.Instances)
	holds := 0
	for _, held := range r.held {
		if decide.ExtraHeld(held) {
			holds++
		}
	}
	r.report.Refused = decide.RefuseSet(r.set, r.seen.Newest, holds)
	return r.report.Refused == "", nil
}

// compare sorts the names by the action that they need.
func (r *reconcile) compare() {
	listed := make(map[fleet.InstanceName]bool, len(r.set.Instances))
	for _, e := range r.set.Instances {
		listed[e.Instance] = true
		switch gap := decide.CompareSet(e, r.held[e.Instance]); gap {
		case decide.SetEqual:
			r.report.Equal++
		case decide.SetFetch:
			r.fetch = append(r.fetch, e.Instance)
		case decide.SetLeave:
			r.report.Left++
			r.report.Differ(e.Instance, string(gap))
		case decide.SetAhead:
			r.report.Ahead++
			r.report.Differ(e.Instance, string(gap))
		case decide.SetExtra:
		}
	}
	for name, held := range r.held {
		if !listed[name] && decide.ExtraHeld(held) {
			r.extras = append(r.extras, fleet.Extra{Instance: name, Version: held.Version, Hash: held.Content.Hash})
		}
	}
	slices.SortFunc(r.extras, func(x, y fleet.Extra) int { return strings.Compare(string(x.Instance), string(y.Instance)) })
}

// fetchAll fetches what is missing or stale, page by page; one failure does not stop the others.
func (r *reconcile) fetchAll(ctx context.Context) error {
	for _, names := range pages(r.fetch, ticketsAtOnce) {
		commands, err := r.site.tickets(ctx, names)
		if err != nil {
			return err
		}
		r.movedOn(names, commands)
		r.cut = 0
		if err := r.bring(ctx, commands); err != nil {
			return err
		}
		if len(commands) > 0 && r.cut == len(commands) {
			return fleet.Errorf(fleet.Communication, "fetch from the region: all fetches failed")
		}
	}
	return nil
}

// bring carries out a page with one stream and one transaction, or one by one if the region's version has no
// stream (X26).
func (r *reconcile) bring(ctx context.Context, commands []fleet.RefreshDeploymentCommand) error {
	fetched := func(rep *fleet.ReconcileReport) { rep.Fetched++ }
	if r.single || len(commands) == 0 {
		return r.applyAll(ctx, commands, fetched)
	}
	a := r.agent.Applier
	b := &bulk{Applier: a, right: attemptOf(commands[0]).Right, bodies: r.bodies, progress: func(string, int64, int64) {}}
	if err := a.adoptFor(ctx, b.right, fmt.Sprintf("fetch %d as %s at epoch %d", len(commands), b.right.Role, b.right.Epoch)); err != nil {
		return err
	}
	for _, cmd := range commands {
		b.pieces = append(b.pieces, &piece{cmd: cmd})
	}
	if err := b.carry(ctx); err != nil {
		return err
	}
	var left []fleet.RefreshDeploymentCommand
	for _, p := range b.pieces {
		if r.single && fleet.KindOf(p.err) == fleet.NotFound {
			left = append(left, p.cmd)
			continue
		}
		r.note(p.cmd.Instance, p.err, fetched)
	}
	return r.applyAll(ctx, left, fetched)
}

func (r *reconcile) bodies(ctx context.Context, want map[fleet.Hash]int64, take func(fleet.Hash, []byte)) (int64, error) {
	f := r.agent.Applier.opt.Fetcher
	wire, err := f.FetchBodies(ctx, BodiesRequest{FetchRequest{Token: r.site.token}, r.site.path("bodies")}, want, take)
	if fleet.KindOf(err) == fleet.NotFound {
		r.single = true
	}
	return wire, err
}

// movedOn leaves alone names without a ticket: a delivery of them started after the set was read.
func (r *reconcile) movedOn(names []fleet.InstanceName, commands []fleet.RefreshDeploymentCommand) {
	has := make(map[fleet.InstanceName]bool, len(commands))
	for _, cmd := range commands {
		has[cmd.Instance] = true
	}
	for _, name := range names {
		if !has[name] {
			r.report.Left++
			r.report.Differ(name, string(decide.SetLeave))
		}
	}
}

// dropAll drops what the region confirms absent, and lists what it does not confirm.
func (r *reconcile) dropAll(ctx context.Context) error {
	for _, extras := range pages(r.extras, namesAtOnce) {
		answer, err := r.site.confirmAbsent(ctx, extras)
		if err != nil {
			return err
		}
		r.report.Waiting += len(answer.Wait)
		r.report.Left += len(answer.Keep)
		for _, d := range append(answer.Wait, answer.Keep...) {
			r.report.Differ(d.Instance, d.Why)
		}
		if err := r.applyAll(ctx, answer.Drop, func(rep *fleet.ReconcileReport) { rep.Dropped++ }); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconcile) applyAll(ctx context.Context, commands []fleet.RefreshDeploymentCommand, done func(*fleet.ReconcileReport)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchers)
	for _, cmd := range commands {
		group.Go(func() error {
			_, err := r.agent.Applier.Apply(ctx, cmd, nil)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.note(cmd.Instance, err, done)
			return nil
		})
	}
	return group.Wait()
}

// note counts how one name ended.
func (r *reconcile) note(name fleet.InstanceName, err error, done func(*fleet.ReconcileReport)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched = append(r.touched, name)
	if err == nil {
		done(&r.report)
		return
	}
	if fleet.KindOf(err) == fleet.Communication {
		r.cut++
	}
	r.report.Failed++
	r.report.Differ(name, string(fleet.KindOf(err)))
}

// restored counts one delivered file that had been changed or removed.
func (r *reconcile) restored(name fleet.InstanceName, why string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.report.Failed++
		r.report.Differ(name, string(fleet.KindOf(err)))
		return
	}
	r.report.Restored++
	r.report.Differ(name, why)
}

// tell reports what changed, and then the result of the comparison, so that the region never gets the result
// before it knows what the node holds.
func (r *reconcile) tell(ctx context.Context) error {
	for _, names := range pages(r.touched, pageSize) {
		if err := r.agent.reportSome(ctx, names); err != nil {
			return err
		}
	}
	if err := r.site.reconciled(ctx, r.report); err != nil {
		return err
	}
	if !r.report.Clean() || r.report.Unchanged {
		return nil
	}
	return r.agent.Store.CleanSet(ctx, r.set.Version)
}

// pages splits a list into parts for one request each.
func pages[T any](all []T, most int) [][]T {
	var out [][]T
	for len(all) > 0 {
		n := min(most, len(all))
		out, all = append(out, all[:n]), all[n:]
	}
	return out
}
