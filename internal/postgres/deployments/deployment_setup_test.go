package deployments_test

import (
	"encoding/json"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const (
	web    = fleet.DeploymentName("web")
	webSub = "deployment.web"
)

var webKey = fleet.DeploymentKey(web)

// deployable gives a region whose two nodes are connected, with 4 cores each.
func (b *bench) deployable() *bench {
	b.T.Helper()
	for _, n := range []fleet.NodeName{nodeA, nodeB} {
		b.connect(n)
	}
	b.LinkSince("1 day")
	return b
}

// connect opens a stream of a node.
func (b *bench) connect(n fleet.NodeName, change ...func(*fleet.Registration)) fleet.ConnectionID {
	b.T.Helper()
	return b.opensAs("node:"+string(n), fleet.ProviderName(n), append([]func(*fleet.Registration){func(r *fleet.Registration) {
		r.Node, r.Namespace, r.Modules, r.Executor = n, "", nil, ""
		r.Facts = fleet.NodeFacts{
			Drivers: []fleet.Driver{fleet.DriverProcess}, Labels: map[string]string{"rack": string(n)}, Resources: fleet.Resources{CPU: 4, Memory: 1000},
			Separation: fleet.SeparationUID,
		}
	}}, change...)...)
}

func (b *bench) opensAs(identity string, provider fleet.ProviderName, change ...func(*fleet.Registration)) fleet.ConnectionID {
	b.T.Helper()
	id, err := b.Registers(provider, append(change, stores.OfIdentity(identity))...)
	require.NoError(b.T, err)
	_, err = b.OpenConnection(b.Ctx(), id, identity, linkServer)
	require.NoError(b.T, err)
	return id
}

// disconnect ends all streams of a node.
func (b *bench) disconnect(n fleet.NodeName) {
	b.T.Helper()
	b.Exec(`UPDATE connections SET state = 'Disconnected', reason = 'stream_failed', ended_at = now() WHERE node = $1 AND ended_at IS NULL`, n)
}

// webSpec runs some replicas of a program that needs one core.
func webSpec(replicas int) fleet.DeploymentSpec {
	return fleet.DeploymentSpec{
		Type: fleet.TypeProcess, Process: fleet.Process{Command: []string{"serve"}},
		Resources: fleet.Resources{CPU: 1}, Replicas: fleet.ReplicaBounds{Min: 0, Max: 5, Initial: replicas},
		Placement: fleet.PlacementSpec{Spread: fleet.SpreadNodes}, State: fleet.StateStarted, Strategy: atOnce(fleet.Strategy{}),
		Recovery: fleet.Recovery{Attempts: 3, AttemptSeconds: 10, Crashes: 3, CrashSeconds: 30, CrashMaxSeconds: 960, GiveUp: 200, LostSeconds: 30},
	}
}

// atOnce is a strategy by which a replica is proven as soon as it is routable.
func atOnce(s fleet.Strategy) fleet.Strategy {
	s.MinHealthyTime = new(0.0)
	return s
}

// deploymentPut is a PUT of the deployment web; edits come after the defaults.
func (b *bench) deploymentPut(edits ...func(*deployments.DeploymentPut)) deployments.DeploymentPut {
	b.T.Helper()
	p := deployments.DeploymentPut{Write: stores.WriteOf(webKey), Spec: webSpec(2), Deploy: true, Reason: "because"}
	for _, edit := range edits {
		edit(&p)
	}
	if p.Definition.Hash == "" {
		p.Definition = b.define(p.Spec)
	}
	return p
}

// define stores the definition of a spec.
func (b *bench) define(spec fleet.DeploymentSpec) fleet.Content {
	b.T.Helper()
	body, err := json.Marshal(fleet.Definition{Process: spec.Process, Resources: spec.Resources, Recovery: spec.Recovery})
	require.NoError(b.T, err)
	_, err = b.PutBody(b.Ctx(), project, body)
	require.NoError(b.T, err)
	return stores.JSONOf(string(body))
}

func (b *bench) putDeployment(edits ...func(*deployments.DeploymentPut)) postgres.Started {
	b.T.Helper()
	out, err := b.PutDeployment(b.Ctx(), b.deploymentPut(edits...))
	require.NoError(b.T, err)
	return out
}

func asking(edit func(*fleet.DeploymentSpec)) func(*deployments.DeploymentPut) {
	return func(p *deployments.DeploymentPut) { edit(&p.Spec) }
}

func notReleased(p *deployments.DeploymentPut) { p.Deploy = false }

func (b *bench) turnDeployment(kind fleet.OperationKind, edits ...func(*deployments.DeploymentTurn)) (postgres.Started, error) {
	b.T.Helper()
	t := deployments.DeploymentTurn{Write: stores.WriteOf(webKey), Kind: kind}
	for _, edit := range edits {
		edit(&t)
	}
	return b.TurnDeployment(b.Ctx(), t)
}

func to(n int) func(*deployments.DeploymentTurn) {
	return func(t *deployments.DeploymentTurn) { t.Replicas = &n }
}

// visit is one look of the entity.
func (b *bench) visitDeployment(run string) fleet.DeploymentVisited {
	b.T.Helper()
	out, err := b.VisitDeployment(b.Ctx(), fleet.DeploymentVisit{Deployment: web, Run: run, Build: "build-1"})
	require.NoError(b.T, err)
	return out
}

// visits looks until there is no more to be looked at at once.
func (b *bench) visits() fleet.DeploymentVisited {
	b.T.Helper()
	for {
		if out := b.visitDeployment(run1); !out.More {
			return out
		}
	}
}

// report has a node say what it has, all or only what is given.
func (b *bench) tells(n fleet.NodeName, said ...fleet.ReplicaStatus) []string {
	b.T.Helper()
	heard, err := b.ReplicasReported(b.Ctx(), fleet.ReplicasReport{Node: n, Replicas: said})
	require.NoError(b.T, err)
	return heard.Wake
}

// obey has a node do what its set says, and tell so: what is to run is healthy, the rest is gone.
func (b *bench) obey(n fleet.NodeName) []string {
	b.T.Helper()
	set, err := b.NodeReplicas(b.Ctx(), n)
	require.NoError(b.T, err)
	r := fleet.ReplicasReport{Node: n, Set: fleet.SetVersion{Era: set.Era, Number: set.Version}, Complete: true}
	for _, x := range set.Replicas {
		if x.Run {
			r.Replicas = append(r.Replicas, healthy(x.ID))
		}
	}
	heard, err := b.ReplicasReported(b.Ctx(), r)
	require.NoError(b.T, err)
	return heard.Wake
}

func healthy(id fleet.ReplicaID) fleet.ReplicaStatus {
	return fleet.ReplicaStatus{ID: id, Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, PID: 7, Endpoint: "10.0.0.1:8000", Ports: map[string]int{"http": 8000}}
}

func exited(id fleet.ReplicaID) fleet.ReplicaStatus {
	return fleet.ReplicaStatus{ID: id, Phase: fleet.PhaseExited, Health: fleet.HealthUnhealthy, Reason: fleet.ReasonExited, Message: "exit status 1"}
}

// settles has entity and nodes go on until the entity is done.
func (b *bench) settles() fleet.DeploymentVisited {
	b.T.Helper()
	for range 30 {
		out := b.visits()
		if out.Done {
			return out
		}
		b.obey(nodeA)
		b.obey(nodeB)
	}
	require.Fail(b.T, "it does not settle")
	return fleet.DeploymentVisited{}
}

// replicas lists those that have not ended, by id.
func (b *bench) replicas() []deployments.Replica {
	b.T.Helper()
	all, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web}, "", 1000)
	require.NoError(b.T, err)
	return all
}

func (b *bench) seen() fleet.DeploymentSeen {
	b.T.Helper()
	seen, err := b.SeeDeployment(b.Ctx(), web)
	require.NoError(b.T, err)
	return seen
}

func (b *bench) viewed() deployments.DeploymentView {
	b.T.Helper()
	all, err := b.ViewDeployments(b.Ctx(), string(web))
	require.NoError(b.T, err)
	return all[string(web)]
}

// deploymentOperations lists all of web, as "kind state reason".
func (b *bench) deploymentOperations() []string {
	b.T.Helper()
	all, err := b.ListOperations(b.Ctx(), postgres.OperationFilter{Deployment: web}, postgres.Place{}, 100)
	require.NoError(b.T, err)
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = string(o.Kind) + " " + string(o.State)
	}
	slices.Reverse(out)
	return out
}
