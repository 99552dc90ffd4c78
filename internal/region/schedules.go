package region

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/workflows"
)

// sweepLimit ends a scheduled run whose worker is gone, so that it blocks no later one.
const sweepLimit = 3 * time.Minute

// duty is a periodic sweep: one schedule, which skips a tick while the one before runs and
// makes up for none that was missed (X12).
type duty struct {
	id, workflow  string
	args          []any
	every, offset time.Duration
}

// schedule creates the schedule, or gives the one that is there this interval and input.
func (d duty) schedule(ctx context.Context, c client.Client) error {
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: d.every, Offset: d.offset}}}
	action := &client.ScheduleWorkflowAction{
		ID: d.id, Workflow: d.workflow, Args: d.args, TaskQueue: workflows.QueueServers, WorkflowExecutionTimeout: sweepLimit,
	}
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: d.id, Spec: spec, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: d.every, Action: action,
	})
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	return c.ScheduleClient().GetHandle(ctx, d.id).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			in.Description.Schedule.Spec.Intervals = spec.Intervals
			in.Description.Schedule.Action = action
			return &client.ScheduleUpdate{Schedule: &in.Description.Schedule}, nil
		},
	})
}

// perShard is how many nodes, or deployments, one sweep looks at (X12).
const perShard = 500

// shardLook is how often the number of shards is looked at.
const shardLook = time.Minute

// sharded is a duty that is split by how many there are of what it looks at.
type sharded struct {
	doing string
	every time.Duration
	count func(ctx context.Context) (int, error)
	id    func(shard int) string
	duty  func(shard, shards int) duty // without id, interval and offset
	have  *atomic.Int64
}

func (s *server) nodeShards() sharded {
	return sharded{
		doing: "keep the schedules of the nodes", every: s.cfg.Timing.Nodes, count: s.store.CountPairNodes, id: workflows.ScheduleNodes,
		duty: func(shard, shards int) duty {
			return duty{workflow: workflows.TypeSweepNodes, args: []any{workflows.SweepNodesInput{Shard: shard, Shards: shards}}}
		},
		have: &s.ticks.shards,
	}
}

func (s *server) runtimeShards() sharded {
	return sharded{
		doing: "keep the schedules of the deployments", every: s.cfg.Timing.Runtime, count: s.store.CountDeployments, id: workflows.ScheduleRuntime,
		duty: func(shard, shards int) duty {
			return duty{workflow: workflows.TypeSyncRuntime, args: []any{workflows.SyncRuntimeInput{Shard: shard, Shards: shards}}}
		},
		have: &s.ticks.runtime,
	}
}

// shards keeps one schedule for each shard, each with its own offset.
func (s *server) shards(ctx context.Context, of sharded) error {
	have := 0
	return s.every(ctx, shardLook, of.doing, func(ctx context.Context) error {
		n, err := of.count(ctx)
		if err != nil {
			return err
		}
		want := max(1, (n+perShard-1)/perShard)
		if want == have {
			return nil
		}
		for shard := range want {
			d := of.duty(shard, want)
			d.id, d.every, d.offset = of.id(shard), of.every, of.every*time.Duration(shard)/time.Duration(want)
			if err := d.schedule(ctx, s.temporal); err != nil {
				return err
			}
		}
		if err := s.dropShards(ctx, of.id, want); err != nil {
			return err
		}
		have = want
		of.have.Store(int64(want))
		return nil
	})
}

// dropShards ends the schedules of shards that are no more.
func (s *server) dropShards(ctx context.Context, id func(int) string, from int) error {
	for shard := from; ; shard++ {
		err := s.temporal.ScheduleClient().GetHandle(ctx, id(shard)).Delete(ctx)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lateTick is how long after its time a tick counts as late.
const lateTick = 5 * time.Second

var scheduleTicks = prometheus.NewDesc("holdfast_schedule_ticks",
	"Ticks of a schedule that were missed or skipped since it was made, and of its last ten those that came late.",
	[]string{"schedule", "kind"}, nil)

// ticks are the metrics of the schedules.
type ticks struct {
	temporal client.Client
	shards   atomic.Int64 // of the nodes
	runtime  atomic.Int64 // of the deployments
}

// Describe names the metrics that are read from Temporal.
func (t *ticks) Describe(to chan<- *prometheus.Desc) { to <- scheduleTicks }

// Collect reads the schedules; one that cannot be read is missing.
func (t *ticks) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogLimit)
	defer cancel()
	ids := []string{workflows.SchedulePurge, workflows.ScheduleOperations, workflows.ScheduleCollection}
	for shard := range int(t.shards.Load()) {
		ids = append(ids, workflows.ScheduleNodes(shard))
	}
	for shard := range int(t.runtime.Load()) {
		ids = append(ids, workflows.ScheduleRuntime(shard))
	}
	for _, id := range ids {
		d, err := t.temporal.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
		if err != nil {
			continue
		}
		late := 0
		for _, a := range d.Info.RecentActions {
			if a.ActualTime.Sub(a.ScheduleTime) > lateTick {
				late++
			}
		}
		for kind, n := range map[string]int{"missed": d.Info.NumActionsMissedCatchupWindow, "skipped": d.Info.NumActionsSkippedOverlap, "late": late} {
			to <- prometheus.MustNewConstMetric(scheduleTicks, prometheus.GaugeValue, float64(n), id, kind)
		}
	}
}
