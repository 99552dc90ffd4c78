package httpapi

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// The phases of an instance.
const (
	phasePending    = "Pending"
	phaseDelivering = "Delivering"
	phaseDeployed   = "Deployed"
	phaseDegraded   = "Degraded"
	phaseFailed     = "Failed"
	phaseDeleting   = "Deleting"
	phaseDisabled   = "Disabled"
)

// instanceSeen is what the status of an instance is decided from.
type instanceSeen struct {
	object fleet.Object
	deliveries.InstanceView
}

// phaseRules are tried in order; the first that holds names the phase.
var phaseRules = []struct {
	phase string
	when  func(instanceSeen) bool
}{
	{phaseDeleting, func(i instanceSeen) bool { return i.object.DeletingSince != nil }},
	{phaseDelivering, instanceSeen.delivering},
	{phaseFailed, func(i instanceSeen) bool { return !i.applied() && i.gaveUp() }},
	{phasePending, func(i instanceSeen) bool { return !i.applied() }},
	{phaseDisabled, func(i instanceSeen) bool { return !i.Snapshot.Enabled }},
	{phaseDegraded, func(i instanceSeen) bool { return i.holding() < len(i.Nodes) || i.ill() != "" }},
	{phaseDeployed, func(instanceSeen) bool { return true }},
}

func (i instanceSeen) phase() string {
	for _, rule := range phaseRules {
		if rule.when(i) {
			return rule.phase
		}
	}
	return phasePending
}

func (i instanceSeen) delivering() bool {
	return i.Last != nil && i.Last.State == fleet.DeliveryOpen
}

// applied says that what was released last is deployed.
func (i instanceSeen) applied() bool {
	return !i.Desired.IsZero() && i.Snapshot.Version == i.Desired.Version
}

// staged says that the nodes have fetched what is desired and switch to it later (N100).
func (i instanceSeen) staged() bool {
	return i.Last != nil && i.Last.Revision.Version == i.Desired.Version && i.Last.State == fleet.DeliveryStaged
}

// gaveUp says that the last attempt at what is desired ended without success.
func (i instanceSeen) gaveUp() bool {
	if i.Last == nil || i.Last.Revision.Version != i.Desired.Version {
		return false
	}
	switch i.Last.State {
	case fleet.DeliveryFailed, fleet.DeliveryUnknown, fleet.DeliveryCancelled:
		return true
	case fleet.DeliveryOpen, fleet.DeliverySucceeded, fleet.DeliverySuperseded, fleet.DeliveryStaged:
	}
	return false
}

// holding counts the nodes that hold the deployed revision.
func (i instanceSeen) holding() int {
	n := 0
	for _, node := range i.Nodes {
		if !i.Snapshot.IsZero() && decide.Applied(node.Held(), i.Snapshot) {
			n++
		}
	}
	return n
}

// active is the node that may run the instance; nil when there is none.
func (i instanceSeen) active() *deliveries.HeldView {
	for n := range i.Nodes {
		if i.Nodes[n].Node == i.Lease.Holder {
			return &i.Nodes[n]
		}
	}
	return nil
}

// ill says why the instance does not work on the active node; "" when it does.
func (i instanceSeen) ill() string {
	a := i.active()
	switch {
	case a == nil:
		return "no_active_node"
	case a.Version.IsZero():
		return "not_reported"
	}
	return a.Reason
}

func (i instanceSeen) replicated() string {
	return fmt.Sprintf("%d/%d", i.holding(), len(i.Nodes))
}

// conditions tell sync and health apart (X18).
func (i instanceSeen) conditions() []api.Condition {
	return []api.Condition{i.synced(), i.healthy(), i.replicatedCondition()}
}

// synced: is the latest generation applied?
func (i instanceSeen) synced() api.Condition {
	c := api.Condition{Type: decide.ConditionSynced, Status: fleet.ConditionFalse, Since: i.object.UpdatedAt, Revision: i.Desired.Revision}
	name := i.object.Scope + "/" + i.object.Name
	if i.Last != nil {
		c.Message = i.Last.Message
	}
	switch {
	case i.object.DeletingSince != nil:
		c.Reason, c.Since = decide.SyncedDeleting, *i.object.DeletingSince
	case i.DesiredGeneration != i.object.Generation:
		c.Reason, c.Message, c.Hint = decide.SyncedNotReleased, "the latest spec was written without being released", "holdfast deploy "+name
	case i.applied():
		c.Status, c.Reason, c.Message, c.Since = fleet.ConditionTrue, decide.SyncedAsDeclared, "", i.Recorded
	case i.delivering():
		c.Reason, c.Since, c.Hint = decide.SyncedRollingOut, i.Last.CreatedAt, "holdfast wait "+name
	case i.staged():
		c.Reason, c.Message, c.Since = "staged", "it was fetched, and waits for the window of its site", endOf(*i.Last)
	case i.gaveUp() && i.Last.State == fleet.DeliveryCancelled:
		c.Reason, c.Since, c.Hint = decide.SyncedCancelled, endOf(*i.Last), "holdfast deploy "+name
	case i.gaveUp():
		c.Reason, c.Since, c.Hint = decide.SyncedGivenUp, endOf(*i.Last), "holdfast deploy "+name
		c.Message = strings.TrimSuffix(cmp.Or(i.Last.Reason, string(i.Last.State))+": "+i.Last.Message, ": ")
	default:
		c.Reason, c.Message, c.Hint = decide.SyncedRollingOut, "waiting for its delivery to begin", "holdfast wait "+name
	}
	return c
}

func endOf(d deliveries.Delivery) time.Time {
	if d.EndedAt != nil {
		return *d.EndedAt
	}
	return d.CreatedAt
}

// healthy: does what is deployed work on the active node?
func (i instanceSeen) healthy() api.Condition {
	c := api.Condition{Type: "healthy", Status: fleet.ConditionUnknown, Since: i.object.CreatedAt}
	a := i.active()
	if a != nil && !a.ReportedAt.IsZero() {
		c.Since = a.ReportedAt
	}
	switch {
	case i.Snapshot.IsZero():
		c.Reason = "not_deployed"
	case a == nil || a.Version.IsZero():
		c.Reason = i.ill()
	case a.Reason != "":
		c.Status, c.Reason = fleet.ConditionFalse, a.Reason
	case !i.Snapshot.Enabled:
		c.Status, c.Reason = fleet.ConditionTrue, "disabled"
	case a.Running:
		c.Status, c.Reason = fleet.ConditionTrue, "running"
	default:
		c.Status, c.Reason = fleet.ConditionTrue, "applied"
	}
	return c
}

// replicatedCondition: do all nodes that should hold what is deployed?
func (i instanceSeen) replicatedCondition() api.Condition {
	c := api.Condition{Type: "replicated", Status: fleet.ConditionFalse, Since: i.Recorded}
	switch {
	case i.Snapshot.IsZero():
		c.Reason, c.Since = "not_deployed", i.object.CreatedAt
	case i.holding() == len(i.Nodes):
		c.Status, c.Reason = fleet.ConditionTrue, "all_nodes"
	default:
		c.Reason = "not_confirmed"
		for _, n := range i.Nodes {
			if n.Owed != 0 && n.OwedReason != "" {
				c.Reason, c.Message = n.OwedReason, "revision "+fmt.Sprint(n.Owed)+" is owed to node "+string(n.Node)
				break
			}
		}
	}
	return c
}
