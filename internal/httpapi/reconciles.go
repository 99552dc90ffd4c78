package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// AskParams come with a request that changes no object: there is no ETag to match.
type AskParams struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"the same key again is the same request"`
	DryRun         bool   `query:"dryRun" doc:"check everything, change nothing"`
}

func (p AskParams) mutation() ObjectParams {
	return ObjectParams{MutationParams: MutationParams{IdempotencyKey: p.IdempotencyKey, DryRun: p.DryRun}}
}

type listReconcilesInput struct {
	NameParam
	Limit int32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
}

type reconcilesOutput struct{ Body api.List[api.Reconcile] }

type acceptedAllOutput struct {
	Status int
	Body   api.AcceptedAll
}

func (s *server) mountReconciles() {
	site := serve.Endpoint(http.MethodPost, "/api/v1/sites/{name}/reconcile", "reconcile-site", "Compare each node of a site's pair with its expected set")
	site.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, site, s.reconcileSite)
	list := serve.Endpoint(http.MethodGet, "/api/v1/nodes/{name}/reconciles", "list-reconciles", "List the last comparisons of a node, newest first")
	serve.Register(s.Server, serve.ForViewers, list, s.listReconciles)
}

// ask makes the store's request for operations; limit is theirs.
func (s *server) ask(ctx context.Context, p AskParams, body []byte, limit time.Duration) (postgres.Request, error) {
	w, err := s.write(ctx, fleet.ObjectKey{}, p.mutation(), body)
	return postgres.Request{Project: w.Project, Actor: w.Actor, Limit: limit, DryRun: w.DryRun, Idempotency: w.Idempotency}, err
}

func (s *server) reconcileNode(ctx context.Context, w postgres.Write, _ emptyBody) (postgres.Operation, error) {
	n, _, err := s.visibleNode(ctx, w.Key.Name)
	if err != nil {
		return postgres.Operation{}, err
	}
	if n.Role == fleet.RoleWorker {
		return postgres.Operation{}, fleet.Errorf(fleet.IllegalState, "node %s is a worker: it has no instances to compare", n.Name).At("name")
	}
	return s.store.AskReconcile(ctx, nodes.ReconcileRequest{Request: w.Request, Node: n.Name})
}

func (s *server) reconcileSite(ctx context.Context, in *askInput) (*acceptedAllOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	if _, err := s.visible(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: in.Name}); err != nil {
		return nil, err
	}
	req, err := s.ask(ctx, in.AskParams, nil, s.limit)
	if err != nil {
		return nil, err
	}
	ops, err := s.store.AskReconciles(ctx, nodes.ReconcileRequest{Request: req, Site: fleet.SiteName(in.Name)})
	if err != nil {
		return nil, err
	}
	out := &acceptedAllOutput{Status: http.StatusOK, Body: api.AcceptedAll{Operations: []api.Operation{}, DryRun: in.DryRun}}
	for _, op := range ops {
		one := s.askedOutput(ctx, op, in.DryRun)
		out.Status = one.Status
		out.Body.Operations = append(out.Body.Operations, *one.Body.Operation)
	}
	return out, nil
}

// askedOutput answers a request for a comparison or a failover, and wakes its entity unless it was
// served already.
func (s *server) askedOutput(ctx context.Context, op postgres.Operation, dryRun bool) *acceptedOutput { //nolint:revive // a dry run is the request's own word
	view := s.operationView(op)
	out := &acceptedOutput{Status: http.StatusOK, Body: api.Accepted{Operation: &view, DryRun: dryRun}}
	if dryRun {
		view.ID = "" // it was rolled back and can never be read
		return out
	}
	out.Status, out.Location = http.StatusAccepted, "/api/v1/operations/"+view.ID
	if !op.State.Ended() {
		if op.Kind == fleet.OperationReconcile {
			view.Reason, view.Message = waitsForNode(op)
		}
		s.wake(ctx, op.Subject)
	}
	return out
}

func (s *server) listReconciles(ctx context.Context, in *listReconcilesInput) (*reconcilesOutput, error) {
	n, _, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListReconciles(ctx, n.Name, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &reconcilesOutput{Body: api.List[api.Reconcile]{Items: make([]api.Reconcile, len(rows))}}
	for i, r := range rows {
		out.Body.Items[i] = reconcileView(r)
	}
	return out, nil
}

func reconcileView(r reconcile.Reconcile) api.Reconcile {
	view := api.Reconcile{
		ID: r.ID, Node: string(r.Node), Reason: r.Reason, State: r.State, Message: r.Message,
		Refused: r.Report.Refused, Unchanged: r.Report.Unchanged, CreatedAt: r.CreatedAt, EndedAt: r.EndedAt,
	}
	for _, d := range r.Report.Differs {
		view.Differs = append(view.Differs, api.Differs{Instance: string(d.Instance), Why: d.Why})
	}
	if r.Report.Set.Era == 0 {
		return view // the node has not reported
	}
	view.SetVersion = r.Report.Set.String()
	if !r.Report.Unchanged || r.Report.Restored > 0 {
		c := r.Report
		view.Counts = &api.ReconcileCounts{
			Expected: c.Expected, Equal: c.Equal, Fetched: c.Fetched, Failed: c.Failed, Left: c.Left, Ahead: c.Ahead,
			Dropped: c.Dropped, Waiting: c.Waiting, Restored: c.Restored,
		}
	}
	return view
}

// waitsForNode says why the reconcile of a node still runs (X8).
func waitsForNode(o postgres.Operation) (reason, message string) {
	if o.EntityRun == "" {
		return "queued", "waiting for the workflow of node " + string(o.Node) + " to begin a comparison"
	}
	return "comparing", "waiting for node " + string(o.Node) + " to compare itself"
}
