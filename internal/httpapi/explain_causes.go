package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// The causes that an explanation names (S95); they are a stable API.
const (
	CauseBadDefinition     = "bad_definition"
	CausePoolMisconfigured = "pool_misconfigured"
	CauseNoResources       = "no_resources"
	CauseImage             = "image"
	CausePreparation       = "preparation"
	CauseProgram           = "program"
	CauseNode              = "node"
	CauseIsolation         = "isolation"
	CauseReadiness         = "readiness"
)

// WordChecksFail is the reason of a replica that has not failed, and whose checks do.
const WordChecksFail = "checks_fail"

// causeRules name the cause behind each stable word, and what helps, with NAME for that of the deployment; the weightiest come first.
var causeRules = []struct {
	code  string
	words []string
	hint  string
}{
	{CauseBadDefinition, []string{fleet.ReasonNoDefinition}, "correct the declaration and apply it again"},
	{CausePoolMisconfigured, []string{decide.PoolMisconfigured}, "none of the pools in placement.pools selects a node: holdfast get pools; name another one, or change its sites, nodes or nodeLabels"},
	{CauseIsolation, []string{decide.IsolationMissing}, "run the agents as root without --isolation=none (holdfast get nodes shows which ones isolate projects), use an image, or place it on a site of its project"},
	{CauseReadiness, []string{decide.ReadinessMissing}, "upgrade the agents of the nodes listed below, or remove readiness from the declaration"},
	{CauseNoResources, []string{decide.NoNode, decide.NoRoom, decide.PortsTaken, fleet.ReasonNoDriver}, "ask for less, free a node, raise maxReplicas of a pool that is full, or widen the placement; nodes below says what is missing where"},
	{CauseImage, []string{fleet.ReasonNoImage}, "check the name of the image, and that the nodes may pull it"},
	{CausePreparation, []string{decide.ReasonPrepareLimit}, "the message says what failed last: the pull of the image, the engine, or the way to the region"},
	{CauseProgram, []string{
		fleet.ReasonExited, fleet.ReasonNotStarted, fleet.ReasonStartupDeadline, fleet.ReasonProbesFailed,
		fleet.ReasonRestartsUsedUp, fleet.ReasonOutOfMemory, fleet.ReasonPortTaken, fleet.ReasonGPUTaken, WordChecksFail,
	}, "output below is what the program wrote last; then correct the declaration, or holdfast restart deployment NAME"},
	{CauseNode, []string{decide.ReasonNodeLost, decide.ReasonLost, decide.ReasonNotTakenUp, decide.ReasonStuck, decide.ReasonNotHeard, fleet.ReasonNodeStopped}, "holdfast get nodes"},
}

// isFailed reports whether a replica ended or is unhealthy without a request.
func isFailed(r deployments.Replica) bool {
	return r.FailedAt != nil || r.Phase == fleet.PhaseFailed || r.Phase == fleet.PhaseExited || r.State == fleet.ReplicaUnhealthy
}

func endOrSince(r deployments.Replica) time.Time {
	if r.EndedAt != nil {
		return *r.EndedAt
	}
	return r.Since
}

// causes names what keeps the deployment from running as declared; nothing does once it does.
func (x *explaining) causes() []api.Cause {
	out := []api.Cause{}
	if x.converged() {
		return out
	}
	said := x.said()
	for _, rule := range causeRules {
		for _, w := range said {
			known := slices.ContainsFunc(out, func(c api.Cause) bool { return c.Reason == w.reason })
			if known || !slices.Contains(rule.words, w.reason) {
				continue
			}
			out = append(out, api.Cause{Code: rule.code, Reason: w.reason, Message: w.message, Hint: strings.ReplaceAll(rule.hint, "NAME", string(x.name))})
		}
	}
	return out
}

// converged says that as many replicas are healthy as there are to be, of what was released, and that
// nothing is on its way or missing.
func (x *explaining) converged() bool {
	n := totalsOf(x.view)
	stopped := x.spec != nil && x.spec.State == fleet.StateStopped
	return x.view.State == fleet.DeploymentTerminated || stopped ||
		x.view.State == fleet.DeploymentRunning && n.Healthy == n.Desired &&
			n.Unhealthy+n.Starting+n.Degraded == 0 && x.view.Deploying == 0 && !x.holds(decide.ConditionDegraded) && !x.holds(decide.ConditionProgressing)
}

func (x *explaining) holds(condition string) bool {
	return slices.ContainsFunc(x.out.Status.Conditions, func(c fleet.Condition) bool {
		return c.Type == condition && c.Status == fleet.ConditionTrue
	})
}

// word is a stable word with its sentence.
type word struct{ reason, message string }

// said are the words about it: of placement now, of its state, and of replicas that failed.
func (x *explaining) said() []word {
	all := []word{{x.unplaced, x.unplacedMessage}, {x.out.Status.Reason, x.out.Status.Message}}
	for _, c := range x.out.Status.Conditions {
		all = append(all, word{c.Reason, c.Message})
	}
	if x.ends {
		return all
	}
	for _, r := range x.failed {
		if x.wants(r) { // what failed before says nothing of what runs now
			all = append(all, word{r.Reason, r.Message})
		}
	}
	for _, r := range x.unwell {
		if x.wants(r) {
			all = append(all, word{WordChecksFail, fmt.Sprintf("replica %s on node %s: %s", r.ID, r.Node, r.Failing)})
		}
	}
	return all
}

// wants reports whether a replica is of what is to run, or to be rolled out.
func (x *explaining) wants(r deployments.Replica) bool {
	return r.ProcessVersion == x.view.ProcessVersion || x.view.Rollout != nil && r.ProcessVersion == x.view.Rollout.ProcessVersion
}
