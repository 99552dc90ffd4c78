//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

// another is one more server of the region, in this process.
type another struct {
	api     *api.Client
	address string
	stop    func()
}

// serve starts a server of a build; "" is the build of the region's own server.
func (s *stack) serve(t *testing.T, build string) another {
	t.Helper()
	chosen, err := choose([]listener{{name: "other", want: loopback + ":0"}}, nil)
	require.NoError(t, err)
	address := loopback + ":" + strconv.Itoa(chosen["other"].Port)
	log, err := openLog(filepath.Join(s.data, "logs", "server-"+strconv.Itoa(chosen["other"].Port)+".log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- region.RunServer(ctx, region.ServerConfig{
			Region: regionName, DatabaseURL: s.pg.Config().ConnString(), TemporalAddress: s.doc.Temporal,
			TemporalNamespace: temporalNamespace, Listen: address, Link: s.otherLink, Build: build, Timing: e2eTiming(),
		}, slog.New(slog.NewTextHandler(log, nil)))
	}()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	waitFor(t, "the other server is ready", func(ctx context.Context) error { return answers(ctx, "http://"+address+"/readyz") })
	c, err := api.NewClient("http://"+address, s.doc.Token)
	require.NoError(t, err)
	return another{c, "http://" + address, stop}
}

// through has a story speak to another server.
func (st *story) through(a another) *story {
	moved, over := *st, *st.stack
	over.api = a.api
	moved.stack = &over
	return &moved
}

// buildOf is the build to which a run is pinned, once its first task is done.
func (s *stack) buildOf(t *testing.T, run *commonpb.WorkflowExecution) (build string) {
	t.Helper()
	waitFor(t, run.GetWorkflowId()+" is pinned", func(ctx context.Context) error {
		d, err := s.temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: temporalNamespace, Execution: run,
		})
		build = d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
		if err == nil && build == "" {
			err = errNotYet
		}
		return err
	})
	return build
}

// N31, N62, X23, X25, X26
func TestE2EServers(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	s.watchOrder(t, pair("plant-1")...)
	t.Run("one of two is paused in the middle of a delivery, and wakes too late", func(t *testing.T) {
		st := newStory(t, s, "plant-1", "paused")
		other := s.serve(t, "")
		st.start = 3
		first, _ := st.release(t)
		st.underWay(t, first)
		s.signal(t, serverName, syscall.SIGSTOP)
		over := st.through(other)
		// The paused server takes tasks with the polls that it has open; each comes back.
		require.True(t, over.ended(t, first.ID).State.Ended())
		second, hash := over.release(t)
		requireSucceeded(t, over.ended(t, second.ID))
		over.good(t, hash)
		s.signal(t, serverName, syscall.SIGCONT)
		third, hash := over.release(t)
		requireSucceeded(t, over.ended(t, third.ID))
		over.good(t, hash)
		other.stop()
		fourth, hash := over.through(another{api: s.api}).release(t)
		requireSucceeded(t, s.ended(t, fourth.ID))
		st.good(t, hash)
		s.asleep(t)
	})
	t.Run("a rebuilt one replaces the other while a delivery is open", func(t *testing.T) {
		st := newStory(t, s, "plant-1", "rebuilt")
		letGo := s.hold(t, s.holder(t, "plant-1"), "before_fetch")
		first, hash := st.release(t)
		st.underWay(t, first)
		entity := &commonpb.WorkflowExecution{WorkflowId: st.entity()}
		old := s.buildOf(t, entity)
		rebuilt := s.serve(t, "rebuilt")
		s.order(t, "stop", serverName) // nothing serves the old build any more
		letGo()
		over := st.through(rebuilt)
		ended := over.ended(t, first.ID)
		require.NotEqual(t, fleet.OperationRunning, ended.State)
		require.NotEqual(t, "workflow_terminated", ended.Reason, "nobody terminated it by hand")
		t.Logf("ended as %s %s", ended.State, ended.Reason)
		over.good(t, hash)
		second, hash := over.release(t)
		requireSucceeded(t, over.ended(t, second.ID))
		require.NotEqual(t, old, s.buildOf(t, entity))
		over.good(t, hash)
		s.order(t, "start", serverName)
		rebuilt.stop()
		third, hash := over.through(another{api: s.api}).release(t)
		requireSucceeded(t, s.ended(t, third.ID))
		st.good(t, hash)
		s.asleep(t)
	})
	t.Run("a rebuilt one goes on with a scheduled run that the other began", func(t *testing.T) {
		begun, letGo := s.syncing(t)
		s.order(t, "stop", serverName)
		letGo()
		rebuilt := s.serve(t, "rebuilt")
		require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, s.closed(t, begun))
		since := time.Now()
		s.order(t, "start", serverName)
		rebuilt.stop()
		s.linked(t, since, pair("plant-1")...) // a fleet change does not wait for them
	})
	t.Run("a rebuilt one runs a fleet change again that was put after the other was gone", func(t *testing.T) {
		f := newField(t, s, "replaced", 4, fieldOptions{}, "plant-1")
		letGo := s.hold(t, s.holder(t, "plant-1"), "before_fetch")
		f.run(t, api.FleetPut{})
		f.until(t, "delivers", func(r api.FleetRun) bool { return r.Counts.Delivering > 0 })
		rebuilt := s.serve(t, "rebuilt")
		s.order(t, "stop", serverName) // its entity goes on with nothing, and never saw the second run
		over, there := *f, *s
		there.api, over.stack = rebuilt.api, &there
		again := over.run(t, api.FleetPut{})
		letGo()
		requireSucceeded(t, over.ended(t, again.ID))
		over.good(t)
		s.order(t, "start", serverName)
		rebuilt.stop()
		s.asleep(t)
	})
	t.Run("a rebuilt one ends a door that waits, and goes on with an entity at which nobody asked for anything", func(t *testing.T) {
		s.waitersMove(t)
	})
	t.Run("one whose servers fall over and over leaves the region to the other", func(t *testing.T) {
		s.servesOn(t)
	})
}

// linked waits until nodes have streams to the region that are younger than an instant.
func (s *stack) linked(t *testing.T, since time.Time, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		waitFor(t, node+" is connected", func(ctx context.Context) error {
			n, err := s.api.Node(ctx, node)
			if err == nil && (n.Connection.State != fleet.ConnectionActive || n.Connection.Since.Before(since)) {
				err = fmt.Errorf("%+v", n.Connection)
			}
			return err
		})
	}
}

// syncing has the schedule begin a look at the deployments that lasts until it is let go.
func (s *stack) syncing(t *testing.T) (run *commonpb.WorkflowExecution, letGo func()) {
	t.Helper()
	held, err := s.pg.Begin(t.Context())
	require.NoError(t, err)
	letGo = func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(letGo)
	_, err = held.Exec(t.Context(), `LOCK TABLE deployments IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	waitFor(t, "a look at the deployments has begun", func(ctx context.Context) error {
		var waits int64
		waits, err = s.count(ctx, `SELECT count(*) FROM pg_locks WHERE relation = 'deployments'::regclass AND NOT granted`)
		if err != nil || waits == 0 {
			return errors.Join(err, errNotYet)
		}
		found, err := s.temporal.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: temporalNamespace, Query: `WorkflowType = 'SyncRuntime' AND ExecutionStatus = 'Running'`,
		})
		if err == nil && len(found.GetExecutions()) == 0 {
			err = errNotYet
		}
		if err == nil {
			run = found.GetExecutions()[0].GetExecution()
		}
		return err
	})
	return run, letGo
}

// waitersMove: a door that its region tells no more, and an entity at which nobody asked for
// anything, both of a build that goes. X25
func (s *stack) waitersMove(t *testing.T) {
	st := newStory(t, s, "plant-1", "waited")
	hash := st.witness.starts(t)[0].hash
	active, standby := s.holder(t, "plant-1"), "plant-1-b"
	if active == standby {
		standby = "plant-1-a"
	}
	letGo := s.hold(t, active, "before_reply")
	door := s.door(t, "waits-"+rand.Text(), "DeployInstance", st.input(), 0)
	var op string
	waitFor(t, "the door's operation is under way", func(ctx context.Context) error {
		return s.pg.QueryRow(ctx, `SELECT id FROM operations WHERE door_run = $1 AND entity_run <> ''`, door.GetRunId()).Scan(&op)
	})
	s.order(t, "stop", standby) // it takes no comparison
	entity := s.compare(t, standby)
	require.Equal(t, s.buildOf(t, door), s.buildOf(t, entity))
	s.order(t, "stop", serverName)
	s.order(t, "start", standby)
	rebuilt := s.serve(t, "moved")
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, s.closed(t, door))
	events := s.events(t, door)
	require.Contains(t, events[len(events)-1].GetWorkflowExecutionTerminatedEventAttributes().GetReason(), op)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, s.closed(t, entity))
	waitFor(t, "another run compares the node", func(context.Context) error {
		if s.buildOf(t, &commonpb.WorkflowExecution{WorkflowId: entity.GetWorkflowId()}) != "moved" {
			return errNotYet
		}
		return nil
	})
	letGo()
	over := st.through(rebuilt)
	requireSucceeded(t, over.ended(t, op))
	over.good(t, hash)
	s.order(t, "start", serverName)
	rebuilt.stop()
	s.asleep(t)
}

// compare has the entity of a node compare it, as the schedule does.
func (s *stack) compare(t *testing.T, node string) *commonpb.WorkflowExecution {
	t.Helper()
	id := "node." + node
	started, err := s.temporal.SignalWithStartWorkflowExecution(t.Context(), &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace: temporalNamespace, WorkflowId: id, RequestId: rand.Text(), SignalName: "wake",
		WorkflowType: &commonpb.WorkflowType{Name: "Node"}, TaskQueue: &taskqueuepb.TaskQueue{Name: "holdfast"},
		Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`{"node":"` + node + `","reason":"schedule"}`),
		}}},
	})
	require.NoError(t, err)
	return &commonpb.WorkflowExecution{WorkflowId: id, RunId: started.GetRunId()}
}

// servesOn: a new build of which every server falls soon, and starts again. X26
func (s *stack) servesOn(t *testing.T) {
	st := newStory(t, s, "plant-1", "served")
	first, _ := st.release(t)
	old := s.buildOf(t, &commonpb.WorkflowExecution{WorkflowId: st.entity()})
	requireSucceeded(t, s.ended(t, first.ID))
	fallen := s.serve(t, "falls")
	s.goTo(t, "falls")
	letLie := s.fall(t, "falls")
	fallen.stop()
	s.goTo(t, old)
	again := s.serve(t, "falls")
	op, hash := st.release(t)
	requireSucceeded(t, s.ended(t, op.ID))
	st.good(t, hash)
	s.goTo(t, old) // the new one does not take what its build could not hold
	letLie()
	s.order(t, "stop", serverName)
	over := st.through(again) // but what nobody else holds
	op, hash = over.release(t)
	requireSucceeded(t, over.ended(t, op.ID))
	over.good(t, hash)
	s.goTo(t, "falls")
	s.order(t, "start", serverName)
	again.stop()
	s.asleep(t)
}

// goTo waits until a run that begins from now on goes to a build. Who asks Temporal itself for the
// current build is soon told to ask less.
func (s *stack) goTo(t *testing.T, build string) {
	t.Helper()
	query := `WorkflowType = 'SyncRuntime' AND TemporalWorkerDeploymentVersion = 'holdfast:` + build + `' AND StartTime > '` +
		time.Now().UTC().Format(time.RFC3339Nano) + `'`
	waitFor(t, "new workflows go to "+build, func(ctx context.Context) error {
		found, err := s.temporal.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: temporalNamespace, Query: query})
		if err == nil && len(found.GetExecutions()) == 0 {
			err = errNotYet
		}
		return err
	})
}

// fall leaves what a server of a build leaves that falls without a word, again and again until
// it is let lie.
func (s *stack) fall(t *testing.T, build string) (letLie func()) {
	t.Helper()
	const again = time.Second
	falls := func(ctx context.Context) error {
		_, err := s.pg.Exec(ctx, `INSERT INTO servers (id, build_id) VALUES ($1, $2)`, rand.Text(), build)
		return err
	}
	require.NoError(t, falls(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(again); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				_ = falls(ctx) // the next one does
			}
		}
	}()
	letLie = func() { cancel(); <-done }
	t.Cleanup(letLie)
	return letLie
}
