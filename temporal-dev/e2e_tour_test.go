package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F1, F53, M14, N7, N38, N64, X1: what the README's command plays of whole regions. The slow tests play what goes wrong on the way.
func TestTour(t *testing.T) {
	t.Parallel()
	m := startMesh(t, 3)
	s := m.regions["eu"]
	const site = "plant-1"
	s.agreed(t, site)
	st := newStory(t, s, site, "press-7")
	d := newService(t, s, "web", 2)
	together(t, []part{
		{"a pair", func(t *testing.T) {
			t.Run("an agent that is killed finds its command running", func(t *testing.T) { st.agentKilled(t, "eu/") })
			t.Run("the other node takes over, and takes what is delivered", st.failedOver)
		}},
		{"a deployment", func(t *testing.T) {
			before := d.deploy(t)
			fewest := d.least(t)
			requireSucceeded(t, d.ended(t, d.greets(t, "good day").ID))
			for _, r := range d.answering(t, 2, "good day") {
				require.NotContains(t, ids(before), r.ID)
			}
			require.GreaterOrEqual(t, fewest(), 2, "as many as before answer all the time")
			require.Equal(t, fleet.RolloutDeployed, d.rollouts(t)[0].State)
			d.destroy(t)
		}},
		{"three regions share a project", func(t *testing.T) {
			m.meshed(t)
			p := sharedProject{m, "shop"}
			p.allow(t, "eu", "ap", "eu", "us")
			p.pool(t, "eu", "eu-pool", 1)
			p.same(t, "eu", "us", "ap")
		}},
	})
}

// agentKilled kills the active agent, whose name begins with that of its region.
func (st *story) agentKilled(t *testing.T, region string) {
	hash := st.witness.starts(t)[0].hash
	pid, node := st.witness.runs(t, hash), st.holder(t, st.key.Scope)
	st.kill(t, region+node)
	waitFor(t, "the region hears of the node again", func(context.Context) error {
		if n := onNode(t, st.status(t, st.key), node); !n.Running {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	require.Equal(t, pid, st.witness.runs(t, hash))
}

// failedOver moves the site to its standby, which is delivered the next revision.
func (st *story) failedOver(t *testing.T) {
	to := st.standby(t, st.key.Scope)
	st.failover(t, st.key.Scope, to)
	require.Equal(t, to, st.holder(t, st.key.Scope))
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	st.good(t, hash)
}
