// Package workflows holds the durable workflows of a region: deterministic code only.
//
// Entities (Instance, Node, …) serve all open operations of one object and end when there is nothing left to do. The
// region starts them under ids that it reserves. Doors (DeployInstance, DrainNode, …) are started by people under any
// other id: they request an operation, wake its entity and wait until the operation has ended.
package workflows

import (
	"strconv"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// VersionedAs is the name under which the servers' workers are versioned.
const VersionedAs = "holdfast"

// Task queues.
const (
	QueueServers = "holdfast"
	queueNode    = "node."
)

// NodeQueue is the queue that one node polls for its own activity tasks.
func NodeQueue(node fleet.NodeName) string { return queueNode + string(node) }

// Types of the scheduled duties.
const (
	TypePurgePending    = "PurgePending"
	TypeSweepOperations = "SweepOperations"
	TypeSweepNodes      = "SweepNodes"
	TypeCollectGarbage  = "CollectGarbage"
	TypeSyncRuntime     = "SyncRuntime"
)

// Signals and queries.
const (
	SignalWake           = "wake"
	SignalOperationEnded = "operation-ended"
	QueryStatus          = "status"
)

// Search attributes.
const (
	AttributeSite       = "Site"
	AttributeNode       = "Node"
	AttributeInstance   = "Instance"
	AttributeDeployment = "Deployment"
	AttributeRegion     = "Region"
	AttributePhase      = "Phase"
	AttributeOutcome    = "Outcome"
)

// Schedules and the ids of the runs that they start.
const (
	SchedulePurge      = "purge-pending"
	ScheduleOperations = "sweep-operations"
	scheduleNodes      = "sweep-nodes-"
	ScheduleCollection = "collect-garbage"
	scheduleRuntime    = "sync-runtime-"
)

// ScheduleNodes is the schedule that compares the nodes of one shard.
func ScheduleNodes(shard int) string { return scheduleNodes + strconv.Itoa(shard) }

// ScheduleRuntime is the schedule that looks at the deployments of one shard.
func ScheduleRuntime(shard int) string { return scheduleRuntime + strconv.Itoa(shard) }

// FleetSiteID is the id of the run that delivers one site's part of a wave. It begins with the subject of the fleet
// change, so the region reserves it too.
func FleetSiteID(name fleet.FleetName, run int64, wave int, site fleet.SiteName) string {
	return fleet.FleetSubject(name) + "." + strconv.FormatInt(run, 10) + "." + strconv.Itoa(wave) + "." + string(site)
}
