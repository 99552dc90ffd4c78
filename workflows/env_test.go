package workflows_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
)

// region is a toy store behind the real activities: one instance, nodes a and b.
type region struct {
	mu     sync.Mutex
	now    func() time.Time
	seen   fleet.InstanceSeen
	claims int
	ends   []fleet.End
	misses []fleet.Miss
}

func revision(n int64) fleet.Revision {
	return fleet.Revision{
		Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDeploy, Enabled: true,
		Content: fleet.Content{Kind: fleet.ContentJSON, Hash: "h", Size: 1},
	}
}

func (r *region) change(f func(s *fleet.InstanceSeen)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.seen)
}

func (r *region) view(f func(s *fleet.InstanceSeen)) fleet.InstanceSeen {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.seen)
	s := r.seen
	if s.Open != nil {
		open := *s.Open
		open.Targets = append([]fleet.TargetSeen{}, open.Targets...)
		s.Open = &open
	}
	return s
}

// Walk takes the steps one by one.
func (r *region) Walk(_ context.Context, _ fleet.Subject, first fleet.Step, next func(fleet.InstanceSeen, int) (fleet.Step, bool)) (fleet.Walked, error) {
	var w fleet.Walked
	for step, more := first, true; more; step, more = next(w.Seen, len(w.Steps)) {
		w.Steps = append(w.Steps, step)
		if step.Prepare != nil {
			w.Prepared = r.prepare(*step.Prepare)
			break
		}
		w.Seen = r.view(func(s *fleet.InstanceSeen) { r.take(s, step) })
	}
	return w, nil
}

func (r *region) take(s *fleet.InstanceSeen, step fleet.Step) {
	switch {
	case step.Claim != nil:
		r.claim(s, *step.Claim)
	case step.Record != nil:
		record(s, *step.Record)
	case step.Miss != nil:
		r.miss(s, *step.Miss)
	case step.Settle != nil:
		s.Unsettled = nil
	case step.End != nil:
		r.end(s, *step.End)
	}
	s.At = r.now()
}

func (r *region) claim(s *fleet.InstanceSeen, c fleet.Claim) {
	r.claims++
	s.Owed = nil
	s.Open = &fleet.DeliverySeen{
		ID: fleet.DeliveryID(c.Step), Revision: s.Desired, Node: "a", Epoch: 1, Deadline: r.now().Add(c.Deadline),
		Targets: []fleet.TargetSeen{
			{Node: "a", Role: fleet.RoleActive, State: fleet.TargetWaiting},
			{Node: "b", Role: fleet.RoleStandby, State: fleet.TargetWaiting},
		},
	}
}

func (r *region) prepare(p fleet.Prepare) *fleet.Prepared {
	out := &fleet.Prepared{Command: fleet.RefreshDeploymentCommand{DeploymentID: string(p.Delivery)}}
	r.view(func(s *fleet.InstanceSeen) {
		out.Command.Revision = s.Snapshot
		if s.Open != nil {
			out.Command.Revision = s.Open.Revision
			t := target(s, p.Node)
			t.State, t.Tries = fleet.TargetNotified, t.Tries+1
		}
	})
	return out
}

func target(s *fleet.InstanceSeen, n fleet.NodeName) *fleet.TargetSeen {
	for i := range s.Open.Targets {
		if s.Open.Targets[i].Node == n {
			return &s.Open.Targets[i]
		}
	}
	return nil
}

func record(s *fleet.InstanceSeen, in fleet.Record) {
	if in.Delivery == "" {
		s.Owed = nil
		return
	}
	target(s, in.Node).State = fleet.TargetApplied
	if in.Node == "a" {
		s.Snapshot = s.Open.Revision
	}
}

func (r *region) miss(s *fleet.InstanceSeen, m fleet.Miss) {
	r.misses = append(r.misses, m)
	if m.Delivery == "" {
		s.Owed = nil
		return
	}
	t := target(s, m.Node)
	t.State, t.Reason = m.State, m.Reason
}

func (r *region) end(s *fleet.InstanceSeen, e fleet.End) {
	r.ends = append(r.ends, e)
	s.Open, s.Cancelled = nil, 0
	if !e.OnlyCancelled {
		s.Asked = 0
	}
}

// silent makes tokens without secrets and tells no doors.
type silent struct{}

func (silent) New() (string, []byte, error)        { return "t", []byte("h"), nil }
func (silent) Seal([]byte, string) (string, error) { return "sealed", nil }
func (silent) Sign(_ context.Context, node fleet.NodeName, cmd fleet.Command) (fleet.Signature, error) {
	return fleet.Signature{Node: node, Value: []byte(strings.Join(cmd.Terms(), " "))}, nil
}
func (silent) TellDoors(context.Context, string) error { return nil }
func (silent) Wake(context.Context, string) error      { return nil }
func (silent) StartedBy(context.Context, string, string) (string, error) {
	return "somebody@laptop", nil
}

// nodeApplier answers for both nodes.
type nodeApplier struct {
	apply func(cmd fleet.RefreshDeploymentCommand) error
	held  func() (fleet.Held, error)
}

func (n nodeApplier) Apply(_ context.Context, cmd fleet.RefreshDeploymentCommand, _ func(string, int64, int64)) (fleet.DeploymentStatusResponse, error) {
	if n.apply != nil {
		if err := n.apply(cmd); err != nil {
			return fleet.DeploymentStatusResponse{}, err
		}
	}
	return fleet.DeploymentStatusResponse{Held: fleet.Held{Revision: cmd.Revision, Known: true, HighWater: cmd.Revision.Version}}, nil
}

func (n nodeApplier) Held(context.Context, fleet.InstanceName) (fleet.Held, error) { return n.held() }

type bench struct {
	*testsuite.TestWorkflowEnvironment
	region *region
}

// emptyEnv is a workflow environment with nothing registered. The workflows run on the real
// clock, so a machine that is busy must be neither a deadlock nor a test that hangs.
func emptyEnv() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	return env
}

// newEnv is a workflow environment with the real workflows and activities on a toy region
// in which revision 2 is wanted and 1 deployed.
func newEnv(t *testing.T, nodes nodeApplier, requests fakeRequests) *bench {
	t.Helper()
	env := emptyEnv()
	b := &bench{TestWorkflowEnvironment: env}
	b.region = &region{now: env.Now, seen: fleet.InstanceSeen{
		Desired: revision(2), Snapshot: revision(1), Durability: fleet.DurabilitySync, Holder: "a", Epoch: 1, Asked: 1,
	}}
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Instances{Store: b.region, Tokens: silent{}, Signer: silent{}, Doors: silent{}, Log: slog.New(slog.DiscardHandler)})
	env.RegisterActivity(&activities.Doors{Requests: requests, Entities: silent{}, Starts: silent{}})
	node := &activities.Node{Applier: nodes}
	env.RegisterActivityWithOptions(node.RefreshDeployment, activity.RegisterOptions{Name: "RefreshDeployment"})
	env.RegisterActivityWithOptions(node.QueryDeployment, activity.RegisterOptions{Name: "QueryDeployment"})
	return b
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// fakeRequests answers a door: the operation as it is at once, and as it is later.
type fakeRequests struct {
	subject     string
	first, last fleet.OperationState
	err         error
}

func (f fakeRequests) Request(_ context.Context, _ activities.DoorRequest, by string) (activities.OperationView, error) {
	return activities.OperationView{
		OperationEnd: fleet.OperationEnd{Operation: "op", State: f.first, Reason: by}, Subject: f.subject, SecondsLeft: 60,
	}, f.err
}

func (f fakeRequests) Operation(context.Context, fleet.OperationID) (activities.OperationView, error) {
	return activities.OperationView{OperationEnd: fleet.OperationEnd{Operation: "op", State: f.last}, Subject: f.subject, SecondsLeft: 60}, nil
}
