package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// instanceStatuses reads all of a page at once; its instances are of one site.
func (s *server) instanceStatuses(ctx context.Context, page []fleet.Object) ([]any, error) {
	names := make([]string, len(page))
	for i, o := range page {
		names[i] = o.Name
	}
	views, err := s.store.ViewInstances(ctx, fleet.SiteName(page[0].Scope), names...)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(page))
	for i, o := range page {
		out[i] = statusFrom(instanceSeen{o, views[o.Name]})
	}
	return out, nil
}

func statusFrom(i instanceSeen) api.InstanceStatus {
	status := api.InstanceStatus{
		Phase: i.phase(), ObservedGeneration: i.DesiredGeneration, Revision: i.Snapshot.Revision,
		RevisionHash: i.Snapshot.Content.Hash, DesiredRevision: i.Desired.Revision, Replicated: i.replicated(),
		Nodes: []api.InstanceOnNode{}, Conditions: i.conditions(),
	}
	for _, n := range i.Nodes {
		status.Nodes = append(status.Nodes, api.InstanceOnNode{
			Node: string(n.Node), Role: roleNow(n.Role, n.Node, i.Lease.Holder), Epoch: i.Lease.Epoch,
			Revision: n.Version.Revision, RevisionHash: n.Hash, Running: n.Running, Reason: n.Reason,
			Owed: n.Owed, OwedReason: n.OwedReason,
		})
	}
	return status
}

// roleNow is a node's role by the lease: the configured one says only who was first.
func roleNow(configured fleet.Role, node, holder fleet.NodeName) fleet.Role {
	switch {
	case holder == "" || configured == fleet.RoleWorker:
		return configured
	case node == holder:
		return fleet.RoleActive
	}
	return fleet.RoleStandby
}
