//go:build slow

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/workflows"
)

const (
	// drillLate is by how much an operation may end after its deadline: what decides it may have been killed.
	drillLate = 3 * time.Minute
	// drillKept is of how many revisions and rollouts all are kept.
	drillKept = 90
)

// drillServing are the deployments that have replicas which were healthy and are to go on: in a rollout by any strategy but recreate, no
// decision ends the last one.
const drillServing = `SELECT d.name, count(r.id) FROM deployments d
	LEFT JOIN replicas r ON r.deployment = d.name AND r.ended_at IS NULL AND r.state IN ('HEALTHY', 'UNHEALTHY')
	WHERE d.state = 'RUNNING' AND d.target > 0 GROUP BY d.name`

// watch looks for a deployment whose last replica is ended by a decision while nothing fails (F64).
func (h *drill) watch(ctx context.Context) {
	before := map[string]int64{}
	for tick := time.NewTicker(drillEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		now, err := h.serving(ctx)
		if err != nil {
			continue // the database is down
		}
		for _, a := range h.actors {
			n, is := now[a.name]
			if is && n == 0 && before[a.name] > 0 && !a.recreate && !a.zero.Load() && h.calm() > drillWatched {
				h.accuse("%s: the last replica was ended: %s", a.name, a.explain())
			}
		}
		before = now
	}
}

func (h *drill) serving(ctx context.Context) (map[string]int64, error) {
	rows, err := h.pg.Query(ctx, drillServing)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Name string
		N    int64
	}])
	out := map[string]int64{}
	for _, one := range all {
		out[one.Name] = one.N
	}
	return out, err
}

// watchDrift adds up the counters of both servers.
func (h *drill) watchDrift(ctx context.Context) {
	before := map[string]map[string]int{}
	for tick := time.NewTicker(time.Second); ; {
		for _, s := range h.servers {
			if now, err := driftOf(ctx, s.url, h.doc.Token); err == nil { // else it is down
				h.addDrift(s.name, before[s.name], now)
				before[s.name] = now
			}
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// addDrift adds what a server counted since it was read last. A server that was started again counts from 0.
func (h *drill) addDrift(server string, before, now map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for kind, n := range now {
		if n >= before[kind] {
			n -= before[kind]
		}
		if h.drift[kind] += n; n > 0 {
			h.t.Logf("%s found drift: %d %s, %v after the last fault", server, n, kind, h.calm().Round(time.Millisecond))
		}
	}
}

func driftOf(ctx context.Context, url, token string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, drillCall)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answered %s", res.Status)
	}
	if err != nil {
		return nil, err
	}
	return driftIn(string(text))
}

// quiet checks what is left when all has ended.
func (h *drill) quiet() {
	h.settled(h.t)
	for _, a := range h.actors {
		a.asAcknowledged()
		a.gapless()
		a.doorsClosed()
	}
	h.guarded()
	h.slept()
	h.passed(h.t)
}

// undrifted wants no drift, unless nodes were killed or paused.
func (h *drill) undrifted() {
	if *drillKills > 0 && strings.Contains(*drillOf, drillNode) {
		return
	}
	for kind, n := range h.drift {
		if n > 0 {
			h.accuse("drift: %d %s", n, kind)
		}
	}
}

// asAcknowledged wants exactly the operations that were acknowledged, all ended in time.
func (a *actor) asAcknowledged() {
	rows, err := a.pg.Query(a.t.Context(), `SELECT id, state, reason, kind, coalesce(ended_at, now()) - deadline_at FROM operations WHERE subject = $1`, a.subject())
	require.NoError(a.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, State, Reason, Kind string
		Late                    time.Duration
	}])
	require.NoError(a.t, err)
	there := map[string]bool{}
	for _, op := range all {
		there[op.ID] = true
		if !a.acknowledged[op.ID] {
			a.accuse("%s has an operation %s %s that nobody was told of", a.name, op.Kind, op.ID)
		}
		if op.State == string(fleet.OperationRunning) || op.Late > drillLate {
			a.accuse("%s: operation %s %s is %s %s, %v after its deadline", a.name, op.Kind, op.ID, op.State, op.Reason, op.Late)
		}
		a.note(a.done, fmt.Sprintf("operation %s %s", op.Kind, op.State))
	}
	for id := range a.acknowledged {
		if !there[id] {
			a.accuse("%s: operation %s was acknowledged and is lost", a.name, id)
		}
	}
}

// gapless wants each number once, of revisions and of rollouts; of old ones not all are kept (F76).
func (a *actor) gapless() {
	for what, query := range map[string]string{
		"revisions": `SELECT least(max(revision), $2) - count(*) FILTER (WHERE revision > last - $2) FROM deployment_revisions, LATERAL (SELECT max(revision) AS last FROM deployment_revisions WHERE deployment = $1) x WHERE deployment = $1`,
		"rollouts":  `SELECT coalesce(least(max(number), $2), 0) - count(*) FILTER (WHERE number > last - $2) FROM rollouts, LATERAL (SELECT max(number) AS last FROM rollouts WHERE deployment = $1) x WHERE deployment = $1`,
	} {
		n, err := a.drill.count(a.t.Context(), query, a.name, int64(drillKept))
		require.NoError(a.t, err)
		if n != 0 {
			a.accuse("%s lacks %d %s", a.name, n, what)
		}
	}
	active, err := a.drill.count(a.t.Context(), `SELECT count(*) FROM rollouts WHERE deployment = $1 AND ended_at IS NULL`, a.name)
	require.NoError(a.t, err)
	if active > 0 {
		a.accuse("%s has a rollout under way", a.name)
	}
}

// doorsClosed wants each door to have ended as its operation.
func (a *actor) doorsClosed() {
	for id, op := range a.doors {
		want := enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
		if op != "" {
			switch s := a.ended(a.t, op).State; s {
			case fleet.OperationSucceeded, fleet.OperationSuperseded:
				want = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
			case fleet.OperationFailed, fleet.OperationCancelled, fleet.OperationUnknown, fleet.OperationRunning:
			}
		}
		if got := a.closed(a.t, &commonpb.WorkflowExecution{WorkflowId: id}); got != want {
			a.accuse("door %s is %s, wanted %s as its operation %q", id, got, want, op)
		}
	}
}

// runOf is how a run is, unspecified if nobody says.
func (h *drill) runOf(ctx context.Context, id string) enumspb.WorkflowExecutionStatus {
	d, _ := h.temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: temporalNamespace, Execution: &commonpb.WorkflowExecution{WorkflowId: id},
	})
	return d.GetWorkflowExecutionInfo().GetStatus()
}

// guarded wants a guardian for each live replica, and no other.
func (h *drill) guarded() {
	h.t.Helper()
	waitFor(h.t, "each guardian has a live replica", func(ctx context.Context) error {
		rows, err := h.pg.Query(ctx, `SELECT node || '/' || id FROM replicas WHERE ended_at IS NULL ORDER BY 1`)
		if err != nil {
			return err
		}
		want, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		got, err := h.replicaGuardians()
		slices.Sort(want)
		if err == nil && !slices.Equal(want, got) {
			err = fmt.Errorf("%w: guardians of %v, replicas %v", errNotYet, got, want)
		}
		return err
	})
}

// replicaGuardians are those that run, by node and replica.
func (h *drill) replicaGuardians() (found []string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(text), "\x00")
		if len(args) < 4 || args[1] != guardian.Command {
			continue
		}
		if at, err := filepath.Rel(filepath.Join(h.data, "nodes"), args[3]); err == nil {
			if part := strings.Split(at, string(filepath.Separator)); len(part) == 4 && part[1] == "replicas" {
				found = append(found, part[0]+"/"+part[3])
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// slept wants no workflow of a deployment, and no door, to run.
func (h *drill) slept() {
	h.t.Helper()
	types := slices.Concat([]string{"Deployment"}, slices.Sorted(maps.Keys(workflows.Doors())))
	waitFor(h.t, "no workflow of a deployment runs", func(ctx context.Context) error {
		list, err := h.temporal.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: temporalNamespace, Query: `ExecutionStatus = "Running" AND WorkflowType IN ("` + strings.Join(types, `","`) + `")`,
		})
		if err == nil && len(list.GetExecutions()) > 0 {
			err = fmt.Errorf("%v runs", list.GetExecutions()[0].GetExecution())
		}
		return err
	})
}
