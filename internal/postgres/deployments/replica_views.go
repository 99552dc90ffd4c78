package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Replica is one running copy of a deployment, or what is kept of one that ended.
type Replica struct {
	ID             fleet.ReplicaID
	Deployment     fleet.DeploymentName
	Project        fleet.ProjectName
	Node           fleet.NodeName
	Site           fleet.SiteName
	State          fleet.ReplicaState
	Health         fleet.ReplicaHealth // DEGRADED while its node is not connected
	Routable       bool
	Phase          fleet.ReplicaPhase
	Revision       int64
	ProcessVersion int64
	Restarts       int
	Endpoint       string
	Ports          map[string]int
	PID            int
	Resources      fleet.Resources
	// Failing are its checks that fail, or did when it ended.
	Failing fleet.FailedChecks
	// Reason is a stable word, Message a sentence; FailedAt is when it failed last.
	Reason, Message  string
	Lost             bool
	CreatedAt, Since time.Time
	// StartupDeadline is when the first success of one that starts is too late, nil as long as its process
	// does not run.
	StartupDeadline *time.Time
	// ProvenAt is when one that is routable is proven if nothing breaks that, nil once it is.
	ProvenAt *time.Time
	FailedAt *time.Time
	EndedAt  *time.Time
}

// ReplicaFilter narrows a list of replicas; zero values do not. Without Ended only those are listed
// that have not ended.
type ReplicaFilter struct {
	Deployment fleet.DeploymentName
	Node       fleet.NodeName
	Project    fleet.ProjectName
	Ended      bool
}

// ListReplicas lists by id, after one ("" is the start).
func (s *Store) ListReplicas(ctx context.Context, f ReplicaFilter, after string, limit int32) ([]Replica, error) {
	ids, err := s.replicaIDs(ctx, f, after, limit)
	if err != nil || len(ids) == 0 {
		return []Replica{}, err
	}
	rows, err := s.Q.ReplicasByID(ctx, db.ReplicasByIDParams{Ids: ids, Project: string(f.Project)})
	if err != nil {
		return nil, err
	}
	out := make([]Replica, len(rows))
	for i, r := range rows {
		if out[i], err = replicaOf(r.Replica, r.Project, r.Heard); err != nil {
			return nil, err
		}
		out[i].StartupDeadline = startupDeadlineOf(r.Replica, r.Startup)
		if out[i].ProvenAt, err = provenAt(r.Replica, r.Strategy, r.Terms, r.At); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LastEndedReplicas gives those of a deployment that ended last, newest first.
func (s *Store) LastEndedReplicas(ctx context.Context, name fleet.DeploymentName, limit int32) ([]Replica, error) {
	rows, err := s.Q.LastEndedReplicas(ctx, db.LastEndedReplicasParams{Deployment: string(name), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]Replica, len(rows))
	for i, r := range rows {
		if out[i], err = replicaOf(r.Replica, r.Project, true); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// replicaIDs finds a page of a list by what narrows it most.
func (s *Store) replicaIDs(ctx context.Context, f ReplicaFilter, after string, limit int32) ([]string, error) {
	switch {
	case f.Deployment != "" && f.Node == "": // which is of one project
		return s.Q.ReplicaIDsOfDeployment(ctx, db.ReplicaIDsOfDeploymentParams{Deployment: string(f.Deployment), Ended: f.Ended, After: after, MaxRows: limit})
	case f.Deployment == "" && f.Node != "" && !f.Ended && f.Project == "":
		return s.Q.ReplicaIDsOfNode(ctx, db.ReplicaIDsOfNodeParams{Node: string(f.Node), After: after, MaxRows: limit})
	}
	return s.Q.ReplicaIDs(ctx, db.ReplicaIDsParams{
		After: after, Deployment: string(f.Deployment), Node: string(f.Node), Ended: f.Ended, Project: string(f.Project), MaxRows: limit,
	})
}

// GetReplica reads one replica, ended or not.
func (s *Store) GetReplica(ctx context.Context, id fleet.ReplicaID) (Replica, error) {
	r, err := s.Q.GetReplica(ctx, string(id))
	if postgres.NoRows(err) {
		return Replica{}, postgres.OrNotFound(nil, "replica", string(id), "holdfast get replicas")
	}
	if err != nil {
		return Replica{}, err
	}
	out, err := replicaOf(r.Replica, r.Project, r.Heard)
	if err != nil {
		return out, err
	}
	out.StartupDeadline = startupDeadlineOf(r.Replica, r.Startup)
	out.ProvenAt, err = provenAt(r.Replica, r.Strategy, r.Terms, r.At)
	return out, err
}

// provenAt is when a routable replica is proven by the strategy and the checks of its release, nil once it is.
func provenAt(r db.Replica, strategy, terms []byte, now time.Time) (*time.Time, error) {
	seen := seenOf(r)
	if !seen.Routable() {
		return nil, nil
	}
	var s fleet.Strategy
	var t fleet.ReplicaTerms
	if err := json.Unmarshal(strategy, &s); err != nil {
		return nil, postgres.Unreadable("the strategy of replica "+r.ID, err)
	}
	if err := json.Unmarshal(terms, &t); err != nil {
		return nil, postgres.Unreadable("the terms of replica "+r.ID, err)
	}
	if at := decide.ProvenAt(seen, s.MinHealthy(t.Shows())); at.After(now) {
		return &at, nil
	}
	return nil, nil
}

// startupDeadlineOf is the deadline of the replica's node, which uses its own clock.
func startupDeadlineOf(r db.Replica, startup float64) *time.Time {
	if fleet.ReplicaState(r.State) != fleet.ReplicaStarting || r.RunningSince == nil || startup <= 0 {
		return nil
	}
	at := r.RunningSince.Add(postgres.SecondsOf(startup))
	return &at
}

func replicaOf(r db.Replica, project string, heard bool) (Replica, error) { //nolint:revive // heard is of the node
	out := Replica{
		ID: fleet.ReplicaID(r.ID), Deployment: fleet.DeploymentName(r.Deployment), Project: fleet.ProjectName(project),
		Node: fleet.NodeName(r.Node), Site: fleet.SiteName(r.Site), State: fleet.ReplicaState(r.State), Health: fleet.ReplicaHealth(r.Health),
		Routable: seenOf(r).Routable(), Phase: phaseOf(r), Revision: r.Revision, ProcessVersion: r.ProcessVersion, Restarts: int(r.Restarts),
		Endpoint: r.Endpoint, PID: int(r.Pid), Resources: fleet.Resources{CPU: r.Cpu, Memory: r.Memory, GPUs: int(r.Gpus)},
		Reason: r.Reason, Message: r.Message, Lost: r.Lost, CreatedAt: r.CreatedAt, Since: r.Since, FailedAt: r.FailedAt, EndedAt: r.EndedAt,
	}
	if !heard && r.EndedAt == nil {
		out.Health = fleet.HealthDegraded
	}
	err := errors.Join(json.Unmarshal(r.Ports, &out.Ports), json.Unmarshal(r.Failing, &out.Failing))
	if out.Failing.Health != nil {
		out.Message = fleet.Explained(out.Reason, out.Message, out.Failing.Health.String())
	}
	return out, postgres.Unreadable("the ports and checks of replica "+r.ID, err)
}

// ReplicaLogPiece is a piece of a replica's output, at its offset in all of it.
type ReplicaLogPiece struct {
	Offset int64
	Data   []byte
	At     time.Time
}

// ReadReplicaLogs reads what is kept of a replica's output from an offset on.
func (s *Store) ReadReplicaLogs(ctx context.Context, id fleet.ReplicaID, from int64, limit int32) ([]ReplicaLogPiece, error) {
	rows, err := s.Q.ReadReplicaLogs(ctx, db.ReadReplicaLogsParams{Replica: string(id), FromOffset: from, MaxRows: limit})
	out := make([]ReplicaLogPiece, len(rows))
	for i, r := range rows {
		out[i] = ReplicaLogPiece{Offset: r.LogOffset, Data: r.Data, At: r.At}
	}
	return out, err
}

// ReplicaSample is what a replica takes now: cores, and bytes.
type ReplicaSample struct {
	ID     fleet.ReplicaID
	CPU    float64
	Memory int64
	At     time.Time
}

// ReplicaSampled keeps the newest sample of each replica of a node.
func (s *Store) ReplicaSampled(ctx context.Context, node fleet.NodeName, all []ReplicaSample) error {
	p := db.KeepReplicaSamplesParams{Node: string(node)}
	for _, x := range all {
		p.Ids, p.Cpus, p.Memories = append(p.Ids, string(x.ID)), append(p.Cpus, x.CPU), append(p.Memories, x.Memory)
	}
	if len(all) == 0 {
		return nil
	}
	return s.Q.KeepReplicaSamples(ctx, p)
}

// ReplicaSamples gives the newest sample of each live replica of a deployment that has one.
func (s *Store) ReplicaSamples(ctx context.Context, name fleet.DeploymentName) (map[fleet.ReplicaID]ReplicaSample, error) {
	rows, err := s.Q.ReplicaSamples(ctx, string(name))
	out := make(map[fleet.ReplicaID]ReplicaSample, len(rows))
	for _, r := range rows {
		out[fleet.ReplicaID(r.Replica)] = ReplicaSample{ID: fleet.ReplicaID(r.Replica), CPU: r.Cpu, Memory: r.Memory, At: r.At}
	}
	return out, err
}

// UncountedReplica may run on a node and counts towards nothing: its node was asked to end it, or it waits
// for an operator (never_known, over_cap).
type UncountedReplica struct {
	ID     fleet.ReplicaID
	Node   fleet.NodeName
	Reason string
	Since  time.Time
}

// UncountedFilter names a deployment. Every adds what is known only by its name, without a known project.
type UncountedFilter struct {
	Deployment fleet.DeploymentName
	Every      bool
}

// UncountedReplicas gives those of a deployment, newest first.
func (s *Store) UncountedReplicas(ctx context.Context, f UncountedFilter, limit int32) ([]UncountedReplica, error) {
	rows, err := s.Q.UncountedReplicas(ctx, db.UncountedReplicasParams{Deployment: string(f.Deployment), Every: f.Every, MaxRows: limit})
	out := make([]UncountedReplica, len(rows))
	for i, r := range rows {
		out[i] = UncountedReplica{fleet.ReplicaID(r.Replica), fleet.NodeName(r.Node), r.Reason, r.Since}
	}
	return out, err
}
