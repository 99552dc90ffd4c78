package region

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// errHealDeath is the end of a server in the middle of a step.
var errHealDeath = errors.New("the server dies")

// registerBatches are the activities of the runs that deliver many instances together. Their
// batches carry the id of this run, for a test environment has but one.
func (e *healEntity) registerBatches(env *testsuite.TestWorkflowEnvironment) {
	as := registrar(env)
	work := e.world.region.batches
	work.Failpoint = e.failpoint
	as("GatherBatch", func(ctx context.Context, in activities.GatherBatch) (out activities.BatchNext, err error) {
		in.Workflow, in.Run = e.subject, e.run
		err = e.served("gather", func() error { out, err = work.GatherBatch(context.WithoutCancel(ctx), in); return err })
		return out, err
	})
	as("NextBatch", func(ctx context.Context, in activities.NextBatch) (out activities.BatchNext, err error) {
		in.Workflow, in.Run = e.subject, e.run
		err = e.served("next batch to "+string(in.Mode), func() error { out, err = work.NextBatch(context.WithoutCancel(ctx), in); return err })
		return out, err
	})
	as("PrepareBatch", func(ctx context.Context, in fleet.BatchPrepare) (out activities.PreparedBatch, err error) {
		err = e.served("prepare "+string(in.Node), func() error { out, err = work.PrepareBatch(context.WithoutCancel(ctx), in); return err })
		return out, err
	})
	as("MissBatch", func(ctx context.Context, in fleet.BatchMiss) error {
		return e.served(fmt.Sprintf("miss %s: %s", in.Node, in.Reason), func() error { return work.MissBatch(ctx, in) })
	})
	as("EndBatch", func(ctx context.Context, id fleet.BatchID) (out fleet.BatchEnded, err error) {
		err = e.served("end", func() error { out, err = work.EndBatch(context.WithoutCancel(ctx), id); return err })
		e.world.say("ended: %s %+v", e.subject, out)
		return out, err
	})
	as("RefreshBatch", func(ctx context.Context, cmd fleet.BatchCommand) (out fleet.BatchOutcome, err error) {
		err = e.tell(ctx, fmt.Sprintf("batch of %d", cmd.Count), func(ctx context.Context, l *healLife) error {
			l.comparing.Store(true)
			defer l.comparing.Store(false)
			out, err = l.work.RefreshBatch(ctx, cmd)
			return err
		})
		return out, err
	})
}

// served is a step at the store, in which other work can come first and the server can die:
// before it, between its transactions, or when it is committed and nobody was answered.
func (e *healEntity) served(what string, f func() error) (err error) {
	w := e.world
	defer func() {
		if r := recover(); r != nil {
			if r != errHealDeath { //nolint:errorlint // the very one
				panic(r) //nolint:forbidigo // not ours
			}
			err = temporal.NewApplicationError("the server died", string(fleet.Unavailable))
		}
		w.say("batch: %s %s: %v", e.subject, what, err)
	}()
	return e.step(f)
}

// failpoint is between two transactions of a step. A server works on though its run was
// terminated meanwhile.
func (e *healEntity) failpoint(at string) {
	w := e.world
	w.depth++ // a step at the store has only seconds
	w.meanwhile(at + " of " + e.subject)
	w.depth--
	if e.retries < 2 && w.chance(40) {
		e.retries++
		w.say("the server dies %s of %s", at, e.subject)
		panic(errHealDeath) //nolint:forbidigo // recovered in served
	}
}

// withoutRight counts what a batch deployed under another lease than that of now, where its
// results could add to that.
func (w *healWorld) withoutRight(req *http.Request) (n int) {
	path, is := strings.CutSuffix(req.URL.Path, "/results")
	if !is {
		return 0
	}
	err := w.region.pool.QueryRow(w.ctx, `SELECT count(*) FROM snapshots p JOIN site_leases l USING (site) JOIN deliveries d ON d.id = p.delivery_id
		WHERE d.batch_id = $1 AND p.epoch <> l.epoch`, path[strings.LastIndex(path, "/")+1:]).Scan(&n)
	if err != nil {
		w.fail("read the snapshots: %v", err)
	}
	return n
}

// healCrowd wakes as a server's crowdWaker does: while many ask at once, nobody's own entity is
// woken, for the batch that is asked for then finds them.
type healCrowd struct {
	region *healRegion
	flows  *workflows.Client
}

func (c healCrowd) Wake(ctx context.Context, subject string) error {
	if kind, _, _ := fleet.ParseSubject(subject); kind == fleet.EntityInstance && c.region.now.gathers {
		return nil
	}
	return c.flows.Wake(ctx, subject)
}
