package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

type getOperationInput struct {
	ID   string `path:"id"`
	Wait string `query:"wait" format:"wait" doc:"answer when it ends, or after so long (at most 60s)"`
}

type operationOutput struct{ Body api.Operation }

type listOperationsInput struct {
	ListParams
	Site     string `query:"site" maxLength:"63" format:"name"`
	Instance string `query:"instance" maxLength:"63" format:"name"`
	Node     string `query:"node" maxLength:"63" format:"name" doc:"only comparisons and drains of this node, and failovers to it"`
	Fleet    string `query:"fleet" maxLength:"63" format:"name" doc:"only those of this fleet change"`
	// Deployment is that of the operation, as its answer has it.
	Deployment string `query:"deployment" maxLength:"63" format:"name" doc:"only those of this deployment"`
	State      string `query:"state" enum:"running,succeeded,failed,unknown,cancelled,superseded"`
}

type operationsOutput struct{ Body api.List[api.Operation] }

type cancelInput struct {
	ID string `path:"id"`
	MutationParams
}

func (s *server) mountOperations() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/operations", "list-operations", "List operations, newest first"), s.listOperations)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/operations/{id}", "get-operation", "Read an operation, or wait for its end"), s.getOperation)
	cancel := serve.Endpoint(http.MethodPost, "/api/v1/operations/{id}/cancel", "cancel-operation", "Ask for the end of an operation; it may still end otherwise")
	cancel.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, cancel, s.cancelOperation)
}

func (s *server) getOperation(ctx context.Context, in *getOperationInput) (*operationOutput, error) {
	wait, _ := serve.WaitOf(in.Wait) // checked by its format
	op, err := s.awaitOperation(ctx, in.ID, wait)
	if err != nil {
		return nil, err
	}
	view, err := s.fullOperation(ctx, op)
	return &operationOutput{Body: view}, err
}

// pollOperation is how often a wait looks by itself: announcements may be lost.
const pollOperation = time.Second

func (s *server) awaitOperation(ctx context.Context, id string, wait time.Duration) (postgres.Operation, error) {
	op, err := s.operation(ctx, id)
	if err != nil || op.State.Ended() || wait == 0 {
		return op, err
	}
	ctx, end, err := s.waits.begin(ctx, serve.CallOf(ctx).Hash)
	if err != nil {
		return op, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	poll := time.NewTicker(pollOperation)
	defer poll.Stop()
	for {
		// Listening begins before looking again, so that no end falls between the two.
		ends := s.ends(ctx, op.ID)
		seen, err := s.operation(context.WithoutCancel(ctx), id)
		if err != nil || seen.State.Ended() {
			return seen, err
		}
		select {
		case <-ends:
		case <-poll.C:
		case <-s.stopping:
			return seen, nil
		case <-ctx.Done():
			return seen, endedBy(ctx)
		}
	}
}

// operation reads an operation that the caller may see.
func (s *server) operation(ctx context.Context, id string) (postgres.Operation, error) {
	missing := fleet.Errorf(fleet.NotFound, "operation %.64q not found", id).At("operation").WithHint("holdfast operations")
	if !fleet.ValidID(id) {
		return postgres.Operation{}, missing
	}
	op, err := s.store.GetOperation(ctx, fleet.OperationID(id))
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !serve.CallOf(ctx).Sees(op.Project) {
		return postgres.Operation{}, missing
	}
	return op, err
}

func (s *server) listOperations(ctx context.Context, in *listOperationsInput) (*operationsOutput, error) {
	project, err := listProject(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	after, err := timePlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	filter := postgres.OperationFilter{
		Project: project, State: fleet.OperationState(in.State), Site: fleet.SiteName(in.Site), Instance: fleet.InstanceName(in.Instance),
		Node: fleet.NodeName(in.Node), Fleet: fleet.FleetName(in.Fleet), Deployment: fleet.DeploymentName(in.Deployment),
	}
	rows, err := s.store.ListOperations(ctx, filter, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(o postgres.Operation) string { return timeCursor(o.CreatedAt, string(o.ID)) })
	out := &operationsOutput{Body: api.List[api.Operation]{Items: make([]api.Operation, len(cut.Items)), Next: cut.Next}}
	return out, s.fillOperations(ctx, cut.Items, out.Body.Items)
}

// timeCursor is a row's place in a list newest first.
func timeCursor(at time.Time, id string) string { return at.UTC().Format(time.RFC3339Nano) + " " + id }

func timePlace(cursor string) (postgres.Place, error) {
	place, err := placeOf(cursor)
	if err != nil || place == "" {
		return postgres.Place{}, err
	}
	at, id, _ := strings.Cut(place, " ")
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || !fleet.ValidID(id) {
		return postgres.Place{}, badCursor(place)
	}
	return postgres.Place{At: t, ID: id}, nil
}

// fillOperations reads the progress of a page at once.
func (s *server) fillOperations(ctx context.Context, rows []postgres.Operation, views []api.Operation) error {
	var ids, fleets []string
	for i, o := range rows {
		views[i] = s.operationView(o)
		if o.Delivery != "" {
			ids = append(ids, string(o.Delivery))
		}
		if o.Kind == fleet.OperationFleet {
			fleets = append(fleets, string(o.Fleet))
		}
	}
	if err := s.fillFleets(ctx, fleets, rows, views); err != nil {
		return err
	}
	if err := s.fillDeployments(ctx, rows, views); err != nil {
		return err
	}
	var targets map[string][]deliveries.Target
	var held map[string]map[fleet.NodeName]deliveries.TargetHeld
	if len(ids) > 0 {
		var err error
		if targets, err = s.store.Targets(ctx, ids...); err != nil {
			return err
		}
		if held, err = s.store.HeldByTargets(ctx, ids...); err != nil {
			return err
		}
	}
	drains, err := s.drainsOf(ctx, rows)
	if err != nil {
		return err
	}
	for i, o := range rows {
		if o.Kind == fleet.OperationFleet || o.Kind.OfDeployment() {
			continue
		}
		views[i].Progress = withHeld(progressOf(targets[string(o.Delivery)]), held[string(o.Delivery)])
		switch {
		case o.State != fleet.OperationRunning || views[i].Reason != "":
		case o.Kind == fleet.OperationDrain:
			showDrainOperation(&views[i], o, drains)
		case o.Instance != "":
			views[i].Reason, views[i].Message = waitsFor(targets[string(o.Delivery)])
		default:
			views[i].Reason, views[i].Message = waitsForEntity(o)
		}
	}
	return nil
}

// withHeld adds what each node holds now, so that clients need no further request after the end.
func withHeld(nodes []api.NodeProgress, held map[fleet.NodeName]deliveries.TargetHeld) []api.NodeProgress {
	for i, n := range nodes {
		now := held[fleet.NodeName(n.Node)]
		nodes[i].Revision, nodes[i].Generation, nodes[i].RevisionHash = now.Revision, now.Generation, now.Hash
	}
	return nodes
}

// waitsFor says why an operation still runs (X8): the first node that is not done.
func waitsFor(targets []deliveries.Target) (reason, message string) {
	if len(targets) == 0 {
		return "queued", "waiting for its workflow to begin a delivery"
	}
	for _, t := range targets {
		switch t.State {
		case fleet.TargetApplied:
		case fleet.TargetStaged:
			return "node_staged", fmt.Sprintf("node %s has fetched it, and switches when its maintenance window opens", t.Node)
		case fleet.TargetWaiting:
			return "node_waiting", fmt.Sprintf("node %s has not been notified yet", t.Node)
		case fleet.TargetNotified:
			return "node_applying", fmt.Sprintf("node %s has fetched %d of %d bytes", t.Node, t.Fetched, t.Total)
		case fleet.TargetFailed, fleet.TargetUnknown:
			return "node_retry", fmt.Sprintf("node %s is %s: %s", t.Node, t.State, cmp.Or(t.Message, t.Reason))
		}
	}
	return "closing", "every node is done, the delivery is being closed"
}

// waiting says of an operation why it still runs, by its kind.
var waiting = map[fleet.OperationKind]func(postgres.Operation) (reason, message string){
	fleet.OperationSync: waitsForSync, fleet.OperationExecute: waitsForModule, fleet.OperationReconcile: waitsForNode, fleet.OperationApplyPolicy: waitsForTurn,
}

func waitsForTurn(o postgres.Operation) (reason, message string) {
	return "applying", "waiting for workflow " + o.Subject + " to visit all objects; its status query says how far it is"
}

func waitsForSync(o postgres.Operation) (reason, message string) {
	return "comparing", "waiting for workflow " + o.Subject + " to compare all objects; holdfast sync status says how far it is"
}

// waitsForEntity says why an operation still runs that is not of an instance: it waits for the workflow of its subject, if
// its kind has no other words.
func waitsForEntity(o postgres.Operation) (reason, message string) {
	if wait := waiting[o.Kind]; wait != nil {
		return wait(o)
	}
	return "queued", "waiting for the workflow of " + strings.Replace(o.Subject, ".", " ", 1)
}

func (s *server) cancelOperation(ctx context.Context, in *cancelInput) (*acceptedOutput, error) {
	op, err := s.operation(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &acceptedOutput{Status: http.StatusOK, Body: api.Accepted{DryRun: in.DryRun}}
	if in.DryRun && op.State.Ended() {
		return nil, fleet.Errorf(fleet.IllegalState, "operation %s has ended", in.ID)
	}
	if !in.DryRun {
		if op, err = s.store.CancelOperation(ctx, op.ID); err != nil {
			return nil, err
		}
		if !op.State.Ended() || op.Kind == fleet.OperationDrain { // whose entity looks whether others wait
			s.wake(ctx, op.Subject)
		}
		out.Status, out.Location = http.StatusAccepted, "/api/v1/operations/"+in.ID
	}
	view := s.operationView(op)
	out.Body.Operation = &view
	return out, nil
}

// fullOperation is an operation with its progress and the workflow run to open (X8).
func (s *server) fullOperation(ctx context.Context, op postgres.Operation) (api.Operation, error) {
	views := make([]api.Operation, 1)
	if err := s.fillOperations(ctx, []postgres.Operation{op}, views); err != nil || op.Delivery == "" {
		return views[0], err
	}
	workflow, run, err := s.store.DeliveryWorkflow(ctx, op.Delivery)
	if ref := s.links.workflow(workflow, run); ref != nil {
		views[0].Workflow = ref
	}
	return views[0], err
}

func (s *server) operationView(o postgres.Operation) api.Operation {
	revision := o.Revision
	if o.Kind == fleet.OperationFleet { // it is the number of a run there
		revision = 0
	}
	return api.Operation{
		ID: string(o.ID), Kind: string(o.Kind), Site: string(o.Site), Instance: string(o.Instance), Node: string(o.Node), Fleet: string(o.Fleet), Module: o.Module, Deployment: string(o.Deployment), Holder: o.Holder, Region: string(o.Region), Forced: o.Forced, Revision: revision,
		State: o.State, Reason: o.Reason, Message: o.Message, RequestedBy: o.RequestedBy, CreatedAt: o.CreatedAt,
		EndedAt: o.EndedAt, Deadline: o.Deadline, Delivery: string(o.Delivery), Object: objectOf(o), Workflow: s.links.workflow(o.Subject, o.EntityRun),
	}
}

// objectOf is the path of the object whose status says whether it is synced, "" for none.
func objectOf(o postgres.Operation) string {
	switch {
	case o.Deployment != "":
		return "/api/v1/deployments/" + string(o.Deployment)
	case o.Fleet != "":
		return "/api/v1/fleets/" + string(o.Fleet)
	case o.Site != "" && o.Instance != "":
		return "/api/v1/sites/" + string(o.Site) + "/instances/" + string(o.Instance)
	}
	return ""
}

// links make the addresses of workflow runs in Temporal Web.
type links struct{ web, namespace string }

// workflow is nil while no run is known.
func (l links) workflow(id, run string) *api.WorkflowRef {
	if id == "" || run == "" {
		return nil
	}
	ref := &api.WorkflowRef{ID: id, RunID: run}
	if l.web != "" {
		ref.URL = strings.TrimRight(l.web, "/") + "/namespaces/" + url.PathEscape(l.namespace) + "/workflows/" +
			url.PathEscape(id) + "/" + url.PathEscape(run) + "/history"
	}
	return ref
}
