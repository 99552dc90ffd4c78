package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

type listOrphansInput struct {
	NameParam
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
}

type orphansOutput struct{ Body api.List[api.Orphan] }

func (s *server) mountOrphans() {
	list := serve.Endpoint(http.MethodGet, "/api/v1/nodes/{name}/orphans", "list-orphans", "List what a node has without a declaration, for an operator to decide on")
	serve.Register(s.Server, serve.ForViewers, list, s.listOrphans)
	approve := serve.Endpoint(http.MethodPost, "/api/v1/nodes/{name}/orphans/approve", "approve-orphans", "Let a node drop orphans as it holds them now")
	approve.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForAdminsOfAny, approve, s.approveOrphans)
	serve.Takes[api.OrphanApproval](s.Server, approve)
}

func (s *server) listOrphans(ctx context.Context, in *listOrphansInput) (*orphansOutput, error) {
	n, _, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListOrphans(ctx, reconcile.OrphanFilter{Node: n.Name, Project: serve.CallOf(ctx).Project}, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, reconcile.Orphan.Ref)
	out := &orphansOutput{Body: api.List[api.Orphan]{Items: make([]api.Orphan, len(cut.Items)), Next: cut.Next}}
	for i, o := range cut.Items {
		out.Body.Items[i] = api.Orphan{
			Instance: string(o.Instance), Replica: string(o.Replica), Deployment: string(o.Deployment), Phase: o.Phase, Revision: o.Version.Revision, Era: o.Version.Era, RevisionHash: o.Hash,
			Reason: o.Reason, Since: o.Since, ApprovedBy: o.ApprovedBy, ApprovedAt: o.ApprovedAt,
		}
	}
	return out, nil
}

// approveOrphans lets go by name what is listed (N86): an operator's word for what one pass
// may not drop by itself. Who is bound to a project lets go replicas of its deployments only.
func (s *server) approveOrphans(ctx context.Context, in *askInput) (*acceptedOutput, error) {
	n, _, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var put api.OrphanApproval
	raw, err := s.ReadJSON(ctx, &put)
	if err != nil {
		return nil, err
	}
	req, err := wantedApproval(put)
	if err != nil {
		return nil, err
	}
	if c := serve.CallOf(ctx); c.Project != "" && len(req.Instances) > 0 {
		return nil, c.Bound()
	}
	if req.Request, err = s.ask(ctx, in.AskParams, raw, s.limit); err != nil {
		return nil, err
	}
	req.Node = n.Name
	op, err := s.store.ApproveOrphans(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case op == nil: // the node is notified at once
		return &acceptedOutput{Status: http.StatusOK, Body: api.Accepted{DryRun: in.DryRun}}, nil
	}
	return s.askedOutput(ctx, *op, in.DryRun), nil
}

// wantedApproval is what is approved: what is named, or all.
func wantedApproval(a api.OrphanApproval) (reconcile.OrphanApproval, error) {
	out := reconcile.OrphanApproval{All: a.All, Why: a.Reason}
	if a.All == (len(a.Instances)+len(a.Replicas) > 0) {
		return out, fleet.Errorf(fleet.Invalid, "give either names or all").At("/").
			WithHint(`send {"instances": ["NAME"], "replicas": ["ID"]} or {"all": true}`)
	}
	if err := declare.CheckTexts(nil, a.Reason); err != nil || a.All {
		return out, err
	}
	if n := len(a.Replicas); n > fleet.MaxReportedReplicas {
		return out, fleet.Errorf(fleet.Invalid, "%d replicas given; the limit is %d", n, fleet.MaxReportedReplicas).At("/replicas")
	}
	for _, n := range a.Instances {
		out.Instances = append(out.Instances, fleet.InstanceName(n))
	}
	for i, id := range a.Replicas {
		if !fleet.ValidReplicaID(id) || slices.Contains(a.Replicas[:i], id) {
			return out, fleet.Errorf(fleet.Invalid, "replica id %.80q is invalid or given twice", id).At("/replicas/" + strconv.Itoa(i)).
				WithHint("want 12 hex digits")
		}
		out.Replicas = append(out.Replicas, fleet.ReplicaID(id))
	}
	if len(out.Instances) == 0 {
		return out, nil
	}
	return out, serve.CheckNames(len(out.Instances), func(i int) fleet.InstanceName { return out.Instances[i] })
}
