package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func (s *server) mountCordons() {
	cordon := serve.Endpoint(http.MethodPost, "/api/v1/nodes/{name}/cordon", "cordon-node", "Keep new work away from a node")
	serve.Register(s.Server, serve.ForOperators, cordon, s.cordonNode)
	serve.Takes[api.CordonRequest](s.Server, cordon)
	uncordon := serve.Endpoint(http.MethodPost, "/api/v1/nodes/{name}/uncordon", "uncordon-node", "Let new work come to a node again")
	serve.Register(s.Server, serve.ForOperators, uncordon, s.uncordonNode)
}

func (s *server) drainNode(ctx context.Context, w postgres.Write, in api.NodeDrainRequest) (*acceptedOutput, error) {
	order, err := fleet.DrainOrder{Reason: in.Reason, DeadlineSeconds: in.DeadlineSeconds, Force: in.Force}.Checked(w.Actor)
	if err != nil {
		return nil, err
	}
	n, _, err := s.visibleNode(ctx, w.Key.Name)
	if err != nil {
		return nil, err
	}
	op, err := s.store.AskNodeDrain(ctx, nodes.DrainRequest{Request: w.Request, Node: n.Name, Order: order})
	if err != nil {
		return nil, err
	}
	out := s.askedOutput(ctx, op, w.DryRun)
	if w.DryRun {
		return out, nil
	}
	view, err := s.fullOperation(ctx, op)
	out.Body.Operation = &view
	return out, err
}

func (s *server) cordonNode(ctx context.Context, in *askInput) (*nodeOutput, error) {
	var req api.CordonRequest
	if _, err := s.ReadOptional(ctx, &req); err != nil {
		return nil, err
	}
	if len(req.Reason) > fleet.MaxDrainReason {
		return nil, fleet.Errorf(fleet.Invalid, "the reason has %d bytes; the limit is %d", len(req.Reason), fleet.MaxDrainReason).At("/reason")
	}
	return s.turnCordon(ctx, in, req.Reason, s.store.Cordon)
}

func (s *server) uncordonNode(ctx context.Context, in *askInput) (*nodeOutput, error) {
	return s.turnCordon(ctx, in, "", s.store.Uncordon)
}

// turnCordon answers with the node as it is then; it is the same again when it was so already.
func (s *server) turnCordon(ctx context.Context, in *askInput, reason string, turn func(context.Context, nodes.CordonRequest) error) (*nodeOutput, error) {
	n, _, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	call := serve.CallOf(ctx)
	if err := turn(ctx, nodes.CordonRequest{Request: postgres.Request{Project: call.Project, Actor: call.Actor, DryRun: in.DryRun}, Node: n.Name, Reason: reason}); err != nil {
		return nil, err
	}
	return s.getNode(ctx, &getInput{NameParam: in.NameParam})
}

func namesOf(nodes []nodes.Node) []fleet.NodeName {
	out := make([]fleet.NodeName, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// showDrain adds a node's cordon, and its drain while that says anything of it.
func showDrain(view *api.Node, n nodes.Node, drains map[fleet.NodeName]nodes.NodeDrain) {
	if n.CordonedAt == nil {
		return
	}
	view.Cordon = &api.Cordon{Since: *n.CordonedAt, Reason: n.CordonReason}
	d, had := drains[n.Name]
	if !had || d.EndedAt != nil && d.AskedAt.Before(*n.CordonedAt) { // of an earlier cordon
		return
	}
	view.Drain = &api.NodeDrain{
		Operation: string(d.Operation), Reason: d.Reason, Force: d.Force, Phase: d.Phase, Waits: d.Rule, Message: d.Message,
		InFlight: d.InFlight, AskedAt: d.AskedAt, Deadline: d.Deadline, EndedAt: d.EndedAt,
	}
}

// drainsOf reads the drains that running operations wait for.
func (s *server) drainsOf(ctx context.Context, rows []postgres.Operation) (map[fleet.NodeName]nodes.NodeDrain, error) {
	var nodes []fleet.NodeName
	for _, o := range rows {
		if o.Kind == fleet.OperationDrain && !o.State.Ended() {
			nodes = append(nodes, o.Node)
		}
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	return s.store.NodeDrains(ctx, nodes...)
}

// showDrainOperation says how far the drain is that an operation waits for (X5, X8). The
// deadline is that of the drain, which a second one may have brought forward.
func showDrainOperation(view *api.Operation, o postgres.Operation, drains map[fleet.NodeName]nodes.NodeDrain) {
	view.Reason, view.Message = "queued", "waiting for the workflow of node "+string(o.Node)+"'s drain"
	d, had := drains[o.Node]
	if !had {
		return
	}
	view.Deadline = d.Deadline
	if d.Rule != "" {
		view.Reason, view.Message = d.Rule, d.Message
	}
	view.Message += fmt.Sprintf(", %d in flight", d.InFlight)
}
