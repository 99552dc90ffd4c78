package fleet

import "slices"

// ReplicasDigest is what a node believes of all of its replicas. It is compared, and changes nothing.
type ReplicasDigest struct {
	// Replicas are ordered by id.
	Replicas []ReplicaMark
	// Missing and Stray count what the node found and corrected by itself since its last digest.
	Missing, Stray int
}

// ReplicaMark is what a digest has of a replica, and what the region's row of the replica should have.
type ReplicaMark struct {
	ID             ReplicaID
	Revision       int64
	ProcessVersion int64
	// Definition is the ShortHash of the definition, "" where the node does not know it.
	Definition string
	Phase      ReplicaPhase
	Health     ReplicaHealth
	Unready    bool
}

// shortHash is how many hex digits of a hash tell two definitions apart.
const shortHash = 16

// ShortHash is the beginning of a hash.
func ShortHash(h Hash) string { return string(h[:min(len(h), shortHash)]) }

// SameContent reports whether two marks are of the same content.
func (m ReplicaMark) SameContent(other ReplicaMark) bool {
	return m.Revision == other.Revision && m.ProcessVersion == other.ProcessVersion && m.Definition == other.Definition
}

// Validate rejects what no node sends, as for a report.
func (d ReplicasDigest) Validate() error {
	if len(d.Replicas) > MaxReportedReplicas {
		return Errorf(TooLarge, "%d replicas in a digest; the limit is %d", len(d.Replicas), MaxReportedReplicas).At("digest")
	}
	if d.Missing < 0 || d.Missing > MaxReportedReplicas || d.Stray < 0 || d.Stray > MaxReportedReplicas {
		return Errorf(Invalid, "a number of a digest is out of bounds").At("digest")
	}
	for i, m := range d.Replicas {
		status := ReplicaStatus{
			ID: m.ID, Phase: m.Phase, Health: m.Health, Unready: m.Unready, Revision: m.Revision, ProcessVersion: m.ProcessVersion, Definition: m.Definition,
		}
		if err := status.Validate(); err != nil {
			return err
		}
		if i > 0 && d.Replicas[i-1].ID >= m.ID {
			return Errorf(Invalid, "the replicas of a digest are not ordered by id: %s", m.ID).At("digest")
		}
	}
	return nil
}

// DriftKind is how a node and the region's rows differ about a replica; it is a stable API.
type DriftKind string

// A replica that the node lacks; one that the region does not know there; one that runs other content; one whose
// phase, health, readiness or state differs.
const (
	DriftMissing DriftKind = "missing"
	DriftStray   DriftKind = "stray"
	DriftVersion DriftKind = "version"
	DriftState   DriftKind = "state"
)

// DriftKinds lists all kinds.
func DriftKinds() []DriftKind {
	return []DriftKind{DriftMissing, DriftStray, DriftVersion, DriftState}
}

// Drift counts, by kind, the replicas about which a node and the region differ.
type Drift map[DriftKind]int

// Any reports whether they differ.
func (d Drift) Any() bool { return len(d) > 0 }

// DigestSeen is when a digest was written, and where its node is now.
type DigestSeen struct {
	// Digest is the set that the node followed, Set the newest one of the node.
	Digest, Set SetVersion
	// After is how many reports of the node had been written before its digest, Reports how many have been by now.
	After, Reports int64
	// Connected is set while the connection that sent the digest lives.
	Connected bool
}

// ReplicaRow is the region's row of a replica that has not ended, as it is compared with a digest.
type ReplicaRow struct {
	ReplicaMark
	State ReplicaState
	// Lost is set when a complete report lacked the replica.
	Lost bool
}

// NodeSeen is a digest, and the region's rows of the same node at one instant, all ordered by id.
type NodeSeen struct {
	Node   NodeName
	Marks  []ReplicaMark
	Rows   []ReplicaRow
	Listed []ReplicaID // named to end, or waiting for an operator
}

// Knows reports whether a replica without a row is known: it is to end, or waits for an operator.
func (n NodeSeen) Knows(id ReplicaID) bool {
	_, knows := slices.BinarySearch(n.Listed, id)
	return knows
}
