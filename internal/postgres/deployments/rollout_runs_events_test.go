package deployments_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/bounds"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// bothSites are those between which a placement is moved.
var bothSites = []fleet.SiteName{stores.Plant, dock}

// disturb has one thing happen.
func (h *history) disturb() {
	t := h.t
	all := rapid.SampledFrom([][]string{{"person"}, {"rounds", "work"}, {"machine", "chance", "region"}, {"person"}, {"time", "hours", "sick"}}).Draw(t, "kind")
	switch rapid.SampledFrom(all).Draw(t, "disturbance") {
	case "person":
		h.person()
	case "machine":
		h.machine(rapid.SampledFrom(h.nodes).Draw(t, "node"))
	case "chance":
		h.chance(rapid.SampledFrom(h.nodes).Draw(t, "node"))
	case "work":
		h.work()
	case "rounds":
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			h.work()
			h.visits()
		}
	case "time":
		h.age(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
	case "hours":
		h.age(time.Duration(rapid.IntRange(1, 80).Draw(t, "hours")) * time.Hour)
	case "region":
		h.regionAway()
	case "sick":
		h.sick = !h.sick
	}
}

// regionAway: nobody hears the nodes, and nothing is decided, for some minutes.
func (h *history) regionAway() {
	by := time.Duration(rapid.IntRange(1, 90).Draw(h.t, "minutes")) * time.Minute
	h.Exec(`UPDATE link_servers SET seen_at = seen_at - $1::interval`, by)
	h.age(by)
	for _, m := range h.nodes {
		if m.conn != "" && rapid.Bool().Draw(h.t, "its stream broke") {
			h.away(m)
		}
		if rapid.IntRange(0, 3).Draw(h.t, "it comes back") > 0 {
			h.back(m)
		}
	}
}

// machine has a node go away, come back, be drained, be stopped or leave for good.
func (h *history) machine(m *machine) {
	t := h.t
	switch rapid.SampledFrom([]string{"away", "back", "drain", "away", "back", "undrain", "wiped", "stopped", "gone"}).Draw(t, "machine") {
	case "away":
		h.away(m)
	case "back":
		if m.conn == "" && !m.gone {
			h.back(m)
			if rapid.Bool().Draw(t, "it reports at once") {
				h.report(m)
			}
		}
	case "wiped":
		h.back(m)
		if m.conn != "" {
			clear(m.runs)
			h.report(m)
		}
	case "drain":
		if !m.gone {
			_, err := h.AskNodeDrain(h.Ctx(), stores.DrainOf(m.name, 600))
			require.NoError(t, err)
		}
	case "undrain":
		h.undrain(m)
	case "stopped":
		if m.conn != "" {
			_, err := h.NodeStopped(h.Ctx(), m.conn, "node:"+string(m.name))
			require.NoError(t, err)
			clear(m.runs)
			m.conn = ""
		}
	case "gone":
		if !m.gone && rapid.Bool().Draw(t, "for good") {
			require.NoError(t, h.RevokeNode(h.Ctx(), m.name))
			h.away(m)
			m.gone = true
		}
	}
}

func (h *history) undrain(m *machine) {
	if m.gone {
		return
	}
	d, err := h.NodeDrains(h.Ctx(), m.name)
	require.NoError(h.t, err)
	if d, is := d[m.name]; is && d.EndedAt == nil {
		require.NoError(h.t, h.EndDrain(h.Ctx(), fleet.DrainEnd{Node: m.name, Operation: d.Operation, State: fleet.OperationSucceeded, Reason: "drained"}))
	}
	require.NoError(h.t, h.Uncordon(h.Ctx(), nodes.CordonRequest{Node: m.name}))
}

// inOrder are the replicas that have not ended, in an order that another play of the same history has as well.
func (h *history) inOrder() []deployments.Replica {
	return slices.SortedStableFunc(slices.Values(h.replicas()), func(a, b deployments.Replica) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Node, b.Node), cmp.Compare(a.State, b.State))
	})
}

// chance has a replica do something of its own accord; a node that is away says so when it is back.
func (h *history) chance(m *machine) {
	t := h.t
	for _, r := range h.inOrder() {
		has, is := m.runs[r.ID]
		if !is || has.Phase.Over() || rapid.Bool().Draw(t, "another") {
			continue
		}
		has.Phase, has.Health, has.Unready, has.Reason = fleet.PhaseRunning, fleet.HealthHealthy, false, ""
		has.Restarts += rapid.IntRange(0, 1).Draw(t, "restarted")
		switch rapid.SampledFrom([]string{"healthy", "starting", "unwell", "unready", "exited", "failed"}).Draw(t, "does") {
		case "starting":
			has.Health = fleet.HealthNotChecked
		case "unwell":
			has.Health = fleet.HealthUnhealthy
		case "unready":
			has.Unready = h.readies
		case "exited":
			has.Phase, has.Health, has.Reason = fleet.PhaseExited, fleet.HealthUnhealthy, fleet.ReasonExited
		case "failed":
			has.Phase, has.Health, has.Reason = fleet.PhaseFailed, fleet.HealthUnhealthy, fleet.ReasonRestartsUsedUp
		}
		m.runs[r.ID] = has
		if m.conn != "" {
			_, err := h.ReplicasReported(h.Ctx(), fleet.ReplicasReport{Node: m.name, Connection: m.conn, Replicas: []fleet.ReplicaStatus{has}})
			require.NoError(t, err)
		}
		return
	}
}

// person asks for something, as the API would let them.
func (h *history) person() {
	t := h.t
	if h.deleted {
		if rapid.Bool().Draw(t, "again") {
			h.release(true)
		}
		return
	}
	asks := rapid.SampledFrom([][]string{
		{"scale", "restart", "stop first", "retry", "deploy"},
		{"pause", "resume", "promote", "cancel", "cancel operation"},
		{"release", "release", "restored", "rollback"},
		{"edit", "move", "versioned", "remove"},
		{"start", "stop", "start", "delete"},
	}).Draw(t, "kind")
	switch rapid.SampledFrom(asks).Draw(t, "asked") {
	case "release":
		h.release(rapid.IntRange(0, 4).Draw(t, "it is written only") > 0)
	case "restored":
		h.put(func(s *fleet.DeploymentSpec) {
			s.Process.Command = []string{fmt.Sprint("content ", rapid.IntRange(1, h.made).Draw(t, "content"))}
		})
	case "edit":
		h.put(func(s *fleet.DeploymentSpec) {
			s.Process.StopSeconds, s.Recovery.Crashes = rapid.IntRange(1, 20).Draw(t, "stop"), rapid.IntRange(1, 4).Draw(t, "crashes")
		})
	case "move":
		h.put(func(s *fleet.DeploymentSpec) {
			s.Placement.Sites = bothSites[rapid.IntRange(0, 1).Draw(t, "site"):][:1]
		})
	case "versioned":
		h.put(func(s *fleet.DeploymentSpec) {
			s.Update = rapid.SampledFrom([]fleet.UpdateMode{"", fleet.UpdateVersioned}).Draw(t, "update")
		})
	case "stop":
		h.put(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped })
	case "start":
		h.put(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStarted })
	case "rollback":
		h.rollback()
	case "remove":
		if all := h.inOrder(); len(all) > 0 {
			h.may(h.RemoveReplica(h.Ctx(), stores.WriteOf(webKey), rapid.SampledFrom(all).Draw(t, "replica").ID))
		}
	case "cancel operation":
		h.cancelOperation()
	case "pause":
		h.verb(fleet.RolloutPause)
	case "resume":
		h.verb(fleet.RolloutResume)
	case "promote":
		h.verb(fleet.RolloutPromote)
	case "cancel":
		h.verb(fleet.RolloutCancel)
	case "retry":
		h.turn(fleet.OperationConverge, func(d *deployments.DeploymentTurn) { d.Again = true })
	case "deploy":
		h.turn(fleet.OperationConverge)
	case "restart":
		h.turn(fleet.OperationRestart)
	case "stop first":
		h.turn(fleet.OperationRestart, stopFirst)
	case "scale":
		h.turn(fleet.OperationScale, to(rapid.IntRange(h.spec.Replicas.Min, h.spec.Replicas.Max).Draw(t, "to")))
	case "delete":
		h.deleted = h.turn(fleet.OperationDestroy)
	}
}

// may reports whether a request was accepted; a refusal is one that somebody who comes too late has to live with.
func (h *history) may(err error) bool {
	require.NoError(h.t, allowed(err))
	return err == nil
}

func (h *history) turn(kind fleet.OperationKind, edits ...func(*deployments.DeploymentTurn)) bool {
	in := deployments.DeploymentTurn{Write: stores.WriteOf(webKey), Kind: kind}
	for _, edit := range edits {
		edit(&in)
	}
	_, err := h.TurnDeployment(h.Ctx(), in)
	return h.may(err)
}

func (h *history) verb(on fleet.RolloutEvent) {
	_, err := h.TurnRollout(h.Ctx(), deployments.RolloutTurn{Write: stores.WriteOf(webKey), On: on})
	h.may(err)
}

func (h *history) cancelOperation() {
	all, err := h.ListOperations(h.Ctx(), postgres.OperationFilter{Deployment: web, State: fleet.OperationRunning}, postgres.Place{}, 100)
	require.NoError(h.t, err)
	if len(all) > 0 {
		_, err := h.CancelOperation(h.Ctx(), rapid.SampledFrom(all).Draw(h.t, "operation").ID)
		h.may(err)
	}
}

// release declares new content, with a strategy of its own.
func (h *history) release(deploy bool) {
	h.made++
	behaves := program{}
	if h.made > 1 {
		behaves.broken = rapid.IntRange(0, 3).Draw(h.t, "broken") == 0
		behaves.late = h.readies && rapid.IntRange(0, 3).Draw(h.t, "never ready") == 0
	}
	spec := h.spec
	spec.Process.Command = []string{fmt.Sprint("content ", h.made)}
	if rapid.Bool().Draw(h.t, "it starts") {
		spec.State = fleet.StateStarted
	}
	if h.spec.Update == fleet.UpdateVersioned && rapid.Bool().Draw(h.t, "it renews the version") {
		spec.Resources.Memory = int64(h.made)
	}
	spec.Strategy = bounds.Strategy(h.t)
	h.behaves(spec, behaves)
	h.write(spec, deploy)
}

// put declares an edit; it behaves as the content did.
func (h *history) put(edit func(*fleet.DeploymentSpec)) {
	spec := h.spec
	was := h.programs[h.define(spec).Hash]
	edit(&spec)
	h.behaves(spec, was)
	h.write(spec, true)
}

// behaves notes how replicas of a spec behave, if that is not known.
func (h *history) behaves(spec fleet.DeploymentSpec, p program) {
	hash := h.define(spec).Hash
	if _, known := h.programs[hash]; !known {
		p.terms = fleet.Definition{Process: spec.Process, Recovery: spec.Recovery}.Terms()
		h.programs[hash] = p
	}
}

func (h *history) write(spec fleet.DeploymentSpec, deploy bool) {
	_, err := h.PutDeployment(h.Ctx(), deployments.DeploymentPut{Write: stores.WriteOf(webKey), Spec: spec, Definition: h.define(spec), Deploy: deploy, Reason: "because"})
	if h.may(err) {
		h.spec, h.deleted = spec, false
	}
}

// rollback writes the spec of an earlier revision once more.
func (h *history) rollback() {
	to, err := h.RevisionBefore(h.Ctx(), web)
	if !h.may(err) {
		return
	}
	rows, err := h.ListDeploymentRevisions(h.Ctx(), web, postgres.Place{ID: strconv.FormatInt(to+1, 10)}, 1)
	require.NoError(h.t, err)
	require.Equal(h.t, to, rows[0].Revision)
	h.write(rows[0].Spec, true)
}
