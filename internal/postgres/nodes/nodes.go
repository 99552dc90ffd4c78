package nodes

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Node is what the region knows of a node.
type Node struct {
	Name       fleet.NodeName
	Site       fleet.SiteName
	Role       fleet.Role
	Epoch      int64
	SigningKey []byte
	EnrolledAt *time.Time
	RevokedAt  *time.Time
	RotatedAt  *time.Time
	Rotation   *Rotation // nil when none is under way
	SeenAt     *time.Time
	StartedAt  *time.Time
	Instances  int64
	Owed       int64
	Orphans    int64 // that wait for an operator
	Counters   map[string]int64
	CordonedAt *time.Time
	// CordonReason is why no new work goes there.
	CordonReason string
	Separation   fleet.Separation // as reported at its last registration
	Connection   *NodeConnection
}

// NodeConnection is a node's live connection of the link; a nil one says that there is none.
type NodeConnection struct {
	ID       fleet.ConnectionID
	State    fleet.ConnectionState
	Since    time.Time // of its stream; before that, of its registration
	InFlight int
}

// NodeFilter narrows a list of nodes; its zero value lists all. Project is that of their sites.
type NodeFilter struct {
	Site    fleet.SiteName
	Name    fleet.NodeName
	Project fleet.ProjectName
}

// ListNodes pages through the nodes by name.
func (s *Store) ListNodes(ctx context.Context, f NodeFilter, after string, limit int32) ([]Node, error) {
	rows, err := s.Q.ListNodes(ctx, db.ListNodesParams{
		After: after, Site: string(f.Site), Name: string(f.Name), Project: string(f.Project), MaxRows: limit,
	})
	out := make([]Node, len(rows))
	for i, r := range rows {
		out[i] = Node{
			Name: fleet.NodeName(r.Name), Site: fleet.SiteName(r.Site), Role: fleet.Role(r.Role), Epoch: r.Epoch,
			SigningKey: r.SigningKey, EnrolledAt: r.EnrolledAt, RevokedAt: r.RevokedAt, SeenAt: r.SeenAt,
			StartedAt: r.StartedAt, Instances: r.Instances, Owed: r.Owed, Orphans: r.Orphans,
			CordonedAt: r.CordonedAt, CordonReason: r.CordonReason,
			Connection: nodeConnection(r), RotatedAt: r.RotatedAt,
		}
		if r.RotationAskedAt != nil {
			out[i].Rotation = &Rotation{AskedAt: *r.RotationAskedAt, Offered: r.NextSigningKey != nil}
		}
		if err := json.Unmarshal(r.Counters, &out[i].Counters); err != nil {
			return nil, postgres.Unreadable("what a node counted", err)
		}
		var facts fleet.NodeFacts
		if err := json.Unmarshal(r.Facts, &facts); err != nil {
			return nil, postgres.Unreadable("the facts of node "+r.Name, err)
		}
		out[i].Separation = facts.Separation
	}
	return out, err
}

func nodeConnection(r db.ListNodesRow) *NodeConnection {
	if r.Connection == nil || r.ConnectionState == nil || r.InFlight == nil || r.RegisteredAt == nil {
		return nil
	}
	c := &NodeConnection{
		ID: fleet.ConnectionID(*r.Connection), State: fleet.ConnectionState(*r.ConnectionState),
		Since: *r.RegisteredAt, InFlight: int(*r.InFlight),
	}
	if r.ActiveAt != nil {
		c.Since = *r.ActiveAt
	}
	return c
}

// Enrolment is a node's first word: the join token that it was given, and its public keys.
type Enrolment struct {
	JoinTokenHash []byte
	Node          fleet.NodeName
	Site          fleet.SiteName
	SigningKey    []byte
	SealingKey    []byte
}

// Welcome is what a node learns about itself.
type Welcome struct {
	Region string     `json:"region"`
	Role   fleet.Role `json:"role"`
	Epoch  int64      `json:"epoch"`
	// RotateKey asks the node for a new key.
	RotateKey bool `json:"rotateKey,omitempty"`
	// First says that no other key was ever enrolled under this name: it has not voted yet.
	First bool `json:"first,omitempty"`
	// CommandKeys are the public keys by which the region may sign commands.
	CommandKeys [][]byte `json:"commandKeys,omitempty"`
}

// Enrol uses a join token once; the same token with the same keys gets the same answer again, for
// an answer may get lost. Enrolling again replaces the keys, which revokes the old.
func (s *Store) Enrol(ctx context.Context, e Enrolment) (Welcome, error) {
	var out Welcome
	err := s.Tx(ctx, func(q *db.Queries) error {
		first, err := enrol(ctx, q, e)
		if err != nil {
			return err
		}
		out, err = s.Welcome(ctx, q, e.Node)
		out.First = first
		return err
	})
	return out, err
}

// enrol says whether no other key was ever enrolled under the node's name.
func enrol(ctx context.Context, q *db.Queries, e Enrolment) (first bool, err error) {
	t, err := q.UseJoinToken(ctx, e.JoinTokenHash)
	if postgres.NoRows(err) {
		return enrolledBy(ctx, q, e)
	}
	if err != nil {
		return false, err
	}
	if t.Node != string(e.Node) || t.Site != string(e.Site) {
		return false, notGoodFor(e)
	}
	first, err = q.FirstEnrolment(ctx, db.FirstEnrolmentParams{SigningKey: e.SigningKey, Name: string(e.Node)})
	if err != nil && !postgres.NoRows(err) {
		return false, err
	}
	n, err := q.EnrolNode(ctx, db.EnrolNodeParams{
		SigningKey: e.SigningKey, SealingKey: e.SealingKey, Name: string(e.Node), Site: string(e.Site),
	})
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, postgres.OrNotFound(nil, "node", string(e.Node), "declare it in its site first")
	}
	return first, postgres.TellSite(ctx, q, string(e.Site))
}

// enrolledBy answers an enrolment that took place, and changes nothing.
func enrolledBy(ctx context.Context, q *db.Queries, e Enrolment) (first bool, err error) {
	first, err = q.EnrolledBy(ctx, db.EnrolledByParams{
		Hash: e.JoinTokenHash, Node: string(e.Node), Site: string(e.Site), SigningKey: e.SigningKey, SealingKey: e.SealingKey,
	})
	if postgres.NoRows(err) {
		return false, notGoodFor(e)
	}
	return first, err
}

func notGoodFor(e Enrolment) error {
	return fleet.Errorf(fleet.Unauthenticated, "the join token is not valid for node %s of site %s", e.Node, e.Site).
		WithHint("a token is valid once, for one node and a limited time: holdfast join-token create")
}

// Welcome is what a node is to know of its region.
func (s *Store) Welcome(ctx context.Context, q *db.Queries, name fleet.NodeName) (Welcome, error) {
	n, err := q.GetNode(ctx, string(name))
	if err != nil {
		return Welcome{}, err
	}
	lease, err := q.GetLease(ctx, n.Site)
	if err != nil && !postgres.NoRows(err) {
		return Welcome{}, err
	}
	keys, err := q.VerifyingKeys(ctx)
	if err != nil {
		return Welcome{}, err
	}
	return Welcome{
		Region: s.Region, Role: RoleOf(n, lease.Holder), Epoch: max(lease.Epoch, 1), RotateKey: n.RotationAskedAt != nil, CommandKeys: keys,
	}, nil
}

// RoleOf is a node's current role: only the holder of the lease is active.
func RoleOf(n db.Node, holder string) fleet.Role {
	switch {
	case n.Name == holder:
		return fleet.RoleActive
	case n.Role == string(fleet.RoleActive):
		return fleet.RoleStandby
	}
	return fleet.Role(n.Role)
}

// NodeCounted keeps what a node counted since it started.
func (s *Store) NodeCounted(ctx context.Context, node fleet.NodeName, counters map[string]int64) error {
	raw, err := json.Marshal(counters)
	if err != nil {
		return err
	}
	p := db.CountedByNodeParams{Name: string(node), Counters: raw}
	return s.Q.CountedByNode(ctx, p)
}

// NodeReport is what a node holds, in pages at its start, or what changed since. StartID
// names the start whose page it is, "" for a change.
type NodeReport struct {
	Node      fleet.NodeName
	StartID   string
	Instances []fleet.NodeInstance
}

// HeldBy writes down what a node holds. It refuses a node that reports above the region's
// last number: then this is a restored database, and its era must be raised first.
func (s *Store) HeldBy(ctx context.Context, r NodeReport) (Welcome, error) {
	var out Welcome
	err := s.Tx(ctx, func(q *db.Queries) error {
		if r.StartID != "" {
			if err := q.NodeStarting(ctx, db.NodeStartingParams{StartID: &r.StartID, Name: string(r.Node)}); err != nil {
				return err
			}
		}
		n, err := q.GetNode(ctx, string(r.Node))
		if err != nil {
			return err
		}
		region, err := q.GetRegion(ctx)
		if err != nil {
			return err
		}
		if err := q.NodeSeen(ctx, n.Name); err != nil {
			return err
		}
		if err := takeReport(ctx, q, n, region.Era, r); err != nil {
			return err
		}
		out, err = s.Welcome(ctx, q, r.Node)
		return err
	})
	return out, err
}

func takeReport(ctx context.Context, q *db.Queries, n db.Node, era int64, r NodeReport) error {
	var names []string
	for _, i := range r.Instances {
		if err := knows(ctx, q, n, era, i); err != nil {
			return err
		}
		held := HeldRows{Site: n.Site, Node: n.Name}
		if r.StartID != "" { // a store that was lost holds less than it did
			held.StartingAt = n.StartingAt
		}
		held.Add(i)
		if err := held.Write(ctx, q); err != nil {
			return err
		}
		names = append(names, string(i.Instance))
	}
	if len(names) == 0 {
		return nil
	}
	p := db.ConfirmReportedParams{Node: n.Name, Site: n.Site, Names: names}
	return q.ConfirmReported(ctx, p)
}

// knows checks that the region gave out every number that a node reports.
func knows(ctx context.Context, q *db.Queries, n db.Node, era int64, i fleet.NodeInstance) error {
	sub, err := q.GetSubject(ctx, db.GetSubjectParams{Site: n.Site, Name: string(i.Instance)})
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	last := fleet.Version{Era: era, Revision: sub.LastRevision}
	if !i.Held.HighWater.Newer(last) && i.Held.HighWater.Era <= era {
		return nil
	}
	return fleet.Errorf(fleet.Precondition, "node %s holds %s at era %d revision %d, above everything that this region ever released",
		n.Name, i.Instance, i.Held.HighWater.Era, i.Held.HighWater.Revision).
		WithHint("the region was restored from a backup: holdfast admin raise-era")
}

// NodeReady marks a node as started: it was answered after saying all that it holds. What
// it did not name is forgotten. What it is owed is served when it has been compared.
func (s *Store) NodeReady(ctx context.Context, node fleet.NodeName, startID string) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := q.ForgetHeldBeforeStart(ctx, db.ForgetHeldBeforeStartParams{Node: string(node), StartID: &startID}); err != nil {
			return err
		}
		return q.NodeStarted(ctx, db.NodeStartedParams{StartID: &startID, Name: string(node)})
	})
}

const (
	// retryParked is how long what a node is owed rests after a try, while the node lives.
	retryParked = 10 * time.Second
	// returnedAtOnce bounds what one report of a node makes due.
	returnedAtOnce = 500
)

// NodeReturned makes what a node is owed due again, because the node was heard: it may have
// been cut off and never have stopped. The subjects to wake are given back (N101). A node
// that is being compared gets most of it by that, and what is left afterwards.
func (s *Store) NodeReturned(ctx context.Context, node fleet.NodeName) ([]string, error) {
	var wake []string
	err := s.Tx(ctx, func(q *db.Queries) error {
		wake = nil
		compared, err := q.BeingReconciled(ctx, string(node))
		if err != nil || compared {
			return err
		}
		now, err := q.Now(ctx)
		if err != nil {
			return err
		}
		wake, err = due(ctx, q, node, now.Add(-retryParked), returnedAtOnce)
		return err
	})
	return wake, err
}

// ServeOwed makes a page of what a node is owed due, unless it was tried since a time, and
// gives back the subjects to wake.
func (s *Store) ServeOwed(ctx context.Context, node fleet.NodeName, before time.Time, limit int32) ([]string, error) {
	var wake []string
	err := s.Tx(ctx, func(q *db.Queries) (err error) {
		wake, err = due(ctx, q, node, before, limit)
		return err
	})
	return wake, err
}

// due makes what a node is owed due again, with an outbox row for each subject.
func due(ctx context.Context, q *db.Queries, node fleet.NodeName, before time.Time, limit int32) ([]string, error) {
	rows, err := q.DueOwedOfNode(ctx, db.DueOwedOfNodeParams{Node: string(node), Before: before, MaxRows: limit})
	if err != nil {
		return nil, err
	}
	var wake []string
	for _, r := range rows {
		subject := fleet.InstanceSubject(fleet.SiteName(r.Site), fleet.InstanceName(r.Name))
		if err := postgres.PutOutbox(ctx, q, subject); err != nil {
			return nil, err
		}
		wake = append(wake, subject)
	}
	return wake, nil
}

// Progress moves a fetch forward: the pending row's expiry with it, up to the delivery's
// total deadline (N90).
func (s *Store) Progress(ctx context.Context, node fleet.NodeName, id string, fetched, total int64, ttl time.Duration) error {
	p := db.TargetProgressParams{DeliveryID: id, Node: string(node), Fetched: fetched, Total: total}
	if err := s.Q.TargetProgress(ctx, p); err != nil {
		return err
	}
	return s.Q.ExtendPending(ctx, db.ExtendPendingParams{DeploymentID: id, Seconds: ttl.Seconds()})
}

// LogChunk is a piece of output.
type LogChunk struct {
	Node   fleet.NodeName
	Offset int64
	Data   []byte
}

// ReadLogs gives output from an offset on, oldest first; node "" is all nodes.
func (s *Store) ReadLogs(ctx context.Context, site fleet.SiteName, name fleet.InstanceName, node fleet.NodeName, from int64) ([]LogChunk, error) {
	rows, err := s.Q.ReadLogs(ctx, db.ReadLogsParams{
		Site: string(site), Name: string(name), Node: string(node), FromOffset: from, MaxRows: 64,
	})
	out := make([]LogChunk, len(rows))
	for i, r := range rows {
		out[i] = LogChunk{fleet.NodeName(r.Node), r.LogOffset, r.Data}
	}
	return out, err
}
