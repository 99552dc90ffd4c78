// Package workers says which worker serves which task queue, with which workflows and
// activities. It holds no logic.
package workers

import (
	"maps"
	"reflect"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// Deployment is the name under which the servers' workers are versioned.
const Deployment = workflows.VersionedAs

// Server are the activities of a server process.
type Server struct {
	Instances   *activities.Instances
	Doors       *activities.Doors
	Reconciles  *activities.Reconciles
	Drains      *activities.Drains
	Failovers   *activities.Failovers
	Fleets      *activities.Fleets
	Deployments *activities.Deployments
	Batches     *activities.Batches
	Sweeps      *activities.Sweeps
	Modules     *activities.Modules
	Regions     *activities.Regions
	Policies    *activities.Policies
}

// Activities are all fields.
func (s Server) Activities() []any {
	fields := reflect.ValueOf(s)
	out := make([]any, fields.NumField())
	for i := range out {
		out[i] = fields.Field(i).Interface()
	}
	return out
}

// Workflows lists every workflow type with its function; replay tests use it too.
func Workflows() map[string]any {
	all := workflows.Entities()
	maps.Copy(all, workflows.Doors())
	maps.Copy(all, workflows.Duties())
	return all
}

// versioning says which build goes on with a run: the one that began it, except of the scheduled
// duties. Such a run outlives its build, and goes on with the one that took over: else the
// schedule would skip its ticks until the run times out. So each is one activity and has to stay
// so, or to replay what builds before it recorded (TestReplay).
func versioning(name string) workflow.VersioningBehavior {
	if _, scheduled := workflows.Duties()[name]; scheduled {
		return workflow.VersioningBehaviorAutoUpgrade
	}
	return workflow.VersioningBehaviorPinned
}

// NewServer makes the worker of a server: its activities, and workflows, which are pinned to its
// build unless they are scheduled.
func NewServer(c client.Client, build, identity string, s Server) worker.Worker {
	w := worker.New(c, workflows.QueueServers, worker.Options{
		Identity: identity,
		DeploymentOptions: worker.DeploymentOptions{
			UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: Deployment, BuildID: build},
			DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
		},
		WorkerStopTimeout:                10 * time.Second,
		MaxConcurrentWorkflowTaskPollers: 4, MaxConcurrentActivityTaskPollers: 2,
		StickyScheduleToStartTimeout: 2 * time.Second,
	})
	for name, f := range Workflows() {
		w.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name, VersioningBehavior: versioning(name)})
	}
	for _, a := range s.Activities() {
		w.RegisterActivity(a)
	}
	return w
}

// NewNode makes the worker of a node: activities of its own queue and nothing else.
func NewNode(c client.Client, node fleet.NodeName, n *activities.Node) worker.Worker {
	w := worker.New(c, workflows.NodeQueue(node), worker.Options{
		Identity: "node." + string(node), DisableWorkflowWorker: true,
		MaxConcurrentActivityExecutionSize: 64, MaxConcurrentActivityTaskPollers: 2,
		WorkerStopTimeout: 5 * time.Second,
		// Cancellation travels with heartbeats. The SDK gives one call no longer than this
		// interval, so it leaves room for a slow one within the timeout of 5 s.
		MaxHeartbeatThrottleInterval: 3 * time.Second, DefaultHeartbeatThrottleInterval: 3 * time.Second,
	})
	w.RegisterActivityWithOptions(n.RefreshDeployment, activity.RegisterOptions{Name: "RefreshDeployment"})
	w.RegisterActivityWithOptions(n.RefreshBatch, activity.RegisterOptions{Name: "RefreshBatch"})
	w.RegisterActivityWithOptions(n.QueryDeployment, activity.RegisterOptions{Name: "QueryDeployment"})
	w.RegisterActivityWithOptions(n.Reconcile, activity.RegisterOptions{Name: "Reconcile"})
	if n.Leases != nil {
		w.RegisterActivityWithOptions(n.HandOver, activity.RegisterOptions{Name: "HandOver"})
		w.RegisterActivityWithOptions(n.TakeOver, activity.RegisterOptions{Name: "TakeOver"})
	}
	return w
}
