package httpapi

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// maxSiteNodes bounds the nodes that one status shows.
const maxSiteNodes = 1000

func (s *server) siteStatuses(ctx context.Context, sites []fleet.Object) ([]any, error) {
	out := make([]any, len(sites))
	for i, o := range sites {
		var err error
		if out[i], err = s.siteStatus(ctx, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *server) siteStatus(ctx context.Context, o fleet.Object) (any, error) {
	site := fleet.SiteName(o.Name)
	lease, err := s.store.LeaseOf(ctx, site)
	if err != nil {
		return nil, err
	}
	nodes, err := s.store.ListNodes(ctx, nodes.NodeFilter{Site: site}, "", maxSiteNodes)
	if err != nil {
		return nil, err
	}
	status := leaseStatus(o, lease)
	for _, n := range nodes {
		status.Nodes = append(status.Nodes, nodeView(n, lease.Holder))
	}
	return status, nil
}

// leaseStatus is a site's status without its nodes.
func leaseStatus(o fleet.Object, l nodes.Lease) api.SiteStatus {
	var spec fleet.SiteSpec
	_ = json.Unmarshal(o.Spec, &spec) // the store wrote it; one that a newer server wrote shows no more than the lease
	status := api.SiteStatus{
		Holder: string(l.Holder), Epoch: l.Epoch, Released: l.Released, Target: string(l.Target), Lost: l.Lost, Voted: l.Voted,
		OnIsolation: cmp.Or(spec.OnIsolation, fleet.IsolationStop), Nodes: []api.Node{},
	}
	if !l.Since.IsZero() {
		status.Since = &l.Since
	}
	if spec.OnIsolation == fleet.IsolationRun {
		status.Warning = "a holder that reaches neither its peer nor the region keeps running: there may be two active nodes during a partition"
	}
	return status
}

// lease says who may be active at a site. It is read as part of the view of an instance;
// no instance has the empty name.
func (s *server) lease(ctx context.Context, site fleet.SiteName) (nodes.Lease, error) {
	v, err := s.store.ViewInstance(ctx, fleet.InstanceKey(site, ""))
	return v.Lease, err
}
