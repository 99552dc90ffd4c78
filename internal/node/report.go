package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// pageSize is how many instances one request carries.
const pageSize = 500

// lookEvery is how often a report is made without an event: no event announces the crash of an instance.
const lookEvery = 5

// news collects what the region does not know yet.
type news struct {
	wake chan struct{}

	mu    sync.Mutex
	bytes map[string]DeliveryProgress
	sent  []fleet.NodeInstance // in other calls since the last report
	// Of batches under way: how many of them report a name in their results.
	telling map[fleet.InstanceName]int
	// When commands that were started count as young no more, on the clock of SinceBoot.
	grown time.Duration
}

func newNews() *news {
	return &news{wake: make(chan struct{}, 1), bytes: map[string]DeliveryProgress{}, telling: map[fleet.InstanceName]int{}}
}

func (n *news) changed(fleet.InstanceName) { poke.Once(n.wake) }

// youngFor is how long a command is young. While there is a young one, the node looks at what runs before every report,
// and reports without an event: fleet changes wait to see whether commands keep running.
const youngFor = 30 * time.Second

func (n *news) begun() {
	n.mu.Lock()
	n.grown = guardian.SinceBoot() + youngFor
	n.mu.Unlock()
}

func (n *news) young() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return guardian.SinceBoot() < n.grown
}

// tell records what the region learned from other calls.
func (n *news) tell(held []fleet.NodeInstance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent = append(n.sent, held...)
}

// tells leaves names to the results of a batch, until the returned function is called.
func (n *news) tells(names []fleet.InstanceName) (done func()) {
	count := func(by int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, name := range names {
			if n.telling[name] += by; n.telling[name] == 0 {
				delete(n.telling, name)
			}
		}
	}
	count(1)
	return func() { count(-1) }
}

// left are the names that a report leaves to batches.
func (n *news) left() map[fleet.InstanceName]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.telling)
}

// heard adds that to what was reported. If it is older than a report, the next report repeats something, but
// never omits anything.
func (n *news) heard(sent map[fleet.InstanceName]fleet.NodeInstance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, in := range n.sent {
		sent[in.Instance] = in
	}
	n.sent = nil
}

func (n *news) fetched(deployment string, done, total int64) {
	n.mu.Lock()
	n.bytes[deployment] = DeliveryProgress{DeploymentID: deployment, Bytes: done, Total: total}
	n.mu.Unlock()
	poke.Once(n.wake)
}

// answered drops what the answer to the notify contains too.
func (n *news) answered(deployment string) {
	n.mu.Lock()
	delete(n.bytes, deployment)
	n.mu.Unlock()
}

// take gives what was collected, in order.
func (n *news) take() []DeliveryProgress {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]DeliveryProgress, 0, len(n.bytes))
	for _, id := range slices.Sorted(maps.Keys(n.bytes)) {
		all = append(all, n.bytes[id])
	}
	clear(n.bytes)
	return all
}

// back returns what could not be sent, unless something newer came.
func (n *news) back(unsent []DeliveryProgress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range unsent {
		if _, newer := n.bytes[p.DeploymentID]; !newer {
			n.bytes[p.DeploymentID] = p
		}
	}
}

// started reports all that the node holds, in pages, until every page is answered. It logs a refusal and
// retries rarely: instances must keep running, and an operator may fix the cause at the region.
func (a *Agent) started(ctx context.Context) error {
	id, _, err := identity.NewToken(16)
	if err != nil {
		return err
	}
	if err := a.Store.SetStartID(ctx, id); err != nil {
		return err
	}
	for {
		err := a.sendStarted(ctx, id)
		if err == nil || ctx.Err() != nil {
			return err
		}
		a.opt.Log.Error("the region refused this node's start", "err", err, "hint", startHint(err))
		if pause.For(ctx, 64*orDefault(a.opt.Retry, 500*time.Millisecond)) != nil {
			return ctx.Err()
		}
	}
}

// startHint gives the hint for a refusal.
func startHint(err error) string {
	if fleet.KindOf(err) == fleet.Precondition {
		return "this node holds more than the region ever gave out: if the region was restored from a backup, run holdfast admin raise-era"
	}
	return "if the node was revoked, remove node.key and start it with a join token"
}

func (a *Agent) sendStarted(ctx context.Context, id string) error {
	all, err := a.Applier.Instances(ctx)
	if err != nil {
		return err
	}
	var at Placement
	for first := true; first || len(all) > 0; first = false {
		page := all[:min(pageSize, len(all))]
		all = all[len(page):]
		err := a.insist(ctx, "started", func() (err error) {
			at, err = a.client.Started(ctx, StartedPage{StartID: id, Instances: page, Last: len(all) == 0})
			return err
		})
		if err != nil {
			return err
		}
	}
	return a.adopt(ctx, at)
}

// report sends what changed, at most once per ReportEvery, and retries until the region accepts it.
func (a *Agent) report(ctx context.Context) error {
	every := orDefault(a.opt.ReportEvery, 2*time.Second)
	look := time.NewTicker(lookEvery * every)
	defer look.Stop()
	sent := map[fleet.InstanceName]fleet.NodeInstance{}
	alive := false
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.news.wake:
		case <-look.C:
			ticked = true
			alive = true // the region delivers to nodes that report
		}
		if err := a.rotateIfAsked(ctx); err != nil {
			return err
		}
		a.letCompare(ctx, 2*every)
		if err := a.sendReport(ctx, sent, &alive); err != nil && ctx.Err() == nil {
			a.opt.Log.Warn("report to the region", "err", err)
			poke.Once(a.news.wake)
		}
		if ticked {
			a.askAgain(ctx)
		}
		if a.news.young() {
			alive = true
			poke.Once(a.news.wake)
		}
		if pause.For(ctx, every) != nil {
			return ctx.Err()
		}
	}
}

// letCompare waits a while for a comparison to end: it reports its own changes, and reading all that the node
// holds would only delay it.
func (a *Agent) letCompare(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if done, err := a.comparing.lock(ctx, ""); err == nil {
		done()
	}
}

// sendReport sends only what differs from earlier reports. With alive set it sends a report in any case.
func (a *Agent) sendReport(ctx context.Context, sent map[fleet.InstanceName]fleet.NodeInstance, alive *bool) error {
	progress := a.news.take()
	left := a.news.left() // before the rest: it covers a batch that ends in between
	a.news.heard(sent)
	all, err := a.Applier.Instances(ctx)
	if err != nil {
		a.news.back(progress)
		return fmt.Errorf("read what the node holds: %w", err)
	}
	changed := make([]fleet.NodeInstance, 0, len(all))
	for _, in := range all {
		if before, ok := sent[in.Instance]; left[in.Instance] == 0 && (!ok || before != in) {
			changed = append(changed, in)
		}
	}
	for first := true; len(changed) > 0 || first && (*alive || len(progress) > 0); first = false {
		page := changed[:min(pageSize, len(changed))]
		changed = changed[len(page):]
		r := Report{Instances: page, Progress: progress}
		if *alive && len(changed) == 0 { // the region takes the counters as the end of a whole report
			r.Counters = a.Figures()
		}
		at, err := a.client.Report(ctx, r)
		if err != nil {
			a.news.back(progress)
			return err
		}
		if err := a.adopt(ctx, at); err != nil {
			return err
		}
		for _, in := range page {
			sent[in.Instance] = in
		}
		progress = []DeliveryProgress{}
	}
	*alive = false
	return a.tellRefusals(ctx)
}

// reportSome reports at once what the node holds of some names.
func (a *Agent) reportSome(ctx context.Context, names []fleet.InstanceName) error {
	page, err := a.Applier.heldOf(ctx, names)
	if err != nil {
		return err
	}
	at, err := a.client.Report(ctx, Report{Instances: page, Progress: []DeliveryProgress{}})
	if err != nil {
		return err
	}
	a.news.tell(page)
	return a.adopt(ctx, at)
}

// maxLogPiece is the size of one request, and logsPerRound how many one instance may send in a round, so that
// one with much output leaves room for the others.
const (
	maxLogPiece  = 64 << 10
	logsPerRound = 8
)

// shipLogs sends the output of instances from the last offset. Output that was rotated away before it was sent
// is counted, not waited for.
func (a *Agent) shipLogs(ctx context.Context) error {
	if a.opt.Outputs == nil {
		return nil
	}
	cleared := map[fleet.InstanceName]fleet.Version{}
	for {
		if err := a.shipRound(ctx, cleared); err != nil && ctx.Err() == nil {
			a.opt.Log.Warn("ship logs", "err", err)
		}
		if pause.For(ctx, orDefault(a.opt.LogEvery, 2*time.Second)) != nil {
			return ctx.Err()
		}
	}
}

// shipRound sends part of the new output of each instance. A deleted instance is removed from the machine once
// all of it is sent; cleared records those.
func (a *Agent) shipRound(ctx context.Context, cleared map[fleet.InstanceName]fleet.Version) error {
	names, err := a.opt.Outputs.Names() // few of many: most instances have a config and no command
	if err != nil {
		return fmt.Errorf("look for output: %w", err)
	}
	var errs []error
	for _, name := range names {
		in, err := a.Store.Instance(ctx, name)
		if err != nil {
			return err
		}
		gone := in.Current.Deleted()
		if gone && cleared[in.Name] == in.Current.Version {
			continue
		}
		more, err := a.shipSome(ctx, in.Name)
		if err == nil && !more && gone {
			err = a.Applier.clear(ctx, in.Name)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if err != nil && fleet.KindOf(err) == fleet.Communication {
			break // the others would fail too
		}
		if err == nil && !more && gone {
			cleared[in.Name] = in.Current.Version
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) shipSome(ctx context.Context, name fleet.InstanceName) (more bool, err error) {
	for range logsPerRound {
		if more, err = a.shipPiece(ctx, name); err != nil || !more {
			break
		}
	}
	if fleet.KindOf(err) == fleet.NotFound { // the region does not know the instance yet, or no longer
		return false, nil
	}
	return more, err
}

// shipPiece sends the next piece, and records the offset only then: a piece may arrive twice under the same
// offset, but none is skipped.
func (a *Agent) shipPiece(ctx context.Context, name fleet.InstanceName) (more bool, err error) {
	at, err := a.Store.LogOffset(ctx, name)
	if err != nil {
		return false, err
	}
	out, err := a.opt.Outputs.ReadOutput(name, at)
	if err != nil || len(out.Data) == 0 {
		return false, err
	}
	data := out.Data[:min(len(out.Data), maxLogPiece)]
	piece := LogPiece{Instance: name, Offset: out.Offset, Data: data, Skipped: out.Skipped}
	if err := a.client.Log(ctx, piece); err != nil {
		return false, err
	}
	return true, a.Store.SetLogOffset(ctx, name, out.Offset+int64(len(data)))
}
