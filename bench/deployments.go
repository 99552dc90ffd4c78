package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	deployTimes  = 20 // a round
	killTimes    = 4  // a round
	convergedAll = 1_000
	convergedRun = 10              // one in so many runs a replica, the others are to run nothing
	convergedFor = 2 * time.Minute // how long their workflow runs are counted

	deployLimit    = 2000.0 // ms
	noticedLimit   = 1000.0 // ms
	regainLimit    = 3000.0 // ms
	convergedLimit = 0.0    // runs per minute

	deployPatience = 3 * time.Minute
	deployLook     = 5 * time.Millisecond
)

// deployments is a region whose nodes run replicas of a program that listens at once.
type deployments struct {
	*region
	program string
	ledger  string // where programs of any user leave files
	db      *pgx.Conn
	one     sync.Mutex // query at a time

	releases int // so far; each has content of its own
}

// startDeployments starts a region of two sites for them.
func (l *lab) startDeployments(ctx context.Context, flags ...string) (d *deployments, end func(), err error) {
	d = &deployments{program: filepath.Join(l.dir, "web"), ledger: filepath.Join(l.dir, "ledger")}
	if said, err := exec.CommandContext(ctx, "go", "build", "-C", "temporal-dev", "-o", d.program, "./testdata/web").CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("build a program: %w: %s", err, said)
	}
	if err := errors.Join(os.Chmod(l.dir, 0o711), os.MkdirAll(d.ledger, 0o700), os.Chmod(d.ledger, 0o777|os.ModeSticky)); err != nil { //nolint:gosec // other users run and write there
		return nil, nil, fmt.Errorf("make a folder for programs under a uid: %w", err)
	}
	if d.region, err = l.start(ctx, append([]string{"--empty", "--sites", "2"}, flags...)...); err != nil {
		return nil, nil, err
	}
	if d.db, err = d.postgres(ctx); err != nil {
		d.stop()
		return nil, nil, err
	}
	return d, func() {
		_ = d.db.Close(context.WithoutCancel(ctx)) // it was only read
		d.stop()
	}, nil
}

// measureDeployments times one replica from its PUT until it is healthy, and from its kill until that is
// known and another is; then it counts what 1,000 deployments that have nothing to do cost.
func measureDeployments(ctx context.Context, l *lab) ([]figure, error) {
	d, end, err := l.startDeployments(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	healthy, err := l.inTurn(ctx, d.deployed, d.plainly)
	if err != nil {
		return nil, err
	}
	var noticed series
	regained, err := l.inTurn(ctx, func(ctx context.Context, round int) (float64, error) {
		until, again, err := d.eachKilled(ctx, round)
		noticed.ours = append(noticed.ours, until)
		return again, err
	}, d.plainly)
	if err != nil {
		return nil, err
	}
	noticed.plain = regained.plain
	figures := []figure{
		{name: "deployments: PUT until healthy, slowest of 20", unit: "ms", series: healthy, by: byValue, limit: deployLimit},
		{name: "deployments: killed until noticed, slowest of 4", unit: "ms", series: noticed, by: byValue, limit: noticedLimit},
		{name: "deployments: killed until another is healthy, slowest of 4", unit: "ms", series: regained, by: byValue, limit: regainLimit},
	}
	l.say("declaring %d deployments …", convergedAll)
	idle, err := d.converged(ctx)
	return append(figures, idle), err
}

// plainly is the yardstick: the slowest start of the program by hand, until it answers its health check.
func (d *deployments) plainly(ctx context.Context, _ int) (float64, error) {
	slowest := time.Duration(0)
	for range deployTimes {
		took, err := timed(d.answers)(ctx)
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, took)
	}
	return inMillis(slowest), nil
}

// answers starts the program, waits until it is healthy, and kills it.
func (d *deployments) answers(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.program)
	cmd.Env = d.env(port, d.ledger)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it has nothing to lose
		_ = cmd.Wait()
	}()
	return healthy(ctx, port, deployLook)
}

func (d *deployments) env(port, ledger string) []string {
	return []string{"SLOW=0s", "LEDGER=" + ledger, "PORT=" + port}
}

func freePort(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return port, nil
}

// healthy probes a program until it answers its health check, with a pause after each failure.
func healthy(ctx context.Context, port string, between time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deployPatience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/health", http.NoBody)
		if err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close() // nothing was read
			return nil            // it is healthy as soon as it listens
		}
		if err := pause.For(ctx, between); err != nil {
			return err
		}
	}
}

// put declares a deployment of n replicas; change alters it.
func (d *deployments) put(ctx context.Context, name string, n int, change ...func(*api.DeploymentPut)) error {
	in := api.DeploymentPut{
		Command: []string{d.program}, Env: map[string]string{"SLOW": "0s", "LEDGER": d.ledger}, Ports: []fleet.ProcessPort{{Name: "http"}},
		Health:   &fleet.HealthCheck{Type: fleet.HealthHTTP, Path: "/health", Interval: 1, Timeout: 0.5, HealthyThreshold: 1, UnhealthyThreshold: 2},
		Replicas: api.Exactly(n), StopSeconds: 1,
		Strategy: fleet.Strategy{MinHealthyTime: new(0.0)}, // what is measured is how fast replicas come and go
	}
	for _, c := range change {
		c(&in)
	}
	_, err := d.api.PutDeployment(ctx, name, in, api.Mutation{})
	return err
}

// deployed times one deployment after the other, each of which is then ended.
func (d *deployments) deployed(ctx context.Context, round int) (float64, error) {
	slowest := time.Duration(0)
	for i := range deployTimes {
		took, err := d.begin(ctx, fmt.Sprintf("quick-%d-%d", round, i), 1)
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, took)
	}
	return inMillis(slowest), nil
}

// begin times a deployment of n replicas from its PUT until they are healthy, and deletes it.
func (d *deployments) begin(ctx context.Context, name string, n int) (time.Duration, error) {
	began := time.Now()
	if err := d.put(ctx, name, n); err != nil {
		return 0, err
	}
	if _, err := d.look(ctx, `SELECT 'x', 0 FROM replicas WHERE deployment = $1 AND state = 'HEALTHY' HAVING count(*) = $2`, name, n); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, d.delete(ctx, name)
}

func (d *deployments) delete(ctx context.Context, name string) error {
	_, err := d.api.Delete(ctx, fleet.DeploymentKey(fleet.DeploymentName(name)), api.Mutation{})
	return err
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
	return d.lookEvery(ctx, deployLook, query, args...)
}

func (d *deployments) lookEvery(ctx context.Context, every time.Duration, query string, args ...any) (benchReplica, error) {
	ctx, cancel := context.WithTimeout(ctx, deployPatience)
	defer cancel()
	for {
		var r benchReplica
		d.one.Lock()
		err := d.db.QueryRow(ctx, query, args...).Scan(&r.id, &r.pid)
		d.one.Unlock()
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return r, fmt.Errorf("wait for a replica: %w", err)
		}
		if err := pause.For(ctx, every); err != nil {
			return r, err
		}
	}
}

// eachKilled kills replicas of deployments that have rested: the slowest until that was known, and
// until another was healthy.
func (d *deployments) eachKilled(ctx context.Context, round int) (noticed, regained float64, err error) {
	for i := range killTimes {
		name := fmt.Sprintf("killed-%d-%d", round, i) // a new one each time: crashes in a row are waited out
		known, again, err := d.killed(ctx, name)
		if err != nil {
			return 0, 0, err
		}
		noticed, regained = max(noticed, inMillis(known)), max(regained, inMillis(again))
	}
	return noticed, regained, nil
}

func (d *deployments) killed(ctx context.Context, name string) (known, again time.Duration, err error) {
	if err := d.put(ctx, name, 1); err != nil {
		return 0, 0, err
	}
	r, err := d.until(ctx, name, "HEALTHY", "")
	if err != nil {
		return 0, 0, err
	}
	// Before that, a kill is an attempt to begin that failed, and the next is made after a pause.
	if _, err := d.look(ctx, `SELECT name, 0 FROM deployments WHERE name = $1 AND state = 'RUNNING'`, name); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := syscall.Kill(r.pid, syscall.SIGKILL); err != nil {
		return 0, 0, fmt.Errorf("kill a replica: %w", err)
	}
	if _, err := d.look(ctx, `SELECT id, pid FROM replicas WHERE id = $1 AND state <> 'HEALTHY'`, r.id); err != nil {
		return 0, 0, err
	}
	known = time.Since(began)
	if _, err := d.until(ctx, name, "HEALTHY", r.id); err != nil {
		return 0, 0, err
	}
	again = time.Since(began)
	return known, again, d.delete(ctx, name)
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
	if err := d.rests(ctx); err != nil {
		return figure{}, err
	}
	if err := pause.For(ctx, settle); err != nil {
		return figure{}, err
	}
	began := time.Now()
	if err := pause.For(ctx, convergedFor); err != nil {
		return figure{}, err
	}
	own, sweeps, err := d.runsSince(ctx, began)
	return figure{
		name: "deployments: workflow runs of 1,000 converged, per minute", by: byValue, limit: convergedLimit,
		series: series{ours: []float64{float64(own) / convergedFor.Minutes()}},
		note:   fmt.Sprintf("the sweeps': %.1f; %d run a replica each", float64(sweeps)/convergedFor.Minutes(), convergedAll/convergedRun),
	}, err
}

// rests waits until no operation is under way.
func (d *deployments) rests(ctx context.Context) error {
	_, err := d.look(ctx, `SELECT 'x', 0 FROM operations WHERE state = 'running' HAVING count(*) = 0`)
	return err
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
