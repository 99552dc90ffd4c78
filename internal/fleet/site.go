package fleet

import "strconv"

// SiteSpec declares a site's nodes and their roles.
type SiteSpec struct {
	Nodes []SiteNode `json:"nodes"`
	// OnIsolation is what the last holder of the lease does when it reaches neither its peer nor the region; ""
	// means stop.
	OnIsolation Isolation `json:"onIsolation,omitempty"`
	// AutoFailback hands the lease back to the declared active node once it is available again.
	AutoFailback bool `json:"autoFailback,omitempty"`
}

// Isolation is what an isolated last holder does.
type Isolation string

// Stop ends the instances before another node may start them. Run keeps them: such a site may
// have two active nodes during a partition.
const (
	IsolationStop Isolation = "stop"
	IsolationRun  Isolation = "run"
)

// SiteNode is one node of a site with its configured role.
type SiteNode struct {
	Name NodeName `json:"name"`
	Role Role     `json:"role"`
}

// Validate requires one active node, at most one standby, and unique names.
func (s SiteSpec) Validate() error {
	switch s.OnIsolation {
	case "", IsolationStop, IsolationRun:
	default:
		return Errorf(Invalid, "unknown onIsolation %.40q; use stop or run", s.OnIsolation).At("/onIsolation")
	}
	seen, roles := map[NodeName]bool{}, map[Role]int{}
	for i, n := range s.Nodes {
		at := "/nodes/" + strconv.Itoa(i)
		if err := ValidateName(at+"/name", string(n.Name)); err != nil {
			return err
		}
		if seen[n.Name] {
			return Errorf(Invalid, "node %s is given twice", n.Name).At(at + "/name")
		}
		switch n.Role {
		case RoleActive, RoleStandby, RoleWorker:
		default:
			return Errorf(Invalid, "unknown role %.40q; use active, standby or worker", n.Role).At(at + "/role")
		}
		seen[n.Name], roles[n.Role] = true, roles[n.Role]+1
	}
	if len(s.Nodes) > 0 && roles[RoleActive] != 1 || roles[RoleStandby] > 1 {
		return Errorf(Invalid, "%d active and %d standby nodes", roles[RoleActive], roles[RoleStandby]).
			At("/nodes").WithHint("a site has exactly one active, and at most one standby node")
	}
	return nil
}

// HasStandby reports whether a second node stores the site's instances.
func (s SiteSpec) HasStandby() bool {
	for _, n := range s.Nodes {
		if n.Role == RoleStandby {
			return true
		}
	}
	return false
}

// Active is the declared active node: it may be first, and autoFailback prefers it. The lease decides which node is
// active now.
func (s SiteSpec) Active() NodeName {
	for _, n := range s.Nodes {
		if n.Role == RoleActive {
			return n.Name
		}
	}
	return ""
}

// Votes reports whether a node has a vote at the site: workers have none.
func (s SiteSpec) Votes(node NodeName) bool {
	for _, n := range s.Nodes {
		if n.Name == node {
			return n.Role != RoleWorker
		}
	}
	return false
}

// LeaseState is the holder of a site's lease, as shown in events.
type LeaseState struct {
	Holder   NodeName `json:"holder"`
	Epoch    int64    `json:"epoch"`
	Released bool     `json:"released,omitempty"`
}

// MaxEpochJump is how far a node may report an epoch above the known one (lease.MaxJump).
const MaxEpochJump = 1 << 20

// Membership is what a node needs to know of its site, also while it cannot reach the region.
type Membership struct {
	Site         SiteName
	Project      ProjectName
	Generation   int64 // of the declaration
	Members      []Member
	OnIsolation  Isolation
	AutoFailback bool
	// Resets is the number of the last reset of the votes by an operator, ResetEpoch the epoch that it set.
	Resets, ResetEpoch int64
	// Mark changes whenever anything above it does.
	Mark string
}

// Member is one node of a site.
type Member struct {
	Node        NodeName
	Role        Role   // as declared
	PeerAddress string // host:port of its votes, "" while unknown
	SigningKey  []byte // Ed25519, nil before it enrolled
	// NextSigningKey is the key it is changing to, else nil: its peer accepts either.
	NextSigningKey []byte
	Cordoned       bool
}
