package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Types of the entities, which the region starts.
const (
	TypeInstance    = "Instance"
	TypeDeployment  = "Deployment"
	TypeFleet       = "Fleet"
	TypeFleetSite   = "FleetSite" // a child of Fleet
	TypeNode        = "Node"
	TypeDrain       = "Drain"
	TypeSite        = "Site"
	TypeExecution   = "Execution"
	TypeDeliverSite = "DeliverSite"
	TypeWatchRegion = "WatchRegion"
	TypePolicy      = "Policy"
	TypeSync        = "Sync"
)

// entity says how Temporal runs the entities of one kind.
type entity struct {
	workflow   string
	run        any // the function of the workflow
	input      func(c *Client, names []string) any
	attributes []string // by which runs are found, one for each name; fewer where the rest is not listed
	lasts      func(c *Client) time.Duration
}

// deliverSiteSpan is how many times the longest delivery one run may last: it goes on in a
// new one after the first.
const deliverSiteSpan = 4

// entities has a row for each kind of fleet.EntityKinds.
var entities = map[fleet.EntityKind]entity{
	fleet.EntityInstance: {
		workflow: TypeInstance, run: Instance, attributes: []string{AttributeSite, AttributeInstance},
		input: func(c *Client, names []string) any {
			return InstanceInput{Site: fleet.SiteName(names[0]), Instance: fleet.InstanceName(names[1]), Limits: c.Limits}
		},
	},
	fleet.EntityDeployment: {
		workflow: TypeDeployment, run: Deployment, attributes: []string{AttributeDeployment},
		input: func(_ *Client, names []string) any {
			return DeploymentInput{Deployment: fleet.DeploymentName(names[0])}
		},
	},
	fleet.EntityFleet: {
		workflow: TypeFleet, run: Fleet,
		input: func(c *Client, names []string) any {
			return FleetInput{Fleet: fleet.FleetName(names[0]), Limits: c.Limits}
		},
	},
	fleet.EntityNode: {
		workflow: TypeNode, run: Node, attributes: []string{AttributeNode},
		input: func(_ *Client, names []string) any {
			return NodeInput{Node: fleet.NodeName(names[0]), Reason: fleet.ReconcileRequest}
		},
	},
	fleet.EntityDrain: {
		workflow: TypeDrain, run: Drain, attributes: []string{AttributeNode},
		input: func(_ *Client, names []string) any { return DrainInput{Node: fleet.NodeName(names[0])} },
	},
	fleet.EntitySite: {
		workflow: TypeSite, run: Site, attributes: []string{AttributeSite},
		input: func(c *Client, names []string) any { return SiteInput{Site: fleet.SiteName(names[0]), Take: c.Take} },
	},
	fleet.EntityExecution: {
		workflow: TypeExecution, run: Execution,
		input: func(_ *Client, names []string) any { return ExecutionInput{Operation: fleet.OperationID(names[0])} },
	},
	fleet.EntityDeliver: {
		workflow: TypeDeliverSite, run: DeliverSite, attributes: []string{AttributeSite},
		input: func(c *Client, names []string) any {
			return DeliverSiteInput{Site: fleet.SiteName(names[0]), Limits: c.Limits}
		},
		lasts: func(c *Client) time.Duration { return deliverSiteSpan * c.Limits.orDefault().Total },
	},
	fleet.EntityRegion: {
		workflow: TypeWatchRegion, run: WatchRegion, attributes: []string{AttributeRegion},
		input: func(_ *Client, names []string) any { return WatchRegionInput{Peer: fleet.RegionName(names[0])} },
	},
	fleet.EntitySync: {
		workflow: TypeSync, run: Sync, attributes: []string{AttributeRegion},
		input: func(_ *Client, names []string) any { return SyncInput{Peer: fleet.RegionName(names[0])} },
	},
	fleet.EntityPolicy: {
		workflow: TypePolicy, run: Policy,
		input: func(_ *Client, names []string) any {
			return PolicyInput{Kind: fleet.ObjectKind(names[0]), Name: names[1]}
		},
	},
}

// Entities are the workflow types of the entities, and of the children that they start, with their functions.
func Entities() map[string]any {
	out := map[string]any{TypeFleetSite: FleetSite}
	for _, e := range entities {
		out[e.workflow] = e.run
	}
	return out
}

// listed are the search attributes of a run.
func (e entity) listed(names []string) temporal.SearchAttributes {
	set := make([]temporal.SearchAttributeUpdate, len(e.attributes))
	for i, a := range e.attributes {
		set[i] = temporal.NewSearchAttributeKeyKeyword(a).ValueSet(names[i])
	}
	return temporal.NewSearchAttributes(set...)
}
