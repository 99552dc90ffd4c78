package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

type explainOutput struct{ Body api.Explanation }

const (
	explainedDecisions = 20
	explainedEnded     = 10
	// lookedAtEnded is how many that ended are looked at for what failed.
	lookedAtEnded  = 200
	explainedNodes = 100
	// explainedLeft is how many are shown that run and count no more.
	explainedLeft = 50
	// explainedOutput is the most that is shown of a replica's output.
	explainedOutput = 4 << 10
	// outputTries is how many failed replicas are asked for output: the newest may have written none.
	outputTries = 5
)

func (s *server) mountExplain() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath+"/explain", "explain-deployment",
		"Why a deployment is where it is: what is declared, runs, failed and is waited for"), s.explainDeployment)
}

// explainDeployment answers S94: from what is stored, by the rules that placement itself goes by.
func (s *server) explainDeployment(ctx context.Context, in *getInput) (*explainOutput, error) {
	v, err := s.deploymentSeen(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	x := &explaining{s: s, view: v, name: fleet.DeploymentName(in.Name)}
	x.out = api.Explanation{Name: in.Name, Project: string(v.Project)}
	for _, step := range []func(context.Context) error{x.declared, x.running, x.left, x.happened, x.wrote, x.room} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	x.out.Causes = x.causes()
	return &explainOutput{Body: x.out}, nil
}

// explaining gathers an explanation.
type explaining struct {
	s      *server
	name   fleet.DeploymentName
	view   deployments.DeploymentView
	spec   *fleet.DeploymentSpec // what is judged: what was released, or declared where nothing was; nil of one that has ended
	ends   bool                  // nothing of it is to run
	failed []deployments.Replica // newest first
	// unwell run, have not failed, and their checks fail.
	unwell []deployments.Replica
	// unplaced says why there is no place for the replicas that are missing, "" when there is.
	unplaced, unplacedMessage string
	out                       api.Explanation
}

func (x *explaining) declared(ctx context.Context) error {
	o, err := x.s.store.GetObject(ctx, fleet.DeploymentKey(x.name))
	if fleet.KindOf(err) == fleet.NotFound {
		x.out.Status = x.s.deploymentStatus(string(x.name), x.view, nil)
		return nil
	}
	if err != nil {
		return err
	}
	x.out.Status = x.s.deploymentStatus(string(x.name), x.view, &o)
	x.out.Project = string(o.Project)
	generation, err := x.judged(ctx, o)
	if err != nil {
		return err
	}
	x.ends = o.DeletingSince != nil || x.view.UID != "" && x.view.UID != o.UID || x.spec.State == fleet.StateStopped
	spec := x.spec.WithDefaults()
	runs := x.defined(ctx, spec)
	short := api.ExplainedSpec{
		Type: spec.Type, Driver: runs.RunBy(), Image: runs.Image, Command: runs.Argv(), Model: spec.Model,
		Ports: runs.Ports, Health: runs.Health, Readiness: runs.Readiness, Resources: totalOf(spec.Resources), Replicas: spec.Replicas,
		Placement: api.DeploymentPlacement(spec.Placement), State: spec.State, Recovery: spec.Recovery.WithDefaults(), Generation: generation,
	}
	if runs.Startup != nil {
		short.StartupSeconds = runs.Startup.Deadline
	}
	x.out.Spec = &short
	return nil
}

// judged reads the spec of what is released, by which the region acts: of what was written since, nothing
// follows yet. It gives the generation.
func (x *explaining) judged(ctx context.Context, o fleet.Object) (int64, error) {
	next := postgres.Place{ID: strconv.FormatInt(x.view.Revision+1, 10)}
	rows, err := x.s.store.ListDeploymentRevisions(ctx, x.name, next, 1)
	if err != nil {
		return 0, err
	}
	if x.view.Revision > 0 && len(rows) > 0 && rows[0].Revision == x.view.Revision {
		x.spec = &rows[0].Spec
		return rows[0].Generation, nil
	}
	x.spec = &fleet.DeploymentSpec{}
	if err := json.Unmarshal(o.Spec, x.spec); err != nil {
		return 0, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", o.ObjectKey, err)
	}
	return o.Generation, nil
}

// defined is what was released, with what its type gives; of what was not, what is declared.
func (x *explaining) defined(ctx context.Context, spec fleet.DeploymentSpec) fleet.Process {
	if x.view.Definition == "" {
		return spec.Process
	}
	var d fleet.Definition
	text, err := x.s.maker.Load(ctx, "the definition", x.view.Definition)
	if err != nil || json.Unmarshal(text, &d) != nil {
		return spec.Process // an explanation that is shorter is better than none
	}
	return d.Process
}

func totalOf(r fleet.Resources) api.ResourceTotal {
	return api.ResourceTotal{CPU: r.CPU, Memory: r.Memory, GPUs: r.GPUs}
}

// running reads all replicas that live, and the last that have ended.
func (x *explaining) running(ctx context.Context) error {
	live, err := x.living(ctx)
	if err != nil {
		return err
	}
	ended, err := x.s.store.LastEndedReplicas(ctx, x.name, lookedAtEnded)
	if err != nil {
		return err
	}
	x.out.Replicas, x.out.Ended = newestFirst(live), newestFirst(ended[:min(len(ended), explainedEnded)])
	for _, r := range slices.Concat(live, ended) {
		if isFailed(r) {
			x.failed = append(x.failed, r)
		}
	}
	for _, r := range live {
		if !isFailed(r) && r.Failing.String() != "" {
			x.unwell = append(x.unwell, r)
		}
	}
	slices.SortStableFunc(x.failed, byEnd)
	return nil
}

func (x *explaining) living(ctx context.Context) ([]deployments.Replica, error) {
	var live []deployments.Replica
	for after := ""; ; after = string(live[len(live)-1].ID) {
		page, err := x.s.store.ListReplicas(ctx, deployments.ReplicaFilter{Deployment: x.name}, after, maxShownReplicas)
		live = append(live, page...)
		if err != nil || len(page) < maxShownReplicas {
			return live, err
		}
	}
}

// left reads what may run and counts no more.
func (x *explaining) left(ctx context.Context) error {
	f := deployments.UncountedFilter{Deployment: x.name, Every: serve.CallOf(ctx).Project == ""}
	all, err := x.s.store.UncountedReplicas(ctx, f, explainedLeft)
	for _, r := range all {
		u := api.Uncounted{ID: r.ID, Node: string(r.Node), Reason: r.Reason, Since: r.Since}
		if r.Reason == fleet.OrphanNeverKnown || r.Reason == fleet.OrphanOverCap {
			u.Hint = "holdfast orphans approve " + u.Node + " replica/" + string(r.ID)
			if _, _, err := x.s.visibleNode(ctx, u.Node); err != nil {
				u.Hint = "its node is not of this project; who sees all: " + u.Hint
			}
		}
		x.out.Uncounted = append(x.out.Uncounted, u)
	}
	return err
}

func newestFirst(all []deployments.Replica) []api.Replica {
	slices.SortStableFunc(all, byEnd)
	out := make([]api.Replica, len(all))
	for i, r := range all {
		out[i] = replicaView(r)
	}
	return out
}

func byEnd(a, b deployments.Replica) int { return endOrSince(b).Compare(endOrSince(a)) }

func (x *explaining) happened(ctx context.Context) error {
	rows, err := x.s.store.ListDeploymentHistory(ctx, x.name, postgres.Place{}, explainedDecisions)
	x.out.Decisions = decisionsOf(rows)
	return err
}

// wrote reads the last output of the newest failed replica that wrote any.
func (x *explaining) wrote(ctx context.Context) error {
	for i, r := range x.failed[:min(len(x.failed), outputTries)] {
		text, err := x.s.lastOutput(ctx, r.ID)
		if err != nil {
			return err
		}
		if text == "" && i > 0 {
			continue
		}
		x.out.Output = &api.FailedOutput{
			Replica: r.ID, Node: string(r.Node), Reason: r.Reason, Message: r.Message, At: endOrSince(r), Text: text,
		}
		if text != "" {
			return nil
		}
	}
	return nil
}

// lastOutput is the end of what a replica wrote, from the start of a line.
func (s *server) lastOutput(ctx context.Context, id fleet.ReplicaID) (string, error) {
	var tail []byte
	for from := int64(0); ; {
		pieces, err := s.store.ReadReplicaLogs(ctx, id, from, maxShownReplicas)
		if err != nil {
			return "", err
		}
		before := from
		for _, p := range pieces {
			tail = append(tail, p.Data...)
			tail = tail[max(len(tail)-explainedOutput, 0):]
			from = max(from, p.Offset+int64(len(p.Data)))
		}
		if from == before {
			break
		}
	}
	if cut := bytes.IndexByte(tail, '\n'); len(tail) == explainedOutput && cut >= 0 && cut+1 < len(tail) {
		tail = tail[cut+1:]
	}
	return strings.ToValidUTF8(string(tail), "�"), nil
}
