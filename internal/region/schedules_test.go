package region

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

// fakeSchedules keeps schedules as Temporal would.
type fakeSchedules struct {
	client.Client
	have map[string]client.Schedule
}

var _ client.Client = (*fakeSchedules)(nil)

func (f *fakeSchedules) ScheduleClient() client.ScheduleClient { return scheduleClient{all: f} }

type scheduleClient struct {
	client.ScheduleClient
	all *fakeSchedules
}

func (c scheduleClient) Create(_ context.Context, o client.ScheduleOptions) (client.ScheduleHandle, error) {
	if _, there := c.all.have[o.ID]; there {
		return nil, temporal.ErrScheduleAlreadyRunning
	}
	c.all.have[o.ID] = client.Schedule{
		Action: o.Action, Spec: &o.Spec, Policy: &client.SchedulePolicies{Overlap: o.Overlap, CatchupWindow: o.CatchupWindow},
		State: &client.ScheduleState{Note: o.Note},
	}
	return fakeSchedule{all: c.all, id: o.ID}, nil
}

func (c scheduleClient) GetHandle(_ context.Context, id string) client.ScheduleHandle {
	return fakeSchedule{all: c.all, id: id}
}

type fakeSchedule struct {
	client.ScheduleHandle
	all *fakeSchedules
	id  string
}

func (h fakeSchedule) Update(_ context.Context, o client.ScheduleUpdateOptions) error {
	next, err := o.DoUpdate(client.ScheduleUpdateInput{Description: client.ScheduleDescription{Schedule: h.all.have[h.id]}})
	if err == nil {
		h.all.have[h.id] = *next.Schedule
	}
	return err
}

func (h fakeSchedule) Delete(context.Context) error {
	if _, there := h.all.have[h.id]; !there {
		return serviceerror.NewNotFound("no schedule")
	}
	delete(h.all.have, h.id)
	return nil
}

// scheduled are all schedules of a region with so many nodes in pairs and deployments.
func scheduled(timing Timing, region string, nodes, deployments int) []duty {
	s := &server{ticks: &ticks{}, cfg: ServerConfig{Timing: timing, Region: region}}
	all := duties(timing, region)
	all = append(all, s.nodeShards().duties(nodes)...)
	return append(all, s.runtimeShards().duties(deployments)...)
}

// X12: no two schedules of a region fire in the same second, as long as the intervals have one for each.
func TestSchedulesAreApart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timing             Timing
		nodes, deployments int
	}{
		"a small region":       {DefaultTiming(), 2, 0},
		"a large region":       {DefaultTiming(), 12 * perShard, 6 * perShard},
		"one between":          {DefaultTiming(), 3*perShard + 1, 5 * perShard},
		"a laptop's with fast": {FastTiming(), 4, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := scheduled(c.timing, "eu", c.nodes, c.deployments)
			fires := map[time.Duration]string{}
			for _, d := range all {
				require.Less(t, d.offset, d.every, d.id)
				require.Zero(t, d.offset%time.Second, "%s: Temporal knows whole seconds", d.id)
				for at := d.offset; at < 2*time.Hour; at += d.every {
					require.Empty(t, fires[at], "%s at %s", d.id, at)
					fires[at] = d.id
				}
			}
		})
	}

	t.Run("regions that share a machine", func(t *testing.T) {
		t.Parallel()
		fires := map[time.Duration]string{}
		for _, region := range []string{"ap", "eu", "us"} {
			for _, d := range scheduled(DefaultTiming(), region, 2, 1) {
				for at := d.offset; at < time.Hour; at += d.every {
					require.Empty(t, fires[at], "%s of %s at %s", d.id, region, at)
					fires[at] = d.id + " of " + region
				}
			}
		}
	})

	t.Run("shards are spread over the interval", func(t *testing.T) {
		t.Parallel()
		for _, shards := range []int{2, 3, 6, 20} {
			half := 0
			for shard := range shards {
				if laneRuntime.at(30*time.Second, "eu", shard, shards) < 15*time.Second {
					half++
				}
			}
			require.InDelta(t, float64(shards)/2, half, 1, "of %d shards", shards)
		}
	})

	t.Run("an interval of any length has its offset within", func(t *testing.T) {
		t.Parallel()
		for seconds := range 200 {
			every := time.Duration(seconds+1) * time.Second
			for l := range lane(lanes) {
				at := l.at(every, "eu", 3, 7)
				require.True(t, at >= 0 && at < every, "%d of %s: %s", l, every, at)
			}
		}
	})
}

// X12: a shard is about 500 objects.
func TestShards(t *testing.T) {
	t.Parallel()
	s := &server{ticks: &ticks{}, cfg: ServerConfig{Timing: DefaultTiming()}}
	for objects, want := range map[int]int{0: 1, 1: 1, 500: 1, 501: 2, 1000: 2, 1001: 3, 10_000: 20} {
		for _, of := range []sharded{s.nodeShards(), s.runtimeShards()} {
			all := of.duties(objects)
			require.Len(t, all, want, "%d objects", objects)
			for shard, d := range all {
				require.Equal(t, of.id(shard), d.id)
				require.Len(t, d.args, 1)
				require.Contains(t, d.note, "shard "+strconv.Itoa(shard)+" of "+strconv.Itoa(want))
			}
		}
	}
}

// X12: what runs is never overlapped, and what was missed is not made up for; a schedule that is there says all
// of it anew.
func TestSchedulesAreStated(t *testing.T) {
	t.Parallel()

	t.Run("by a new one", func(t *testing.T) {
		t.Parallel()
		f := &fakeSchedules{have: map[string]client.Schedule{}}
		for _, d := range scheduled(DefaultTiming(), "eu", 2*perShard, 2*perShard) {
			require.NoError(t, d.schedule(t.Context(), f))
			is := f.have[d.id]
			require.Equal(t, d.stated(), is)
			require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, is.Policy.Overlap, d.id)
			require.Equal(t, 10*time.Second, is.Policy.CatchupWindow, d.id)
			require.False(t, is.Policy.PauseOnFailure, d.id)
			require.Equal(t, []client.ScheduleIntervalSpec{{Every: d.every, Offset: d.offset}}, is.Spec.Intervals)
			require.Positive(t, is.Spec.Jitter, "not in one moment with other regions")
			require.Less(t, is.Spec.Jitter, time.Second, "%s stays in its second", d.id)
		}
		require.Len(t, f.have, 7)
	})

	t.Run("by one that said something else", func(t *testing.T) {
		t.Parallel()
		for _, d := range scheduled(DefaultTiming(), "eu", 2*perShard, 2*perShard) {
			f := &fakeSchedules{have: map[string]client.Schedule{d.id: {
				Action: &client.ScheduleWorkflowAction{ID: "old", Workflow: "Old", TaskQueue: "old", WorkflowExecutionTimeout: time.Hour},
				Spec: &client.ScheduleSpec{
					Intervals: []client.ScheduleIntervalSpec{{Every: time.Hour}, {Every: time.Minute, Offset: time.Second}},
					Jitter:    time.Minute, EndAt: time.Unix(1, 0),
				},
				Policy: &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL, CatchupWindow: 365 * 24 * time.Hour, PauseOnFailure: true},
				State:  &client.ScheduleState{Note: "old", LimitedActions: true, RemainingActions: 1},
			}}}
			require.NoError(t, d.schedule(t.Context(), f))
			require.Equal(t, d.stated(), f.have[d.id], d.id)
		}
	})

	t.Run("but for an operator's pause", func(t *testing.T) {
		t.Parallel()
		d := duties(DefaultTiming(), "eu")[0]
		paused := &client.ScheduleState{Note: "until the disk is there", Paused: true}
		was := d.stated()
		was.State, was.Policy = paused, &client.SchedulePolicies{CatchupWindow: time.Hour}
		f := &fakeSchedules{have: map[string]client.Schedule{d.id: was}}
		require.NoError(t, d.schedule(t.Context(), f))
		require.Equal(t, paused, f.have[d.id].State)
		require.Equal(t, d.stated().Policy, f.have[d.id].Policy)
	})
}

// X12: shards come and go with what there is, and those that stay get their new offsets.
func TestShardsFollowTheCount(t *testing.T) {
	t.Parallel()
	f := &fakeSchedules{have: map[string]client.Schedule{}}
	s := &server{ticks: &ticks{}, cfg: ServerConfig{Timing: DefaultTiming()}, temporal: f}
	of := s.nodeShards()
	for _, objects := range []int{1200, 300, 700} {
		all := of.duties(objects)
		require.NoError(t, s.keepShards(t.Context(), of, all))
		want := map[string]client.Schedule{}
		for _, d := range all {
			want[d.id] = d.stated()
		}
		require.Equal(t, want, f.have, "%d objects", objects)
	}
}
