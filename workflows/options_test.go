package workflows

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N20, N37, N48, N66, N67: the defaults of a delivery, and that each can be set.
func TestDeliveryLimits(t *testing.T) {
	t.Parallel()
	require.Equal(t, DeliveryLimits{Request: 120 * time.Second, Total: 30 * time.Minute, PendingTTL: 5 * time.Minute, Tries: 3}, DeliveryLimits{}.orDefault())
	own := DeliveryLimits{Request: time.Second, Total: time.Minute, PendingTTL: time.Hour, Tries: 7}
	require.Equal(t, own, own.orDefault())
}

// X14: no option set leaves a timeout or the number of attempts to a default.
func TestOptionSets(t *testing.T) {
	t.Parallel()
	notify := notifyOptions("plant-1-a", time.Minute, time.Hour)
	require.Equal(t, "node.plant-1-a", notify.TaskQueue)
	require.EqualValues(t, 1, notify.RetryPolicy.MaximumAttempts, "one attempt per token")
	for _, timeout := range []time.Duration{
		notify.StartToCloseTimeout, notify.ScheduleToStartTimeout, notify.HeartbeatTimeout,
		askOptions("n", time.Minute).StartToCloseTimeout, askOptions("n", time.Minute).ScheduleToStartTimeout,
		sweepOptions.StartToCloseTimeout, sweepOptions.ScheduleToStartTimeout, sweepOptions.HeartbeatTimeout,
		storeOptions().StartToCloseTimeout, storeOptions().ScheduleToCloseTimeout,
	} {
		require.Positive(t, timeout)
	}
	require.Equal(t, 5*time.Second, notify.HeartbeatTimeout)
	require.Positive(t, sweepOptions.RetryPolicy.MaximumAttempts)
	require.Positive(t, storeOptions().RetryPolicy.MaximumAttempts)
	for _, k := range fleet.Kinds() {
		require.Equal(t, !k.Retryable(), slices.Contains(refusals(), string(k)), k)
	}
}

// X9: ids and queue names stay under 200 characters for the longest names.
func TestNamesStayShort(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, 63))
	require.Less(t, len(fleet.InstanceSubject(fleet.SiteName(long), fleet.InstanceName(long))), 200)
	require.Less(t, len(NodeQueue(fleet.NodeName(long))), 200)
	for _, k := range fleet.EntityKinds() {
		require.Contains(t, entities, k)
	}
	require.Len(t, entities, len(fleet.EntityKinds()))
}
