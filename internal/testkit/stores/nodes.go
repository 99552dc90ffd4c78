package stores

import (
	"crypto/sha256"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// LinkSince sets for how long the link has been up.
func (b *Bench) LinkSince(ago string) {
	b.T.Helper()
	b.Exec(`UPDATE link_servers SET since = now() - $1::interval`, ago)
}

// DrainOf is a request to drain a node.
func DrainOf(node fleet.NodeName, seconds int64, edits ...func(*nodes.DrainRequest)) nodes.DrainRequest {
	in := nodes.DrainRequest{Request: postgres.Request{Actor: "ada"}, Node: node, Order: fleet.DrainOrder{Reason: "new disk", DeadlineSeconds: seconds}}
	for _, f := range edits {
		f(&in)
	}
	return in
}

// MustDrain asks for a drain, which is accepted.
func (b *Bench) MustDrain(in nodes.DrainRequest) postgres.Operation {
	b.T.Helper()
	op, err := b.AskNodeDrain(b.Ctx(), in)
	require.NoError(b.T, err)
	return op
}

// MustSeeDrain returns what a drain's workflow sees of a node.
func (b *Bench) MustSeeDrain(node fleet.NodeName) fleet.DrainSeen {
	b.T.Helper()
	seen, err := b.SeeDrain(b.Ctx(), fleet.DrainLook{Node: node, Run: Run1, Build: "b1"})
	require.NoError(b.T, err)
	return seen
}

// LinkServer is the server that connections of these tests are with.
const LinkServer = "link-server"

// Registers opens a connection of a provider, or returns why the region refused it.
func (b *Bench) Registers(provider fleet.ProviderName, change ...func(*fleet.Registration)) (fleet.ConnectionID, error) {
	b.T.Helper()
	require.NoError(b.T, b.LinkServerSeen(b.Ctx(), LinkServer, time.Minute))
	r := fleet.Registration{
		Identity: "token:a", Provider: provider, Namespace: "acme", Executor: "a:1", Protocol: 1,
		Modules: []fleet.ModuleOffer{{Name: "b"}, {Name: "a"}},
	}
	for _, f := range change {
		f(&r)
	}
	out, err := b.RegisterConnection(b.Ctx(), r, LinkServer)
	return out.ID, err
}

// OfIdentity registers as another identity.
func OfIdentity(identity string) func(*fleet.Registration) {
	return func(r *fleet.Registration) { r.Identity = identity }
}

// Node reads a node.
func (b *Bench) Node(name fleet.NodeName) nodes.Node {
	b.T.Helper()
	list, err := b.ListNodes(b.Ctx(), nodes.NodeFilter{Name: name}, "", 10)
	require.NoError(b.T, err)
	require.Len(b.T, list, 1)
	return list[0]
}

// TwoNodes is a site with an active and, unless it is "", a standby.
func TwoNodes(active, standby fleet.NodeName) fleet.SiteSpec {
	spec := fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: active, Role: fleet.RoleActive}}}
	if standby != "" {
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: standby, Role: fleet.RoleStandby})
	}
	return spec
}

// MoveLease grants the plant's lease to a node, as votes do.
func (b *Bench) MoveLease(to fleet.NodeName) {
	b.T.Helper()
	was, err := b.VoteOf(b.Ctx(), Plant)
	require.NoError(b.T, err)
	written, err := b.CastVote(b.Ctx(), Granted(was, to), "node:"+string(to))
	require.NoError(b.T, err)
	require.True(b.T, written)
}

// Granted is the vote after a grant.
func Granted(was nodes.SiteVote, to fleet.NodeName) nodes.VoteChange {
	now := was.Vote
	now.Promised, now.PromisedTo, now.Holder, now.Counter, now.TTL = now.Promised+1, to, to, now.Counter+1, 15*time.Second
	now.Epoch = now.Promised
	return nodes.VoteChange{Site: was.Site, Was: was.Vote, Now: now}
}

// MustEnrol has a node of the plant enrol.
func (b *Bench) MustEnrol(node fleet.NodeName) {
	b.T.Helper()
	_, err := b.Enrol(b.Ctx(), b.JoinToken(node, string(node)))
	require.NoError(b.T, err)
}

// JoinToken makes a join token and the request of the node that has it.
func (b *Bench) JoinToken(node fleet.NodeName, secret string) nodes.Enrolment {
	b.T.Helper()
	return b.JoinTokenAt(Plant, node, secret)
}

// JoinTokenAt makes a join token of any site.
func (b *Bench) JoinTokenAt(site fleet.SiteName, node fleet.NodeName, secret string) nodes.Enrolment {
	b.T.Helper()
	sum := sha256.Sum256([]byte(secret))
	_, err := b.AddJoinToken(b.Ctx(), keyring.JoinToken{Hash: sum[:], Site: site, Node: node, CreatedBy: "ann"}, time.Hour)
	require.NoError(b.T, err)
	key := sha256.Sum256([]byte("key " + secret))
	return nodes.Enrolment{JoinTokenHash: sum[:], Node: node, Site: site, SigningKey: key[:], SealingKey: key[:]}
}
