package api

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

type listOrphansInput struct {
	NameParam
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" doc:"next of the page before"`
}

type orphansOutput struct{ Body List[Orphan] }

func (s *server) mountOrphans() {
	list := endpoint(http.MethodGet, "/api/v1/nodes/{name}/orphans", "list-orphans", "List what a node holds, its site does not expect, and an operator has to judge")
	register(s, forViewers, list, s.listOrphans)
	approve := endpoint(http.MethodPost, "/api/v1/nodes/{name}/orphans/approve", "approve-orphans", "Let a node drop orphans as it holds them now, and compare it")
	approve.DefaultStatus = http.StatusAccepted
	register(s, forAdmins, approve, s.approveOrphans)
	takes[OrphanApproval](s, approve)
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
	rows, err := s.store.ListOrphans(ctx, n.Name, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(o postgres.Orphan) string { return string(o.Instance) })
	out := &orphansOutput{Body: List[Orphan]{Items: make([]Orphan, len(cut.Items)), Next: cut.Next}}
	for i, o := range cut.Items {
		out.Body.Items[i] = Orphan{
			Instance: string(o.Instance), Revision: o.Version.Revision, Era: o.Version.Era, RevisionHash: o.Hash,
			Reason: o.Reason, Since: o.Since, ApprovedBy: o.ApprovedBy, ApprovedAt: o.ApprovedAt,
		}
	}
	return out, nil
}

// approveOrphans lets go by name what is listed (N86): an operator's word for what one pass
// may not drop by itself.
func (s *server) approveOrphans(ctx context.Context, in *askReconcileInput) (*acceptedOutput, error) {
	n, _, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	var put OrphanApproval
	raw, err := s.readJSON(ctx, &put)
	if err != nil {
		return nil, err
	}
	req := postgres.OrphanApproval{Why: put.Reason}
	if req.Names, err = put.names(); err != nil {
		return nil, err
	}
	if req.ReconcileRequest, err = s.ask(ctx, in.AskParams, raw); err != nil {
		return nil, err
	}
	req.Node = n.Name
	op, err := s.store.ApproveOrphans(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.askedOutput(ctx, op, in.DryRun), nil
}

// names gives those that are approved, nil for all.
func (a OrphanApproval) names() ([]fleet.InstanceName, error) {
	if a.All == (a.Instances != nil) {
		return nil, fleet.Errorf(fleet.Invalid, "exactly one of instances and all says what is approved").At("/").
			WithHint(`{"instances": ["NAME"]} or {"all": true}`)
	}
	if err := checkTexts(nil, a.Reason); err != nil || a.All {
		return nil, err
	}
	names := make([]fleet.InstanceName, len(a.Instances))
	for i, n := range a.Instances {
		names[i] = fleet.InstanceName(n)
	}
	return names, checkNames(len(names), func(i int) fleet.InstanceName { return names[i] })
}
