package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type listNodesInput struct {
	ListParams
	Site string `query:"site" maxLength:"63" format:"name" doc:"only the nodes of this site"`
}

type nodesOutput struct{ Body api.List[api.Node] }

type nodeOutput struct{ Body api.Node }

func (s *server) mountNodes() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/nodes", "list-nodes", "List the nodes of all sites"), s.listNodes)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/nodes/{name}", "get-node", "Read a node"), s.getNode)
	revoke := serve.Endpoint(http.MethodPost, "/api/v1/nodes/{name}/revoke", "revoke-node", "Take a node's key back")
	serve.Register(s.Server, serve.ForAdmins, revoke, s.revokeNode)
	rotate := serve.Endpoint(http.MethodPost, "/api/v1/nodes/{name}/rotate-key", "rotate-node-key", "Have a node change its key")
	rotate.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForAdmins, rotate, s.rotateKey)
}

// revokeNode answers with the node as it is then. Its streams and polls end by themselves.
func (s *server) revokeNode(ctx context.Context, in *changeInput) (*nodeOutput, error) {
	n, site, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if !in.DryRun {
		if err := s.store.RevokeNode(ctx, n.Name); err != nil {
			return nil, err
		}
		s.Log.Info("node revoked", "node", n.Name, "by", serve.CallOf(ctx).Actor)
		if n, site, err = s.visibleNode(ctx, in.Name); err != nil {
			return nil, err
		}
	}
	return &nodeOutput{Body: nodeView(n, site.holder)}, nil
}

func (s *server) listNodes(ctx context.Context, in *listNodesInput) (*nodesOutput, error) {
	project, err := listProject(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListNodes(ctx, nodes.NodeFilter{Site: fleet.SiteName(in.Site), Project: project}, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(n nodes.Node) string { return string(n.Name) })
	drains, err := s.store.NodeDrains(ctx, namesOf(cut.Items)...)
	if err != nil {
		return nil, err
	}
	out := &nodesOutput{Body: api.List[api.Node]{Items: []api.Node{}, Next: cut.Next}}
	sites := sitesSeen{s: s, known: map[fleet.SiteName]siteSeen{}}
	for _, n := range cut.Items {
		site, err := sites.get(ctx, n.Site)
		if err != nil {
			return nil, err
		}
		view := nodeView(n, site.holder)
		showDrain(&view, n, drains)
		out.Body.Items = append(out.Body.Items, view)
	}
	return out, nil
}

func (s *server) getNode(ctx context.Context, in *getInput) (*nodeOutput, error) {
	n, site, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	drains, err := s.store.NodeDrains(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	out := &nodeOutput{Body: nodeView(n, site.holder)}
	showDrain(&out.Body, n, drains)
	last, err := s.store.ListReconciles(ctx, n.Name, 1)
	if err == nil && len(last) > 0 {
		view := reconcileView(last[0])
		view.Differs = nil
		out.Body.Reconcile = &view
	}
	return out, err
}

// visibleNode reads a node that the caller may see: one of a site of the caller's project.
func (s *server) visibleNode(ctx context.Context, name string) (nodes.Node, siteSeen, error) {
	if err := fleet.ValidateName("name", name); err != nil {
		return nodes.Node{}, siteSeen{}, err
	}
	missing := fleet.Errorf(fleet.NotFound, "node %s not found", name).At("name").WithHint("declare it in its site: PUT /api/v1/sites/SITE")
	rows, err := s.store.ListNodes(ctx, nodes.NodeFilter{Name: fleet.NodeName(name)}, "", 1)
	if err == nil && len(rows) == 0 {
		err = missing
	}
	if err != nil {
		return nodes.Node{}, siteSeen{}, err
	}
	sites := sitesSeen{s: s, project: serve.CallOf(ctx).Project, known: map[fleet.SiteName]siteSeen{}}
	site, err := sites.get(ctx, rows[0].Site)
	if err == nil && !site.visible {
		err = missing
	}
	return rows[0], site, err
}

// sitesSeen remembers what a page of nodes needs of each site.
type sitesSeen struct {
	s       *server
	project fleet.ProjectName // "" for all
	known   map[fleet.SiteName]siteSeen
}

type siteSeen struct {
	visible bool
	holder  fleet.NodeName
}

func (p sitesSeen) get(ctx context.Context, site fleet.SiteName) (siteSeen, error) {
	if seen, ok := p.known[site]; ok {
		return seen, nil
	}
	seen := siteSeen{visible: true}
	if p.project != "" {
		o, err := p.s.store.GetObject(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)})
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return seen, err
		}
		seen.visible = err == nil && o.Project == p.project
	}
	lease, err := p.s.lease(ctx, site)
	seen.holder = lease.Holder
	p.known[site] = seen
	return seen, err
}

func nodeView(n nodes.Node, holder fleet.NodeName) api.Node {
	enrolled := n.EnrolledAt != nil && n.RevokedAt == nil
	return api.Node{
		Name: string(n.Name), Site: string(n.Site), Role: roleNow(n.Role, n.Name, holder), Epoch: n.Epoch,
		Enrolled: enrolled, Revoked: n.RevokedAt != nil,
		Ready:     enrolled && n.StartedAt != nil && !n.StartedAt.Before(*n.EnrolledAt),
		Instances: n.Instances, Owed: n.Owed, Orphans: n.Orphans, Counters: n.Counters, SeenAt: n.SeenAt, StartedAt: n.StartedAt, EnrolledAt: n.EnrolledAt,
		Connection: connectionView(n.Connection), Key: keyView(n), Isolation: string(n.Separation),
	}
}

func connectionView(c *nodes.NodeConnection) api.NodeConnection {
	if c == nil {
		return api.NodeConnection{State: fleet.ConnectionDisconnected}
	}
	return api.NodeConnection{ID: c.ID, State: c.State, Since: &c.Since, InFlight: c.InFlight}
}
