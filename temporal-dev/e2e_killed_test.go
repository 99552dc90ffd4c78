//go:build slow

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N14, N16, N62, X2, X6, X11, X13, X28
func TestE2EServerKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	s.watchOrder(t, pair("plant-1")...)
	st := newStory(t, s, "plant-1", "press-7")
	for _, step := range []string{"observe", "claim", "prepare", "record", "end"} {
		for _, when := range []string{"before_", "after_"} {
			t.Run(when+step, func(t *testing.T) {
				st.survives(t, s.arm(t, serverName, when+step))
			})
		}
	}
	for _, name := range []string{temporalName, postgresName, serverName} {
		t.Run(name+" in the middle", func(t *testing.T) {
			st.start = 1.5
			first, _ := st.release(t)
			st.underWay(t, first)
			kill9(t, s.pid(t, name))
			second, hash := st.release(t) // while it is away
			ended := s.ended(t, first.ID)
			require.Contains(t, []fleet.OperationState{fleet.OperationSuperseded, fleet.OperationSucceeded}, ended.State, "%+v", ended)
			requireSucceeded(t, s.ended(t, second.ID))
			st.good(t, hash)
		})
	}
	t.Run("temporal away for longer than a heartbeat", func(t *testing.T) { st.outlives(t, temporalName) })
	s.asleep(t)
	runs := s.histories(t)
	requireSmall(t, runs)
	for _, r := range runs {
		last := r.events[len(r.events)-1].GetEventType()
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, last, r.id)
	}
}

// N7, N43, N45, N61, N63, N64, N95, X2, X13, X28
func TestE2ENodeKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t, 3)
	roles := map[string]func(t *testing.T, site string) string{"active": s.holder, "standby": s.standby}
	var parts []part
	for _, d := range []struct {
		site, role string
		steps      []string
		stops      bool
	}{
		{"plant-1", "active", []string{"before_fetch", "after_fetch", "before_start", "after_start"}, false},
		{"plant-2", "active", []string{"before_switch", "after_switch", "before_reply"}, true},
		{"plant-3", "standby", []string{"before_fetch", "after_fetch", "before_reply"}, true},
	} {
		node := func(t *testing.T) string { return roles[d.role](t, d.site) }
		parts = append(parts, part{d.site, func(t *testing.T) {
			s.watchOrder(t, pair(d.site)...)
			st := newStory(t, s, d.site, "press-7")
			for _, step := range d.steps {
				t.Run("the "+d.role+" "+step, func(t *testing.T) { st.survives(t, s.arm(t, node(t), step)) })
			}
			if d.stops {
				t.Run("the "+d.role+" is stopped cleanly", func(t *testing.T) { st.stopped(t, node(t)) })
			}
		}})
	}
	together(t, parts)
	s.asleep(t)
}
