package region

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/workflows"
)

// sweepLimit ends a scheduled run whose worker is gone, so that it does not block the next one.
const sweepLimit = 3 * time.Minute

// catchUp is how late a tick may still be caught up: the minimum of Temporal. The next tick comes anyway, and
// missed ones are counted (X12).
const catchUp = 10 * time.Second

// spread is within which time of its second a schedule fires.
const spread = 900 * time.Millisecond

// duty is a periodic sweep: one schedule, which skips a tick while the previous one runs and does not catch up on
// missed ones (X12).
type duty struct {
	id, workflow, note string
	args               []any
	every, offset      time.Duration
}

// lane is a kind of duty. Each has its own seconds, so that no two kinds fire at once.
type lane int

const (
	laneCollection lane = iota
	lanePurge
	laneOperations
	laneNodes
	laneRuntime
	lanes = 5
)

// at is when in the interval the schedule of a shard fires: in the lane's own second of every five, with kinds and
// shards spread over the interval. Shards share a second if there are more than a fifth of the interval's seconds.
// Temporal has a resolution of one second. Regions begin elsewhere in the interval: they may share a machine or a Temporal.
func (l lane) at(every time.Duration, region string, shard, shards int) time.Duration {
	every = max(every, time.Second)
	turns := max(int(every/(lanes*time.Second)), 1)
	first := turns*(2*int(l)+1)/(2*lanes) + firstTurn(region, turns)
	turn := (first + shard*turns/shards) % turns
	return time.Duration(turn*lanes+int(l)) * time.Second % every
}

// firstTurn spreads regions over the turns of an interval.
func firstTurn(region string, turns int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(region))        // never fails
	return int(h.Sum32() % uint32(turns)) //nolint:gosec // turns are few
}

// duties are the duties without shards.
func duties(t Timing, region string) []duty {
	return []duty{
		{id: workflows.SchedulePurge, workflow: workflows.TypePurgePending, note: keptBy, every: t.Purge, offset: lanePurge.at(t.Purge, region, 0, 1)},
		{id: workflows.ScheduleOperations, workflow: workflows.TypeSweepOperations, note: keptBy, every: t.Sweep, offset: laneOperations.at(t.Sweep, region, 0, 1)},
		{id: workflows.ScheduleCollection, workflow: workflows.TypeCollectGarbage, note: keptBy, every: t.Collect, offset: laneCollection.at(t.Collect, region, 0, 1)},
	}
}

// keptBy is the note on each schedule, for operators who want to change one by hand.
const keptBy = "managed by holdfast server, which resets it whenever it starts"

// stated is the full description of a schedule.
func (d duty) stated() client.Schedule {
	return client.Schedule{
		Spec: &client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: d.every, Offset: d.offset}}, Jitter: spread},
		Action: &client.ScheduleWorkflowAction{
			ID: d.id, Workflow: d.workflow, Args: d.args, TaskQueue: workflows.QueueServers, WorkflowExecutionTimeout: sweepLimit,
		},
		Policy: &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: catchUp},
		State:  &client.ScheduleState{Note: d.note},
	}
}

// schedule creates the schedule, or updates an existing one to match.
func (d duty) schedule(ctx context.Context, c client.Client) error {
	want := d.stated()
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: d.id, Spec: *want.Spec, Overlap: want.Policy.Overlap, CatchupWindow: want.Policy.CatchupWindow, Action: want.Action, Note: d.note,
	})
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	return c.ScheduleClient().GetHandle(ctx, d.id).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			next := d.stated()
			if is := in.Description.Schedule.State; is != nil && is.Paused {
				next.State = is // set by an operator, with a reason
			}
			return &client.ScheduleUpdate{Schedule: &next}, nil
		},
	})
}

// perShard is how many nodes or deployments one sweep handles (X12).
const perShard = 500

// shardLook is how often the number of shards is checked.
const shardLook = time.Minute

// sharded is a duty that is split by the number of its objects.
type sharded struct {
	doing  string
	region string
	lane   lane
	every  time.Duration
	count  func(ctx context.Context) (int, error)
	id     func(shard int) string
	duty   func(shard, shards int) duty // without id, note, interval and offset
	have   *atomic.Int64
}

func (s *server) nodeShards() sharded {
	return sharded{
		doing: "keep the schedules of the nodes", region: s.cfg.Region, lane: laneNodes, every: s.cfg.Timing.Nodes, id: workflows.ScheduleNodes,
		count: func(ctx context.Context) (int, error) { return s.store.CountPairNodes(ctx) },
		duty: func(shard, shards int) duty {
			return duty{workflow: workflows.TypeSweepNodes, args: []any{workflows.SweepNodesInput{Shard: shard, Shards: shards}}}
		},
		have: &s.ticks.shards,
	}
}

func (s *server) runtimeShards() sharded {
	return sharded{
		doing: "keep the schedules of the deployments", region: s.cfg.Region, lane: laneRuntime, every: s.cfg.Timing.Runtime, id: workflows.ScheduleRuntime,
		count: func(ctx context.Context) (int, error) { return s.store.CountDeployments(ctx) },
		duty: func(shard, shards int) duty {
			return duty{workflow: workflows.TypeSyncRuntime, args: []any{workflows.SyncRuntimeInput{Shard: shard, Shards: shards}}}
		},
		have: &s.ticks.runtime,
	}
}

// duties are those of the shards for so many objects, each with its own offset.
func (of sharded) duties(objects int) []duty {
	all := make([]duty, max(1, (objects+perShard-1)/perShard))
	for shard := range all {
		d := of.duty(shard, len(all))
		d.id, d.every, d.offset = of.id(shard), of.every, of.lane.at(of.every, of.region, shard, len(all))
		d.note = fmt.Sprintf("shard %d of %d; %s", shard, len(all), keptBy)
		all[shard] = d
	}
	return all
}

// shards maintains one schedule for each shard.
func (s *server) shards(ctx context.Context, of sharded) error {
	have := 0
	return s.every(ctx, shardLook, of.doing, func(ctx context.Context) error {
		n, err := of.count(ctx)
		if err != nil {
			return err
		}
		want := of.duties(n)
		if len(want) == have {
			return nil
		}
		if err := s.keepShards(ctx, of, want); err != nil {
			return err
		}
		have = len(want)
		of.have.Store(int64(have))
		return nil
	})
}

// keepShards creates a schedule for each shard, and removes surplus ones.
func (s *server) keepShards(ctx context.Context, of sharded, want []duty) error {
	for _, d := range want {
		if err := d.schedule(ctx, s.temporal); err != nil {
			return err
		}
	}
	return s.dropShards(ctx, of.id, len(want))
}

// dropShards deletes the schedules of surplus shards.
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

// lateTick is how late a tick counts as late.
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

// Describe lists the metrics that are read from Temporal.
func (t *ticks) Describe(to chan<- *prometheus.Desc) { to <- scheduleTicks }

// Collect reads the schedules; one that cannot be read is omitted.
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
