//go:build slow

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// Replicas that are containers of a real engine: what TestE2EDeployments and TestE2EPrograms see of
// processes, and what becomes of them when the engine falls.
//
// F38, S13 to S16, S46 to S49, S54, S84, S94, S106, S110, S115, X1, X2, X4
func TestE2EContainers(t *testing.T) {
	t.Parallel()
	e := testkit.StartEngine(t, "")
	program, err := webProgram()
	require.NoError(t, err)
	e.Image(t, "local/web", "1", program)
	s := startWith(t, 2, "DOCKER_HOST="+e.Host)
	d := newContainers(t, s, "boxed", e)
	d.deploy(t)
	t.Run("they serve", d.containersServe)
	t.Run("scaled", d.containersScaled)
	t.Run("one killed", func(t *testing.T) {
		r := d.healthy(t, 2)[0]
		kill9(t, r.PID)
		d.replaced(t, r, nil)
	})
	t.Run("one removed behind our back", func(t *testing.T) {
		r := d.healthy(t, 2)[0]
		e.Discard(t, containerOf(r))
		d.replaced(t, r, nil)
	})
	t.Run("one is sick", d.containerSick)
	t.Run("an agent killed", func(t *testing.T) {
		before := d.healthy(t, 2)
		d.kill(t, before[0].Node)
		kill9(t, before[0].PID) // its next agent sees that
		d.replaced(t, before[0], nil)
		require.True(t, alive(before[1].PID))
	})
	t.Run("the engine stands still", d.engineStandsStill)
	t.Run("the engine killed", d.engineKilled)
	t.Run("a node drained", d.containersMove)
	t.Run("an image that is not to be had", s.noImage)
	t.Run("one that listens elsewhere", func(t *testing.T) { s.listensElsewhere(t, e) })
	d.destroy(t)
	waitFor(t, "nothing is left of them, once their last word is sent", func(context.Context) error {
		return unless(len(e.Containers(t, "holdfast.node")) == 0)
	})
	requireSmall(t, s.histories(t))
}

// boxed is a deployment of containers.
type boxed struct {
	*service
	engine *testkit.Engine
}

func newContainers(t *testing.T, s *stack, name string, e *testkit.Engine) *boxed {
	t.Helper()
	d := newService(t, s, name, 2, func(p *api.DeploymentPut) {
		p.Image, p.Command = "local/web:1", nil
		p.Env["LEDGER"] = "/holdfast"
		p.Resources.Memory = 64 << 20
		p.Startup.Deadline = 10
	})
	d.ledger = "" // it is each one's own folder
	return &boxed{d, e}
}

func containerOf(r api.Replica) string { return "holdfast-" + string(r.ID) }

func (d *boxed) containersServe(t *testing.T) {
	for _, r := range d.healthy(t, 2) {
		said := answersAt(t, r)
		require.Equal(t, []string{string(r.ID), r.Node, "1", "hello"}, []string{said["replica"], said["node"], said["epoch"], said["greeting"]})
		waitFor(t, "what it printed is there", func(ctx context.Context) error {
			logs, err := d.api.DeploymentLogs(ctx, d.name, api.ReplicaLogQuery{Replica: r.ID})
			if err != nil {
				return err
			}
			return unless(slices.ContainsFunc(logs.Items, func(c api.ReplicaLogChunk) bool {
				text, err := c.Bytes()
				return err == nil && strings.Contains(string(text), "listening on")
			}))
		})
	}
	waitFor(t, "what they take is measured", func(ctx context.Context) error {
		top, err := d.api.Top(ctx, d.name)
		if err != nil {
			return err
		}
		return unless(top.Memory > 0)
	})
}

func (d *boxed) containersScaled(t *testing.T) {
	requireSucceeded(t, d.ended(t, d.scale(t, 5).ID))
	d.healthy(t, 5)
	require.Len(t, d.engine.Containers(t, "holdfast.node"), 5)
	requireSucceeded(t, d.ended(t, d.scale(t, 2).ID))
	two := d.healthy(t, 2)
	waitFor(t, "nothing is left of the others", func(context.Context) error {
		return unless(len(d.engine.Containers(t, "holdfast.node")) == 2)
	})
	for _, r := range two {
		require.Contains(t, d.engine.Containers(t, "holdfast.node"), containerOf(r))
	}
}

// containerSick is restarted where it is first (S49), as the same container.
func (d *boxed) containerSick(t *testing.T) {
	r := d.healthy(t, 2)[0]
	dir := filepath.Join(d.data, "nodes", r.Node, "replicas", string(r.ID))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sick"), nil, 0o600))
	restarted := false
	d.replaced(t, r, func(now api.Replica) { restarted = restarted || now.Restarts > 0 })
	require.True(t, restarted || d.restartedOnce(t, r.ID), "it was restarted before it was replaced")
}

// engineStandsStill: nothing is told to have ended while nobody can say (X1), and what runs serves on.
func (d *boxed) engineStandsStill(t *testing.T) {
	before := d.healthy(t, 2)
	d.engine.Do(t, "STOP")
	killed := before[0]
	kill9(t, killed.PID)
	d.until(t, "its probes see what its engine does not tell", func(all []api.Replica) error {
		return unless(slices.ContainsFunc(all, func(r api.Replica) bool { return r.ID == killed.ID && r.Health == fleet.HealthUnhealthy }) ||
			!slices.Contains(ids(all), killed.ID))
	})
	answersAt(t, before[1])
	d.engine.Do(t, "CONT")
	now := d.until(t, "it is restarted, or replaced", func(all []api.Replica) error {
		return unless(len(all) == 2 && allHealthy(all) && !slices.ContainsFunc(all, func(r api.Replica) bool { return r.PID == killed.PID }))
	})
	require.Contains(t, ids(now), before[1].ID)
}

// engineKilled: it takes its containers with it, and the deployment is as declared soon after.
func (d *boxed) engineKilled(t *testing.T) {
	d.healthy(t, 2)
	d.engine.Do(t, "kill")
	d.engine.Do(t, "start")
	d.engine.Answers(t)
	d.healthy(t, 2)
	waitFor(t, "nothing else is left", func(context.Context) error {
		all := d.replicas(t)
		names := d.engine.Containers(t, "holdfast.node")
		slices.Sort(names)
		return unless(len(all) == 2 && allHealthy(all) && slices.Equal(names, []string{"holdfast-" + string(ids(all)[0]), "holdfast-" + string(ids(all)[1])}))
	})
}

func (d *boxed) containersMove(t *testing.T) {
	node := d.healthy(t, 2)[0].Node
	fewest := d.least(t)
	op := d.change(t, "drain "+node, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.DrainNode(ctx, node, api.NodeDrainRequest{}, m)
	})
	requireSucceeded(t, d.ended(t, op.ID))
	for _, r := range d.healthy(t, 2) {
		require.NotEqual(t, node, r.Node)
	}
	require.GreaterOrEqual(t, fewest(), 2, "new before old")
	_, err := d.api.UncordonNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
}

// noImage waits for an image that nobody gives it, says so, and goes when it is told to.
func (s *stack) noImage(t *testing.T) {
	d := newService(t, s, "imageless", 1, func(p *api.DeploymentPut) { p.Image, p.Command = "registry.invalid/none:1", nil })
	d.ledger = ""
	d.declare(t)
	d.until(t, "it says what it waits for", func(all []api.Replica) error {
		return unless(len(all) == 1 && strings.Contains(all[0].Message, "registry.invalid"))
	})
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
}

// listensElsewhere: the port of the check is the engine's, and the container has a network of its own (S84, X8).
func (s *stack) listensElsewhere(t *testing.T, e *testkit.Engine) {
	d := newContainers(t, s, "elsewhere", e)
	least := 1
	d.put.Replicas = api.ReplicaCounts{Min: &least, Initial: &least}
	d.put.Env["ELSEWHERE"], d.put.Startup.Deadline = "8081", 600
	d.declare(t)
	d.until(t, "its node says where it listens", func(all []api.Replica) error {
		return unless(len(all) == 1 && all[0].Failing.Health != nil && all[0].Failing.Health.Listens == "it listens on 8081")
	})
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
}
