package fleet

import (
	"slices"
	"strings"
)

// EntityKind is a kind of object that durable runs of the region serve, one run at a time for each object. Its
// subject is the workflow id of these runs: the prefix and the object's names, joined by dots, as in
// "instance.plant-1.press-7".
type EntityKind struct {
	Prefix string
	Names  int // how many names an object has; no name has a dot
}

// The kinds of entities. Everything that the region reserves, wakes and sweeps follows from these rows.
var (
	EntityInstance   = EntityKind{"instance", 2}
	EntityDeployment = EntityKind{"deployment", 1}
	EntityFleet      = EntityKind{"fleet", 1}
	EntityNode       = EntityKind{"node", 1}
	EntityDrain      = EntityKind{"drain", 1}
	EntitySite       = EntityKind{"site", 1}
	EntityExecution  = EntityKind{"execution", 1}
	// EntityDeliver delivers what waits at a site in batches; operations belong to the instances of the batch.
	EntityDeliver = EntityKind{"deliver", 1}
	// EntityRegion follows what a peer changes; it has no operations.
	EntityRegion = EntityKind{"region", 1}
	// EntityPolicy applies the policy of a holder, which its kind and name identify.
	EntityPolicy = EntityKind{"policy", 2}
)

// EntityKinds gives all rows.
func EntityKinds() []EntityKind {
	return []EntityKind{
		EntityInstance, EntityDeployment, EntityFleet, EntityNode, EntityDrain, EntitySite, EntityExecution, EntityDeliver,
		EntityRegion, EntityPolicy, EntitySync,
	}
}

// Subject is the workflow id of the entity of one object.
func (k EntityKind) Subject(names ...string) string { return k.Prefix + "." + strings.Join(names, ".") }

// InstanceSubject is the subject of an instance.
func InstanceSubject(site SiteName, name InstanceName) string {
	return EntityInstance.Subject(string(site), string(name))
}

// DeploymentSubject is the subject of a deployment.
func DeploymentSubject(name DeploymentName) string { return EntityDeployment.Subject(string(name)) }

// NodeSubject is the subject under which a node is compared.
func NodeSubject(node NodeName) string { return EntityNode.Subject(string(node)) }

// DrainSubject is the subject under which a node is drained.
func DrainSubject(node NodeName) string { return EntityDrain.Subject(string(node)) }

// SiteSubject is the subject under which a site's lease is moved.
func SiteSubject(site SiteName) string { return EntitySite.Subject(string(site)) }

// ExecutionSubject is the subject of one durable execution.
func ExecutionSubject(id OperationID) string { return EntityExecution.Subject(string(id)) }

// DeliverSubject is the subject under which what waits at a site is delivered in batches.
func DeliverSubject(site SiteName) string { return EntityDeliver.Subject(string(site)) }

// RegionSubject is the subject under which a peer is followed.
func RegionSubject(peer RegionName) string { return EntityRegion.Subject(string(peer)) }

// ParseSubject reads a subject. It returns false for an id that is none.
func ParseSubject(subject string) (kind EntityKind, names []string, ok bool) {
	parts := strings.Split(subject, ".")
	for _, k := range EntityKinds() {
		if names = parts[1:]; parts[0] == k.Prefix && len(names) == k.Names && !slices.Contains(names, "") {
			return k, names, true
		}
	}
	return EntityKind{}, nil, false
}

// ReservedID tells whether a workflow id is kept for runs of the region: it begins with the prefix of an entity kind
// and a dot.
func ReservedID(id string) bool {
	prefix, _, dotted := strings.Cut(id, ".")
	for _, k := range EntityKinds() {
		if dotted && prefix == k.Prefix {
			return true
		}
	}
	return false
}
