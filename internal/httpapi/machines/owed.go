package machines

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// nodeOwed tells a node that is about to be active which of what it would start is deleted or
// disabled by now, with the means to fetch what it would have to.
func (s *Calls) nodeOwed(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in struct {
		absentRequest
		Again bool `json:"again"` // of what is held back already: its content comes by its delivery
	}
	if err := s.readWire(r, &in); err != nil {
		return err
	}
	if err := checkExtras(in.Instances); err != nil {
		return err
	}
	owed, err := s.owedTo(r.Context(), node, in.Instances)
	if err == nil && !in.Again {
		owed, err = s.withTickets(r.Context(), reconcile.Pass{Node: node.Name, Site: node.Site}, owed)
	}
	if err != nil {
		return err
	}
	return serve.AnswerJSON(w, http.StatusOK, ticketsAnswer{owed})
}

func (s *Calls) owedTo(ctx context.Context, node nodes.Node, starts []fleet.Extra) ([]fleet.RefreshDeploymentCommand, error) {
	held := make(map[fleet.InstanceName]fleet.Version, len(starts))
	names := make([]fleet.InstanceName, len(starts))
	for i, e := range starts {
		held[e.Instance], names[i] = e.Version, e.Instance
	}
	seen, err := s.Store.SeeStops(ctx, node.Site, names)
	if err != nil {
		return nil, err
	}
	var owed []fleet.RefreshDeploymentCommand
	for _, stop := range decide.OwedStops(seen, held) {
		owed = append(owed, fleet.RefreshDeploymentCommand{
			Site: node.Site, Instance: stop.Instance, Role: node.Role, Revision: stop.Revision, Timestamp: s.Now().UTC(),
		})
	}
	return owed, nil
}

// withTickets adds the means to fetch what is deployed of some. What is on its way only has
// none, and what has not changed but for being disabled needs none.
func (s *Calls) withTickets(ctx context.Context, of reconcile.Pass, owed []fleet.RefreshDeploymentCommand) ([]fleet.RefreshDeploymentCommand, error) {
	var names []fleet.InstanceName
	for _, stop := range owed {
		if stop.Revision.Action != fleet.ActionDelete {
			names = append(names, stop.Instance)
		}
	}
	if len(names) == 0 {
		return owed, nil
	}
	tickets, err := s.makeTickets(ctx, of, names)
	if err != nil {
		return nil, err
	}
	for i := range owed {
		for _, t := range tickets {
			if t.Instance == owed[i].Instance && t.Revision.Version == owed[i].Revision.Version {
				owed[i].DeploymentID, owed[i].FetchToken = t.DeploymentID, t.FetchToken
			}
		}
	}
	return owed, nil
}
