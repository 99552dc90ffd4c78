package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

type deploymentListInput struct {
	NameParam
	ListParams
}

type revisionsOutput struct {
	Body api.List[api.DeploymentRevision]
}

type decisionsOutput struct{ Body api.List[api.Decision] }

type deploymentLogsInput struct {
	NameParam
	Replica string `query:"replica" maxLength:"12" format:"replica" doc:"only output of this replica; else of all that live"`
	After   int64  `query:"after" minimum:"0" doc:"only output from this offset on, of one replica"`
	Limit   int32  `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"limit of pieces, shared by the replicas, at least one of each; continue one with replica and after"`
}

type replicaLogsOutput struct{ Body api.List[api.ReplicaLogChunk] }

type topOutput struct{ Body api.DeploymentTop }

func (s *server) mountDeploymentReads() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/revisions", "list-deployment-revisions", "What was released, newest first"), s.listDeploymentRevisions)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/rollouts", "list-rollouts", "How a deployment moved to newer revisions, newest first"), s.listRollouts)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/decisions", "list-deployment-decisions", "What became of a deployment and its replicas, and why, newest first"), s.listDecisions)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/logs", "get-deployment-logs", "Output of replicas, oldest first"), s.deploymentLogs)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/top", "get-deployment-top", "What the replicas take of their nodes"), s.deploymentTop)
}

// deploymentSeen reads a deployment that the caller may see: one that is declared, or whose
// record is kept after its end (S118).
func (s *server) deploymentSeen(ctx context.Context, name string) (deployments.DeploymentView, error) {
	missing := func() error {
		return fleet.Errorf(fleet.NotFound, "deployment %s not found", name).At("deployment").WithHint("holdfast get deployments")
	}
	if err := fleet.ValidateName("name", name); err != nil {
		return deployments.DeploymentView{}, err
	}
	views, err := s.store.ViewDeployments(ctx, name)
	if err != nil {
		return deployments.DeploymentView{}, err
	}
	v, known := views[name]
	if !known {
		_, err := s.visible(ctx, deploymentKey(name)) // written, and never released
		return v, err
	}
	if !serve.CallOf(ctx).Sees(v.Project) {
		return v, missing()
	}
	return v, nil
}

// numberPlace is the place in a list newest first whose rows have numbers.
func numberPlace(cursor string) (postgres.Place, error) {
	place, err := placeOf(cursor)
	if err != nil || place == "" {
		return postgres.Place{}, err
	}
	if before, err := strconv.ParseInt(place, 10, 64); err != nil || before <= 0 {
		return postgres.Place{}, badCursor(place)
	}
	return postgres.Place{ID: place}, nil
}

func (s *server) listDeploymentRevisions(ctx context.Context, in *deploymentListInput) (*revisionsOutput, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	after, err := numberPlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListDeploymentRevisions(ctx, fleet.DeploymentName(in.Name), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(r deployments.DeploymentRevision) string { return strconv.FormatInt(r.Revision, 10) })
	out := &revisionsOutput{Body: api.List[api.DeploymentRevision]{Items: make([]api.DeploymentRevision, len(cut.Items)), Next: cut.Next}}
	for i, r := range cut.Items {
		out.Body.Items[i] = api.DeploymentRevision{
			Revision: r.Revision, Generation: r.Generation, ProcessVersion: r.ProcessVersion, Definition: r.Definition,
			CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, Reason: r.Reason,
		}
	}
	return out, nil
}

func (s *server) listDecisions(ctx context.Context, in *deploymentListInput) (*decisionsOutput, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	after, err := numberPlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListDeploymentHistory(ctx, fleet.DeploymentName(in.Name), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(h deployments.DeploymentLine) string { return strconv.FormatInt(h.ID, 10) })
	return &decisionsOutput{Body: api.List[api.Decision]{Items: decisionsOf(cut.Items), Next: cut.Next}}, nil
}

func decisionsOf(rows []deployments.DeploymentLine) []api.Decision {
	out := make([]api.Decision, len(rows))
	for i, h := range rows {
		out[i] = api.Decision{
			At: h.At, LastAt: h.LastAt, Times: h.Times, Replica: h.Replica, Node: string(h.Node), From: h.From, To: h.To,
			Reason: h.Reason, Message: h.Message, Actor: h.Actor,
		}
	}
	return out
}

func (s *server) deploymentLogs(ctx context.Context, in *deploymentLogsInput) (*replicaLogsOutput, error) {
	replicas, err := s.logged(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &replicaLogsOutput{Body: api.List[api.ReplicaLogChunk]{Items: []api.ReplicaLogChunk{}}}
	for _, r := range replicas {
		each := max(1, in.Limit/int32(len(replicas))) //nolint:gosec // at most maxShownReplicas
		pieces, err := s.store.ReadReplicaLogs(ctx, r.ID, in.After, each)
		if err != nil {
			return nil, err
		}
		for _, p := range pieces {
			out.Body.Items = append(out.Body.Items, api.ReplicaLogChunk{
				Replica: r.ID, Node: string(r.Node), Offset: p.Offset, Data: base64.StdEncoding.EncodeToString(p.Data),
			})
		}
	}
	return out, nil
}

// logged are the replicas whose output is asked for.
func (s *server) logged(ctx context.Context, in *deploymentLogsInput) ([]deployments.Replica, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	name := fleet.DeploymentName(in.Name)
	if in.Replica == "" {
		if in.After != 0 {
			return nil, fleet.Errorf(fleet.Invalid, "after needs replica, because offsets are per replica").At("after").WithHint("give replica as well")
		}
		return s.store.ListReplicas(ctx, deployments.ReplicaFilter{Deployment: name}, "", maxShownReplicas)
	}
	r, err := s.replica(ctx, in.Replica)
	if err == nil && r.Deployment != name {
		err = fleet.Errorf(fleet.NotFound, "deployment %s has no replica %s", name, r.ID).At("replica")
	}
	return []deployments.Replica{r}, err
}

// maxShownReplicas bounds the replicas that one answer without pages tells of.
const maxShownReplicas = 1000

func (s *server) deploymentTop(ctx context.Context, in *getInput) (*topOutput, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	name := fleet.DeploymentName(in.Name)
	replicas, err := s.store.ListReplicas(ctx, deployments.ReplicaFilter{Deployment: name}, "", maxShownReplicas)
	if err != nil {
		return nil, err
	}
	samples, err := s.store.ReplicaSamples(ctx, name)
	if err != nil {
		return nil, err
	}
	out := &topOutput{Body: api.DeploymentTop{Deployment: in.Name, Replicas: []api.ReplicaTop{}}}
	for _, r := range replicas {
		addTop(&out.Body, r, samples)
	}
	return out, nil
}

func addTop(t *api.DeploymentTop, r deployments.Replica, samples map[fleet.ReplicaID]deployments.ReplicaSample) {
	one := api.ReplicaTop{ID: r.ID, Node: string(r.Node), State: r.State}
	if sample, known := samples[r.ID]; known {
		one.CPU, one.Memory, one.At = sample.CPU, sample.Memory, &sample.At
	}
	t.CPU, t.Memory = t.CPU+one.CPU, t.Memory+one.Memory
	t.Requested.CPU += r.Resources.CPU
	t.Requested.Memory += r.Resources.Memory
	t.Requested.GPUs += r.Resources.GPUs
	t.Replicas = append(t.Replicas, one)
}
