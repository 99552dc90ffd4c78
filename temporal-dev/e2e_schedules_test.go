//go:build slow

package main

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/workflows"
)

// said is what a schedule says of when and how it fires.
type said struct {
	intervals []client.ScheduleIntervalSpec
	policy    client.SchedulePolicies
	note      string
}

// schedulesStated: a server that starts has each schedule say all that it would say of a new one, as Temporal
// keeps it (X12).
func (s *stack) schedulesStated(t *testing.T) {
	c, err := client.Dial(client.Options{HostPort: s.doc.Temporal, Namespace: s.doc.Namespace, Identity: starter, Logger: noLog{}})
	require.NoError(t, err)
	defer c.Close()
	ids := []string{
		workflows.SchedulePurge, workflows.ScheduleOperations, workflows.ScheduleCollection, workflows.ScheduleNodes(0), workflows.ScheduleRuntime(0),
	}
	says := func(ctx context.Context, id string) (said, error) {
		d, err := c.ScheduleClient().GetHandle(ctx, id).Describe(ctx)
		if err != nil {
			return said{}, err
		}
		return said{d.Schedule.Spec.Intervals, *d.Schedule.Policy, d.Schedule.State.Note}, nil
	}
	before, seconds := map[string]said{}, map[time.Duration]string{}
	for _, id := range ids {
		waitFor(t, id+" is there", func(ctx context.Context) (err error) {
			before[id], err = says(ctx, id)
			return err
		})
		is := before[id]
		require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, is.policy.Overlap, id)
		require.Equal(t, 10*time.Second, is.policy.CatchupWindow, id)
		require.Len(t, is.intervals, 1, id)
		for at := is.intervals[0].Offset; at < time.Hour; at += is.intervals[0].Every {
			require.Empty(t, seconds[at], "%s at %s", id, at)
			seconds[at] = id
		}
	}
	for _, id := range ids {
		require.NoError(t, c.ScheduleClient().GetHandle(t.Context(), id).Update(t.Context(), client.ScheduleUpdateOptions{
			DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				next := in.Description.Schedule
				next.Spec.Intervals = []client.ScheduleIntervalSpec{{Every: 15 * time.Second}}
				next.Policy = &client.SchedulePolicies{Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_BUFFER_ONE, CatchupWindow: time.Hour}
				next.State.Note = "old"
				return &client.ScheduleUpdate{Schedule: &next}, nil
			},
		}))
	}
	s.kill(t, serverName)
	for _, id := range ids {
		waitFor(t, id+" is stated anew", func(ctx context.Context) error {
			is, err := says(ctx, id)
			if err == nil && !reflect.DeepEqual(before[id], is) {
				err = fmt.Errorf("%+v, and not %+v", is, before[id])
			}
			return err
		})
	}
}
