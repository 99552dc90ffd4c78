package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// webProgram is the program of testdata/web, built once, which needs nothing but itself.
var webProgram = sync.OnceValues(func() (string, error) { return build("./testdata/web", "CGO_ENABLED=0") })

// service is a deployment whose replicas leave their process ids behind.
type service struct {
	*stack
	name   string
	ledger string // "" for programs that leave none
	put    api.DeploymentPut
	proves bool // for as long as replicas do by default
}

// probe is a check that sees within seconds that a program is sick, and bears a machine that is busy.
func probe(change ...func(*fleet.HealthCheck)) *fleet.HealthCheck {
	h := &fleet.HealthCheck{Type: fleet.HealthHTTP, Path: "/health", Interval: 1, Timeout: 0.9, HealthyThreshold: 1, UnhealthyThreshold: 3}
	for _, f := range change {
		f(h)
	}
	return h
}

// newService says what is to run; declare has it run.
func newService(t *testing.T, s *stack, name string, replicas int, change ...func(*api.DeploymentPut)) *service {
	t.Helper()
	program, err := webProgram()
	require.NoError(t, err)
	d := &service{stack: s, name: name, ledger: ground(t)}
	least, most := min(replicas, 1), 20
	d.put = api.DeploymentPut{
		Command: []string{program}, Env: map[string]string{"LEDGER": d.ledger, "SLOW": "0s", "GREETING": "hello"},
		Ports: []fleet.ProcessPort{{Name: "http"}}, Health: probe(), Startup: &fleet.Startup{Deadline: 60}, StopSeconds: 5,
		Replicas: api.ReplicaCounts{Min: &least, Max: &most, Initial: &replicas},
		Recovery: fleet.Recovery{Restarts: 1, CrashSeconds: 2, AttemptSeconds: 1, LostSeconds: 3},
	}
	for _, f := range change {
		f(&d.put)
	}
	return d
}

// manifest is what it declares. Unless a test is about the proof of new replicas, one instant is enough.
func (d *service) manifest() api.DeploymentPut {
	put := d.put
	if put.Strategy.MinHealthyTime == nil && !d.proves {
		put.Strategy.MinHealthyTime = new(0.0)
	}
	return put
}

// declare releases it and gives the operation.
func (d *service) declare(t *testing.T) api.Operation {
	t.Helper()
	return d.change(t, "put "+d.name, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.PutDeployment(ctx, d.name, d.manifest(), m)
	})
}

// deploy releases it and waits until it runs.
func (d *service) deploy(t *testing.T) []api.Replica {
	t.Helper()
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	return d.healthy(t, *d.put.Replicas.Initial)
}

func (d *service) scale(t *testing.T, to int) api.Operation {
	t.Helper()
	return d.change(t, "scale "+d.name, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.ScaleDeployment(ctx, d.name, api.ScaleRequest{Replicas: &to}, m)
	})
}

func (d *service) restart(t *testing.T) api.Operation {
	t.Helper()
	return d.change(t, "restart "+d.name, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.RestartDeployment(ctx, d.name, api.RestartRequest{}, m)
	})
}

func (d *service) delete(t *testing.T) api.Operation {
	t.Helper()
	return d.change(t, "delete "+d.name, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.Delete(ctx, fleet.DeploymentKey(fleet.DeploymentName(d.name)), m)
	})
}

// destroy ends it, and wants no process of it left.
func (d *service) destroy(t *testing.T) {
	t.Helper()
	all := d.pids(t)
	require.NotEmpty(t, all)
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
	for _, pid := range append(all, d.pids(t)...) {
		require.False(t, alive(pid), "process %d of %s is left", pid, d.name)
	}
}

func (d *service) gone(t *testing.T) {
	t.Helper()
	_, _, err := d.api.Object(t.Context(), fleet.DeploymentKey(fleet.DeploymentName(d.name)))
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "%v", err)
	require.Empty(t, d.replicas(t))
}

func (d *service) status(t *testing.T) api.DeploymentStatus {
	t.Helper()
	var status api.DeploymentStatus
	require.NoError(t, insist(t, "read "+d.name, func(ctx context.Context) error {
		o, _, err := d.api.Object(ctx, fleet.DeploymentKey(fleet.DeploymentName(d.name)))
		if err != nil {
			return err
		}
		return json.Unmarshal(o.Status, &status)
	}))
	return status
}

// replicas are those that have not ended, oldest first.
func (d *service) replicas(t *testing.T) []api.Replica {
	t.Helper()
	var all api.List[api.Replica]
	require.NoError(t, insist(t, "list replicas of "+d.name, func(ctx context.Context) (err error) {
		all, err = d.api.Replicas(ctx, api.ReplicaQuery{Deployment: d.name})
		return err
	}))
	return slices.SortedFunc(slices.Values(all.Items), func(a, b api.Replica) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// pids are the processes of the deployment that its replicas say they are, and all that its
// programs left a trace of.
func (d *service) pids(t *testing.T) (all []int) {
	t.Helper()
	for _, r := range d.replicas(t) {
		if r.PID > 0 {
			all = append(all, r.PID)
		}
	}
	if d.ledger == "" {
		return all
	}
	files, err := filepath.Glob(filepath.Join(d.ledger, "*.pid"))
	require.NoError(t, err)
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".pid"))
		require.NoError(t, err)
		all = append(all, pid)
	}
	return all
}

// until waits until the replicas are as they should be.
func (d *service) until(t *testing.T, what string, so func([]api.Replica) error) []api.Replica {
	t.Helper()
	var all []api.Replica
	waitFor(t, d.name+": "+what, func(context.Context) error {
		all = d.replicas(t)
		if err := so(all); err != nil {
			return fmt.Errorf("%w: %s", err, describe(all))
		}
		return nil
	})
	return all
}

func describe(all []api.Replica) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "\n%s on %s %s %s %s restarts %d pid %d: %s %s", r.ID, r.Node, r.State, r.Health, r.Phase, r.Restarts, r.PID, r.Reason, r.Message)
	}
	return b.String()
}

// healthy waits until exactly so many replicas are there, all healthy, with processes that live.
func (d *service) healthy(t *testing.T, n int) []api.Replica {
	t.Helper()
	return d.until(t, fmt.Sprintf("%d healthy", n), func(all []api.Replica) error {
		if len(all) != n {
			return errNotYet
		}
		for _, r := range all {
			if r.State != fleet.ReplicaHealthy || !alive(r.PID) {
				return errNotYet
			}
		}
		return nil
	})
}

// answersAt asks a replica at its endpoint who it is.
func answersAt(t *testing.T, r api.Replica) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	in, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Endpoint+"/", nil)
	require.NoError(t, err)
	out, err := http.DefaultClient.Do(in)
	require.NoError(t, err)
	defer out.Body.Close()
	require.Equal(t, http.StatusOK, out.StatusCode)
	var said map[string]string
	require.NoError(t, json.NewDecoder(out.Body).Decode(&said))
	return said
}

// sick makes the health path of all replicas fail, or of one, until the function is called.
func (d *service) sick(t *testing.T, replica ...fleet.ReplicaID) (heal func()) {
	t.Helper()
	name := "sick"
	for _, id := range replica {
		name += "-" + string(id)
	}
	return d.fails(t, name)
}

// fails has the programs that heed a file fail a check until the function is called.
func (d *service) fails(t *testing.T, name string) (heal func()) {
	t.Helper()
	path := filepath.Join(d.ledger, name)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return func() { require.NoError(t, os.Remove(path)) }
}

// least watches how many replicas are healthy until the function that it returns is called, which
// gives the fewest. One that was lost with a fallen node counts until another is healthy in its place.
func (d *service) least(t *testing.T) (stop func(fallen ...string) int) {
	t.Helper()
	done, result := make(chan struct{}), make(chan []tally)
	go func() {
		var all []tally
		well := map[string]bool{}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				result <- all
				return
			case <-tick.C:
			}
			if now, err := d.tally(t.Context(), well); err == nil {
				all = append(all, now)
			}
		}
	}()
	return func(fallen ...string) int { close(done); return fewestOf(<-result, fallen) }
}

func fewestOf(all []tally, fallen []string) int {
	fewest, healthy, lost, missing := 1<<20, 0, 0, 0
	for _, now := range all {
		gone := 0
		for _, node := range now.lost {
			if slices.Contains(fallen, node) {
				gone++
			}
		}
		more := max(0, gone-lost)
		came := max(0, now.healthy-(healthy-more))
		missing = min(max(0, missing+more-came), gone)
		fewest = min(fewest, now.healthy+missing)
		healthy, lost = now.healthy, gone
	}
	return fewest
}

// tally is how many replicas are healthy at an instant, and the nodes of those that were until their nodes were lost.
type tally struct {
	healthy int
	lost    []string
}

func (d *service) tally(ctx context.Context, well map[string]bool) (now tally, err error) {
	rows, err := d.pg.Query(ctx, `SELECT id, node, state = 'HEALTHY' AS healthy FROM replicas
		WHERE deployment = $1 AND (state = 'HEALTHY' OR state = 'UNHEALTHY' AND reason = 'node_lost')`, d.name)
	if err != nil {
		return now, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, Node string
		Healthy  bool
	}])
	for _, r := range all {
		switch {
		case r.Healthy:
			now.healthy, well[r.ID] = now.healthy+1, true
		case well[r.ID]:
			now.lost = append(now.lost, r.Node)
		}
	}
	return now, err
}

// decisions are the reasons of what became of the deployment, oldest first.
func (d *service) decisions(t *testing.T) (reasons []string) {
	t.Helper()
	all, err := d.api.Decisions(t.Context(), d.name, api.Page{Limit: 200})
	require.NoError(t, err)
	for _, one := range slices.Backward(all.Items) {
		reasons = append(reasons, one.Reason)
	}
	return reasons
}

func ids(all []api.Replica) (out []fleet.ReplicaID) {
	for _, r := range all {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// What a fallen node took along is no fault of the region, but ending another before it was replaced is.
func TestFewest(t *testing.T) {
	t.Parallel()
	on := func(healthy int, lost ...string) tally { return tally{healthy, lost} }
	for name, c := range map[string]struct {
		all  []tally
		want int
	}{
		"nothing is lost":           {[]tally{on(2), on(3), on(2)}, 2},
		"one is ended too soon":     {[]tally{on(2), on(1), on(2)}, 1},
		"one is lost and replaced":  {[]tally{on(2), on(1, "a"), on(2, "a"), on(3, "a"), on(2)}, 2},
		"lost with another node":    {[]tally{on(2), on(1, "b"), on(2)}, 1},
		"and one is ended for it":   {[]tally{on(2), on(1, "a"), on(2, "a"), on(1, "a"), on(2)}, 1},
		"one is ended with the one": {[]tally{on(2), on(0, "a"), on(1, "a"), on(2)}, 1},
		"it comes back":             {[]tally{on(2), on(1, "a"), on(2), on(1), on(2)}, 1},
	} {
		require.Equal(t, c.want, fewestOf(c.all, []string{"a"}), name)
	}
}

// build makes a program for all tests, which the uids of all projects may run; the system takes it away.
func build(of string, env ...string) (string, error) {
	dir, err := os.MkdirTemp("", "holdfast-program-*")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(of))
	build := exec.Command("go", "build", "-o", path, of)
	build.Env = append(os.Environ(), env...)
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return path, nil
}

// rollouts are those of it, newest first.
func (d *service) rollouts(t *testing.T) []api.Rollout {
	t.Helper()
	all, err := d.api.Rollouts(t.Context(), d.name, api.Page{})
	require.NoError(t, err)
	return all.Items
}

// greets has it released with another greeting.
func (d *service) greets(t *testing.T, greeting string) api.Operation {
	t.Helper()
	d.put.Env["GREETING"] = greeting
	return d.declare(t)
}

// answering are its replicas, all of which answer with a greeting.
func (d *service) answering(t *testing.T, n int, greeting string) []api.Replica {
	t.Helper()
	all := d.healthy(t, n)
	for _, r := range all {
		require.Equal(t, greeting, answersAt(t, r)["greeting"])
	}
	return all
}
