// Package workflows holds the durable workflows of a region: deterministic code only.
//
// Entities (Instance) serve all open operations of one object and end when there is
// nothing left to do. Doors (DeployInstance, SetInstanceState, …) are started by people
// under any workflow id that is not another entity's: they write a request, wake the entity and wait for its operation.
package workflows

import (
	"strconv"
	"strings"

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

// Workflow types, as any Temporal client starts them.
const (
	TypeInstance         = "Instance"
	TypeDeployInstance   = "DeployInstance"
	TypeSetInstanceState = "SetInstanceState"
	TypeFleet            = "Fleet"
	TypeFleetSite        = "FleetSite"
	TypeDeployFleet      = "DeployFleet"
	TypeDeliverSite      = "DeliverSite"
	TypeReconcileNode    = "ReconcileNode"
	TypeDrainNode        = "DrainNode"
	TypeFailoverSite     = "FailoverSite"
	TypePurgePending     = "PurgePending"
	TypeSweepOperations  = "SweepOperations"
	TypeSweepNodes       = "SweepNodes"
	TypeCollectGarbage   = "CollectGarbage"
	TypeExecuteModule    = "ExecuteModule"

	TypeDeployment         = "Deployment"
	TypeConvergeDeployment = "ConvergeDeployment"
	TypeScaleDeployment    = "ScaleDeployment"
	TypeRestartDeployment  = "RestartDeployment"
	TypeDestroyDeployment  = "DestroyDeployment"
	TypeSyncRuntime        = "SyncRuntime"
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

// NodeEntity is the id under which ReconcileNode of one node runs.
func NodeEntity(node fleet.NodeName) string { return fleet.NodeSubject(node) }

// ParseNodeSubject reads the id of a node's entity.
func ParseNodeSubject(subject string) (fleet.NodeName, bool) {
	node, is := strings.CutPrefix(subject, fleet.NodeSubject(""))
	return fleet.NodeName(node), is && node != "" && !strings.Contains(node, ".")
}

// ParseDrainSubject reads the id of the entity of a node's drain.
func ParseDrainSubject(subject string) (fleet.NodeName, bool) {
	node, is := strings.CutPrefix(subject, fleet.DrainSubject(""))
	return fleet.NodeName(node), is && node != "" && !strings.Contains(node, ".")
}

// ParseSiteSubject reads the id of a site's entity.
func ParseSiteSubject(subject string) (fleet.SiteName, bool) {
	site, is := strings.CutPrefix(subject, fleet.SiteSubject(""))
	return fleet.SiteName(site), is && site != "" && !strings.Contains(site, ".")
}

// ParseFleetSubject reads the id of a fleet change's entity.
func ParseFleetSubject(subject string) (fleet.FleetName, bool) {
	name, is := strings.CutPrefix(subject, fleet.FleetSubject(""))
	return fleet.FleetName(name), is && name != "" && !strings.Contains(name, ".")
}

// ParseDeploymentSubject reads the id of a deployment's entity.
func ParseDeploymentSubject(subject string) (fleet.DeploymentName, bool) {
	name, is := strings.CutPrefix(subject, fleet.DeploymentSubject(""))
	return fleet.DeploymentName(name), is && name != "" && !strings.Contains(name, ".")
}

// ParseExecutionSubject reads the id of the run that carries an execution out.
func ParseExecutionSubject(subject string) (fleet.OperationID, bool) {
	id, is := strings.CutPrefix(subject, fleet.ExecutionSubject(""))
	return fleet.OperationID(id), is && fleet.ValidID(id)
}

// DeliverSiteID is the id of the run that delivers what waits at a site in batches.
func DeliverSiteID(site fleet.SiteName) string { return "deliver." + string(site) }

// FleetSiteID is the id of the run that delivers one site's part of a wave.
func FleetSiteID(name fleet.FleetName, run int64, wave int, site fleet.SiteName) string {
	return fleet.FleetSubject(name) + "." + strconv.FormatInt(run, 10) + "." + strconv.Itoa(wave) + "." + string(site)
}

// ParseInstanceSubject reads the id of an instance's entity; names hold no dots.
func ParseInstanceSubject(subject string) (fleet.SiteName, fleet.InstanceName, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 3 || parts[0] != "instance" {
		return "", "", false
	}
	return fleet.SiteName(parts[1]), fleet.InstanceName(parts[2]), true
}

// IsSubject says that a workflow id is an entity's, which may be woken.
func IsSubject(id string) bool {
	_, node := ParseNodeSubject(id)
	_, drain := ParseDrainSubject(id)
	_, site := ParseSiteSubject(id)
	_, change := ParseFleetSubject(id)
	_, deployment := ParseDeploymentSubject(id)
	_, execution := ParseExecutionSubject(id)
	_, _, instance := ParseInstanceSubject(id)
	return node || drain || site || change || deployment || execution || instance
}

// ParseDeliverSite reads the id of the run that delivers what waits at a site.
func ParseDeliverSite(id string) (fleet.SiteName, bool) {
	site, is := strings.CutPrefix(id, DeliverSiteID(""))
	return fleet.SiteName(site), is && site != "" && !strings.Contains(site, ".")
}

// regionID says that the region wakes or starts a run of its own under a workflow id.
func regionID(id string) bool {
	_, deliver := ParseDeliverSite(id)
	wave := strings.HasPrefix(id, fleet.FleetSubject("")) && strings.Count(id, ".") == 4
	return IsSubject(id) || deliver || wave
}
