package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

type listReplicasInput struct {
	ListParams
	Deployment string `query:"deployment" maxLength:"63" format:"name" doc:"only those of this deployment"`
	Node       string `query:"node" maxLength:"63" format:"name" doc:"only those on this node"`
	Ended      bool   `query:"ended" doc:"those that have ended too, as long as they are kept"`
}

type deploymentReplicasInput struct {
	NameParam
	ListParams
	Node  string `query:"node" maxLength:"63" format:"name" doc:"only those on this node"`
	Ended bool   `query:"ended" doc:"those that have ended too, as long as they are kept"`
}

type replicasOutput struct{ Body api.List[api.Replica] }

type getReplicaInput struct {
	ID string `path:"id"`
}

type replicaOutput struct{ Body api.Replica }

type removeReplicaInput struct {
	NameParam
	ID string `path:"id"`
	AskParams
}

func (s *server) mountReplicas() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/replicas", "list-replicas", "List replicas of all deployments"), s.listReplicas)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/replicas/{id}", "get-replica", "Read a replica, whether it runs or has ended"), s.getReplica)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/replicas", "list-deployment-replicas", "List the replicas of a deployment"), s.listDeploymentReplicas)
	serve.Register(s.Server, serve.ForOperators, serve.Endpoint(http.MethodDelete, deploymentPath+"/replicas/{id}", "delete-replica", "End one replica; another takes its place"), s.removeReplica)
}

func (s *server) listDeploymentReplicas(ctx context.Context, in *deploymentReplicasInput) (*replicasOutput, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	return s.listReplicas(ctx, &listReplicasInput{ListParams: in.ListParams, Deployment: in.Name, Node: in.Node, Ended: in.Ended})
}

func (s *server) listReplicas(ctx context.Context, in *listReplicasInput) (*replicasOutput, error) {
	project, err := listProject(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	for field, name := range map[string]string{"deployment": in.Deployment, "node": in.Node} {
		if name == "" {
			continue
		}
		if err := fleet.ValidateName(field, name); err != nil {
			return nil, err
		}
	}
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListReplicas(ctx, deployments.ReplicaFilter{
		Deployment: fleet.DeploymentName(in.Deployment), Node: fleet.NodeName(in.Node), Project: project, Ended: in.Ended,
	}, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(r deployments.Replica) string { return string(r.ID) })
	out := &replicasOutput{Body: api.List[api.Replica]{Items: make([]api.Replica, len(cut.Items)), Next: cut.Next}}
	for i, r := range cut.Items {
		out.Body.Items[i] = replicaView(r)
	}
	return out, nil
}

func (s *server) getReplica(ctx context.Context, in *getReplicaInput) (*replicaOutput, error) {
	r, err := s.replica(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &replicaOutput{Body: replicaView(r)}, nil
}

// replica reads a replica that the caller may see.
func (s *server) replica(ctx context.Context, id string) (deployments.Replica, error) {
	missing := fleet.Errorf(fleet.NotFound, "replica %.40q not found", id).At("id").WithHint("holdfast get replicas")
	if !fleet.ValidReplicaID(id) {
		return deployments.Replica{}, missing
	}
	r, err := s.store.GetReplica(ctx, fleet.ReplicaID(id))
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !serve.CallOf(ctx).Sees(r.Project) {
		return deployments.Replica{}, missing
	}
	return r, err
}

// removeReplica ends a replica by hand (S115). That its deployment is another one is as if it
// were not there.
func (s *server) removeReplica(ctx context.Context, in *removeReplicaInput) (*replicaOutput, error) {
	o, err := s.visible(ctx, deploymentKey(in.Name))
	if err != nil {
		return nil, err
	}
	r, err := s.replica(ctx, in.ID)
	if err == nil && r.Deployment != fleet.DeploymentName(in.Name) {
		err = fleet.Errorf(fleet.NotFound, "deployment %s has no replica %s", in.Name, in.ID).At("id")
	}
	if err != nil {
		return nil, err
	}
	w, err := s.write(ctx, o.ObjectKey, in.mutation(), nil)
	if err != nil {
		return nil, err
	}
	w.Project = o.Project
	if err := s.store.RemoveReplica(ctx, w, r.ID); err != nil {
		return nil, err
	}
	if !in.DryRun {
		s.wake(ctx, fleet.DeploymentSubject(fleet.DeploymentName(in.Name)))
		if r, err = s.store.GetReplica(ctx, r.ID); err != nil {
			return nil, err
		}
	}
	return &replicaOutput{Body: replicaView(r)}, nil
}

func replicaView(r deployments.Replica) api.Replica {
	return api.Replica{
		ID: r.ID, Deployment: string(r.Deployment), Node: string(r.Node), Site: string(r.Site), State: r.State, Health: r.Health,
		Routable: r.Routable, Phase: r.Phase, Revision: r.Revision, ProcessVersion: r.ProcessVersion, Endpoint: r.Endpoint, Ports: r.Ports, PID: r.PID,
		Restarts: r.Restarts, Since: r.Since, StartupDeadline: r.StartupDeadline, ProvenAt: r.ProvenAt, Reason: r.Reason, Message: r.Message, Failing: r.Failing, CreatedAt: r.CreatedAt, EndedAt: r.EndedAt,
	}
}
