package httpapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/shuffled"
)

// No rule changes what another one reads.
var _ = shuffled.Rules(phaseRules)

// deployedSeen is press-7 as it is when all is well: revision 3 of generation 2 on both
// nodes.
func deployedSeen(change ...func(*instanceSeen)) instanceSeen {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rev := fleet.Revision{Version: fleet.Version{Era: 1, Revision: 3}, Action: fleet.ActionDeploy, Enabled: true}
	i := instanceSeen{
		object: fleet.Object{Generation: 2, CreatedAt: at, UpdatedAt: at},
		InstanceView: deliveries.InstanceView{
			Desired: rev, Snapshot: rev, DesiredGeneration: 2, SnapshotGeneration: 2, Recorded: at,
			Lease: nodes.Lease{Holder: "a", Epoch: 4},
			Nodes: []deliveries.HeldView{
				{Node: "a", Role: fleet.RoleActive, Version: rev.Version, Enabled: true, Running: true, ReportedAt: at},
				{Node: "b", Role: fleet.RoleStandby, Version: rev.Version, Enabled: true, ReportedAt: at},
			},
			Last: &deliveries.Delivery{Revision: rev, State: fleet.DeliverySucceeded, CreatedAt: at},
		},
	}
	for _, f := range change {
		f(&i)
	}
	return i
}

func desired(revision int64) func(*instanceSeen) {
	return func(i *instanceSeen) { i.Desired.Revision = revision }
}

func last(revision int64, state fleet.DeliveryState, reason string) func(*instanceSeen) {
	return func(i *instanceSeen) { i.Last.Revision.Revision, i.Last.State, i.Last.Reason = revision, state, reason }
}

func never(i *instanceSeen) {
	i.Desired, i.Snapshot, i.Last, i.DesiredGeneration, i.SnapshotGeneration = fleet.Revision{}, fleet.Revision{}, nil, 0, 0
	i.Nodes[0].Version, i.Nodes[1].Version = fleet.Version{}, fleet.Version{}
}

func standbyBehind(i *instanceSeen) {
	i.Nodes[1].Version.Revision, i.Nodes[1].Owed, i.Nodes[1].OwedReason = 2, 3, "communication"
}

func deleting(i *instanceSeen) { at := i.object.UpdatedAt; i.object.DeletingSince = &at }

func disabled(i *instanceSeen) {
	i.Desired.Enabled, i.Snapshot.Enabled, i.Nodes[0].Running = false, false, false
}

func exited(i *instanceSeen) { i.Nodes[0].Running, i.Nodes[0].Reason = false, "exited" }

func failedOver(i *instanceSeen) { i.Lease = nodes.Lease{Holder: "b", Epoch: 5} }

func unreleased(i *instanceSeen) { i.object.Generation = 3 }

func nobody(i *instanceSeen) { i.Lease = nodes.Lease{} }

// N89, X18
func TestInstanceStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		seen       instanceSeen
		phase      string
		replicated string
		synced     string // status and reason
		healthy    string
		copies     string
	}{
		{"all is well", deployedSeen(), phaseDeployed, "2/2", "true as_declared", "true running", "true all_nodes"},
		{"the other node is active now", deployedSeen(failedOver), phaseDeployed, "2/2", "true as_declared", "true applied", "true all_nodes"},
		{"nothing was released", deployedSeen(never), phasePending, "0/2", "false not_released", "unknown not_deployed", "false not_deployed"},
		{"the delivery has not begun", deployedSeen(desired(4)), phasePending, "2/2", "false rolling_out", "true running", "true all_nodes"},
		{"a delivery is under way", deployedSeen(desired(4), last(4, fleet.DeliveryOpen, "")), phaseDelivering, "2/2", "false rolling_out", "true running", "true all_nodes"},
		{"the standby is being served", deployedSeen(standbyBehind, last(3, fleet.DeliveryOpen, "")), phaseDelivering, "1/2", "true as_declared", "true running", "false communication"},
		{"the delivery failed", deployedSeen(desired(4), last(4, fleet.DeliveryFailed, "apply_failed")), phaseFailed, "2/2", "false given_up", "true running", "true all_nodes"},
		{"nobody knows", deployedSeen(desired(4), last(4, fleet.DeliveryUnknown, "")), phaseFailed, "2/2", "false given_up", "true running", "true all_nodes"},
		{"the delivery was cancelled", deployedSeen(desired(4), last(4, fleet.DeliveryCancelled, "cancelled")), phaseFailed, "2/2", "false cancelled", "true running", "true all_nodes"},
		{"an older one failed", deployedSeen(desired(5), last(4, fleet.DeliveryFailed, "apply_failed")), phasePending, "2/2", "false rolling_out", "true running", "true all_nodes"},
		{"it was superseded", deployedSeen(desired(4), last(4, fleet.DeliverySuperseded, "")), phasePending, "2/2", "false rolling_out", "true running", "true all_nodes"},
		{"the standby lags", deployedSeen(standbyBehind, last(3, fleet.DeliveryFailed, "not_replicated")), phaseDegraded, "1/2", "true as_declared", "true running", "false communication"},
		{"the command exited", deployedSeen(exited), phaseDegraded, "2/2", "true as_declared", "false exited", "true all_nodes"},
		{"no node is active", deployedSeen(nobody), phaseDegraded, "2/2", "true as_declared", "unknown no_active_node", "true all_nodes"},
		{"it is disabled", deployedSeen(disabled), phaseDisabled, "2/2", "true as_declared", "true disabled", "true all_nodes"},
		{"it is being deleted", deployedSeen(deleting, last(3, fleet.DeliveryOpen, "")), phaseDeleting, "2/2", "false deleting", "true running", "true all_nodes"},
		{"the latest spec was not released", deployedSeen(unreleased), phaseDeployed, "2/2", "false not_released", "true running", "true all_nodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status := statusFrom(c.seen)
			require.Equal(t, c.phase, status.Phase)
			require.Equal(t, c.replicated, status.Replicated)
			want := []string{"synced " + c.synced, "healthy " + c.healthy, "replicated " + c.copies}
			for i, condition := range status.Conditions {
				require.Equal(t, want[i], condition.Type+" "+string(condition.Status)+" "+condition.Reason)
				require.False(t, condition.Since.IsZero())
			}
		})
	}
}

func TestRoleNow(t *testing.T) {
	t.Parallel()
	require.Equal(t, fleet.RoleActive, roleNow(fleet.RoleStandby, "b", "b"), "who holds the lease is active")
	require.Equal(t, fleet.RoleStandby, roleNow(fleet.RoleActive, "a", "b"), "who lost it stands by")
	require.Equal(t, fleet.RoleWorker, roleNow(fleet.RoleWorker, "c", "b"))
	require.Equal(t, fleet.RoleActive, roleNow(fleet.RoleActive, "a", ""), "as configured until somebody holds it")
}
