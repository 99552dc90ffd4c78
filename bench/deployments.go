package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	deployRounds = 100
	killRounds   = 20
	convergedAll = 1_000
	convergedRun = 10              // one in so many runs a replica, the others are to run nothing
	convergedFor = 2 * time.Minute // how long their workflow runs are counted

	deployLimit    = 2000.0 // ms, p99
	noticedLimit   = 1000.0 // ms, p99
	regainLimit    = 3000.0 // ms, p99
	convergedLimit = 0.0    // runs per minute

	deployPatience = time.Minute
	deployLook     = 5 * time.Millisecond
)

// deployments is a region whose nodes run replicas of a program that listens at once.
type deployments struct {
	*region
	program string
	db      *pgx.Conn
}

// measureDeployments times one replica from its PUT until it is healthy, and from its kill until that is
// known and another is; then it counts what 1,000 deployments that have nothing to do cost.
func measureDeployments(ctx context.Context, l *lab) ([]figure, error) {
	program := filepath.Join(l.dir, "web")
	if said, err := exec.CommandContext(ctx, "go", "build", "-C", "temporal-dev", "-o", program, "./testdata/web").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build a program: %w: %s", err, said)
	}
	r, err := l.start(ctx, "--empty", "--sites", "2")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	db, err := r.postgres(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	d := &deployments{region: r, program: program, db: db}
	w := l.watch()
	var healthy, noticed, regained []time.Duration
	if err := d.eachDeployed(ctx, deployRounds, &healthy); err != nil {
		return nil, err
	}
	if err := d.eachKilled(ctx, killRounds, &noticed, &regained); err != nil {
		return nil, err
	}
	quick, err := w.stamp([]figure{
		deployFigure("deployments: PUT until healthy, p99", healthy, deployLimit),
		deployFigure("deployments: killed until noticed, p99", noticed, noticedLimit),
		deployFigure("deployments: killed until another is healthy, p99", regained, regainLimit),
	})
	if err != nil {
		return nil, err
	}
	l.say("declaring %d deployments …", convergedAll)
	w = l.watch()
	idle, err := d.converged(ctx)
	if err != nil {
		return nil, err
	}
	last, err := w.stamp([]figure{idle})
	return append(quick, last...), err
}

func deployFigure(name string, all []time.Duration, limit float64) figure {
	f := atMost(name, float64(quantile(all, 0.99).Microseconds())/1000, limit)
	f.measured, f.unit = fmt.Sprintf("%.0f ms", f.value), "ms"
	f.note = fmt.Sprintf("p50 %s of %d", millis(quantile(all, 0.5)), len(all))
	return f
}

// put declares a deployment of n replicas.
func (d *deployments) put(ctx context.Context, name string, n int) error {
	_, err := d.api.PutDeployment(ctx, name, api.DeploymentPut{
		Command: []string{d.program}, Env: map[string]string{"SLOW": "0s", "LEDGER": d.dir}, Ports: []fleet.ProcessPort{{Name: "http"}},
		Health:   &fleet.HealthCheck{Type: fleet.HealthHTTP, Path: "/health", Interval: 1, Timeout: 0.5, HealthyThreshold: 1, UnhealthyThreshold: 2},
		Replicas: api.Exactly(n), StopSeconds: 1,
	}, api.Mutation{})
	return err
}

// eachDeployed times one deployment after the other, each of which is then ended.
func (d *deployments) eachDeployed(ctx context.Context, rounds int, took *[]time.Duration) error {
	for i := range rounds {
		name := fmt.Sprintf("quick-%d", i)
		began := time.Now()
		if err := d.put(ctx, name, 1); err != nil {
			return err
		}
		if _, err := d.until(ctx, name, "HEALTHY", ""); err != nil {
			return err
		}
		*took = append(*took, time.Since(began))
		if _, err := d.api.Delete(ctx, fleet.DeploymentKey(fleet.DeploymentName(name)), api.Mutation{}); err != nil {
			return err
		}
	}
	return nil
}

// benchReplica is a replica that is looked for.
type benchReplica struct {
	id  string
	pid int
}

// until looks in the database for a replica in a state that is not another one.
func (d *deployments) until(ctx context.Context, name, state, other string) (benchReplica, error) {
	return d.look(ctx, `SELECT id, pid FROM replicas WHERE deployment = $1 AND state = $2 AND id <> $3 LIMIT 1`, name, state, other)
}

func (d *deployments) look(ctx context.Context, query string, args ...any) (benchReplica, error) {
	ctx, cancel := context.WithTimeout(ctx, deployPatience)
	defer cancel()
	for {
		var r benchReplica
		err := d.db.QueryRow(ctx, query, args...).Scan(&r.id, &r.pid)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, fmt.Errorf("wait for a replica: %w", err)
		}
		if err := pause(ctx, deployLook); err != nil {
			return r, err
		}
	}
}

// eachKilled kills the replica of a deployment again and again, once it has rested.
func (d *deployments) eachKilled(ctx context.Context, rounds int, noticed, regained *[]time.Duration) error {
	for i := range rounds {
		name := fmt.Sprintf("killed-%d", i) // a new one each time: crashes in a row are waited out
		if err := d.put(ctx, name, 1); err != nil {
			return err
		}
		r, err := d.until(ctx, name, "HEALTHY", "")
		if err != nil {
			return err
		}
		// Before that, a kill is an attempt to begin that failed, and the next is made after a pause.
		if _, err := d.look(ctx, `SELECT name, 0 FROM deployments WHERE name = $1 AND state = 'RUNNING'`, name); err != nil {
			return err
		}
		began := time.Now()
		if err := syscall.Kill(r.pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill a replica: %w", err)
		}
		if _, err := d.look(ctx, `SELECT id, pid FROM replicas WHERE id = $1 AND state <> 'HEALTHY'`, r.id); err != nil {
			return err
		}
		*noticed = append(*noticed, time.Since(began))
		if _, err := d.until(ctx, name, "HEALTHY", r.id); err != nil {
			return err
		}
		*regained = append(*regained, time.Since(began))
		if _, err := d.api.Delete(ctx, fleet.DeploymentKey(fleet.DeploymentName(name)), api.Mutation{}); err != nil {
			return err
		}
	}
	return nil
}

// converged declares many deployments, waits until nothing is under way any more, and counts the
// workflow runs that begin then, beside those of the sweeps.
func (d *deployments) converged(ctx context.Context) (figure, error) {
	var group errgroup.Group
	group.SetLimit(crowd)
	none, most := 0, 1
	for i := range convergedAll {
		group.Go(func() error {
			name := fmt.Sprintf("idle-%d", i)
			if i%convergedRun == 0 {
				return d.put(ctx, name, 1)
			}
			_, err := d.api.PutDeployment(ctx, name, api.DeploymentPut{
				Command: []string{d.program}, Replicas: api.ReplicaCounts{Min: &none, Max: &most, Initial: &none},
			}, api.Mutation{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return figure{}, err
	}
	open := `SELECT 'x', count(*)::integer FROM operations WHERE state = 'running' HAVING count(*) = 0`
	if _, err := d.look(ctx, open); err != nil {
		return figure{}, fmt.Errorf("wait for %d deployments: %w", convergedAll, err)
	}
	if err := pause(ctx, settle); err != nil {
		return figure{}, err
	}
	began := time.Now()
	if err := pause(ctx, convergedFor); err != nil {
		return figure{}, err
	}
	own, sweeps, err := d.runsSince(ctx, began)
	f := atMost("deployments: workflow runs of 1,000 converged, per minute", float64(own)/convergedFor.Minutes(), convergedLimit)
	f.measured, f.unit = fmt.Sprintf("%.1f /min", f.value), "/min"
	f.note = fmt.Sprintf("the sweeps': %.1f /min; %d run a replica each", float64(sweeps)/convergedFor.Minutes(), convergedAll/convergedRun)
	return f, err
}

// runsSince counts the workflow runs that began, those of deployments' entities and all others.
func (d *deployments) runsSince(ctx context.Context, began time.Time) (own, others int, err error) {
	var page []byte
	for {
		list, err := d.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: d.doc.Namespace, Query: fmt.Sprintf("StartTime > '%s'", began.UTC().Format(time.RFC3339Nano)), NextPageToken: page,
		})
		if err != nil {
			return own, others, fmt.Errorf("list workflow runs: %w", err)
		}
		for _, e := range list.GetExecutions() {
			if strings.HasPrefix(e.GetExecution().GetWorkflowId(), fleet.DeploymentSubject("")) {
				own++
			} else {
				others++
			}
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			return own, others, nil
		}
	}
}
