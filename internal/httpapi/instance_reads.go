package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

type listDeliveriesInput struct {
	InstanceParams
	ListParams
}

type deliveriesOutput struct{ Body api.List[api.Delivery] }

type logsInput struct {
	InstanceParams
	Node  string `query:"node" maxLength:"63" format:"name" doc:"only output of this node"`
	After int64  `query:"after" minimum:"0" doc:"only output from this offset on"`
	Limit int32  `query:"limit" minimum:"1" maximum:"1000" doc:"at most so many pieces"`
}

type logsOutput struct{ Body api.List[api.LogChunk] }

func (s *server) mountInstanceReads() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, instancePath+"/deliveries", "list-deliveries", "The delivery history, newest first"), s.listDeliveries)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, instancePath+"/logs", "get-instance-logs", "Output of the instance, oldest first"), s.readLogs)
	op := serve.Endpoint(http.MethodGet, instancePath+"/config", "get-instance-config", "The exact bytes that are deployed; viewers see what is marked secret redacted")
	op.Parameters = append(op.Parameters, serve.PathParam("site"), serve.PathParam("name"),
		serve.QueryParam("revision", "", huma.Schema{Type: huma.TypeString, Enum: []any{"deployed", "desired"}, Default: "deployed"}))
	s.Stream(serve.ForViewers, op, s.instanceConfig)
}

func (s *server) listDeliveries(ctx context.Context, in *listDeliveriesInput) (*deliveriesOutput, error) {
	o, err := s.instanceOf(ctx, in.InstanceParams)
	if err != nil {
		return nil, err
	}
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	var before int64
	if place != "" {
		if before, err = strconv.ParseInt(place, 10, 64); err != nil || before <= 0 {
			return nil, badCursor(place)
		}
	}
	rows, err := s.store.ListDeliveries(ctx, o.ObjectKey, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(d deliveries.Delivery) string { return strconv.FormatInt(d.Attempt, 10) })
	out := &deliveriesOutput{Body: api.List[api.Delivery]{Items: make([]api.Delivery, len(cut.Items)), Next: cut.Next}}
	for i, d := range cut.Items {
		out.Body.Items[i] = s.deliveryView(d)
	}
	return out, nil
}

func (s *server) instanceOf(ctx context.Context, p InstanceParams) (fleet.Object, error) {
	key, err := p.key()
	if err != nil {
		return fleet.Object{}, err
	}
	return s.visible(ctx, key)
}

func (s *server) deliveryView(d deliveries.Delivery) api.Delivery {
	return api.Delivery{
		ID: string(d.ID), Attempt: d.Attempt, Revision: d.Revision.Revision, Era: d.Revision.Era, Generation: d.Generation,
		FromRevision: d.FromRevision, FromGeneration: d.FromGeneration, Action: d.Revision.Action, RevisionHash: d.Revision.Content.Hash,
		State: string(d.State), Phase: d.Phase, Reason: d.Reason, Message: d.Message, SettledAs: string(d.SettledAs),
		RequestedBy: d.RequestedBy, Why: d.Why, CreatedAt: d.CreatedAt, EndedAt: d.EndedAt, Deadline: d.Deadline,
		Nodes: progressOf(d.Targets), Workflow: s.links.workflow(d.WorkflowID, d.RunID),
	}
}

func progressOf(targets []deliveries.Target) []api.NodeProgress {
	out := make([]api.NodeProgress, len(targets))
	for i, t := range targets {
		out[i] = api.NodeProgress{
			Node: string(t.Node), Role: t.Role, State: string(t.State), Fetched: t.Fetched, Total: t.Total,
			Reason: t.Reason, Message: t.Message,
		}
	}
	return out
}

func (s *server) readLogs(ctx context.Context, in *logsInput) (*logsOutput, error) {
	o, err := s.instanceOf(ctx, in.InstanceParams)
	if err != nil {
		return nil, err
	}
	if in.Node != "" {
		if err := fleet.ValidateName("node", in.Node); err != nil {
			return nil, err
		}
	}
	chunks, err := s.store.ReadLogs(ctx, fleet.SiteName(o.Scope), fleet.InstanceName(o.Name), fleet.NodeName(in.Node), in.After)
	if err != nil {
		return nil, err
	}
	if in.Limit > 0 && len(chunks) > int(in.Limit) {
		chunks = chunks[:in.Limit]
	}
	out := &logsOutput{Body: api.List[api.LogChunk]{Items: make([]api.LogChunk, len(chunks))}}
	for i, c := range chunks {
		out.Body.Items[i] = api.LogChunk{Node: string(c.Node), Offset: c.Offset, Data: base64.StdEncoding.EncodeToString(c.Data)}
	}
	return out, nil
}

// instanceConfig streams a body as it is; ranges and conditions work as for any file.
func (s *server) instanceConfig(w http.ResponseWriter, r *http.Request) error {
	o, err := s.instanceOf(r.Context(), InstanceParams{Site: chi.URLParam(r, "site"), Name: chi.URLParam(r, "name")})
	if err != nil {
		return err
	}
	deployed, desired, err := s.store.Deployed(r.Context(), o.ObjectKey)
	if err != nil {
		return err
	}
	revision := deployed
	if r.URL.Query().Get("revision") == "desired" {
		revision = desired
	}
	if revision.Content.Hash == "" {
		return fleet.Errorf(fleet.NotFound, "instance %s has no config here", o.Name).At("revision").
			WithHint("nothing was deployed yet, or it is being deleted; try ?revision=desired")
	}
	if !serve.CallOf(r.Context()).Hides() || revision.Content.Kind != fleet.ContentJSON {
		return s.serveBody(w, r, revision.Content)
	}
	pointers, err := s.secretsOf(r.Context(), o, revision.Revision)
	if err != nil {
		return err
	}
	if len(pointers) == 0 {
		return s.serveBody(w, r, revision.Content)
	}
	return s.serveRedacted(w, r, revision.Content, pointers)
}

// serveBody sends a stored body in the identity coding.
func (s *server) serveBody(w http.ResponseWriter, r *http.Request, c fleet.Content) error {
	body, err := s.store.OpenBody(r.Context(), c.Hash)
	if err != nil {
		return err
	}
	serve.Describe(w.Header(), c)
	w.Header().Set("ETag", serve.Quoted(string(c.Hash)))
	http.ServeContent(s.Rolling(w, func(int) {}), r, "", time.Time{}, body)
	return nil
}
