//go:build slow

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
)

// Tests that leave a region's own processes alone share one: each has sites of its own, and names of its
// own for what is not of a site. What holds for a whole region is checked once, at the end.

// X9, X11
func TestE2EInstances(t *testing.T) { // alone: it loads the machine
	s := startStack(t, 11)
	together(t, []part{
		{"failover", s.failsOver},            // plant-1 to 3
		{"a standby away", s.standbyAway},    // plant-4 and 5
		{"healing", s.heals},                 // plant-6 and 7
		{"life", s.livesAndDies},             // plant-8 and 9
		{"any Temporal client", s.doorsOpen}, // plant-10 and 11
	})
	s.asleep(t)
	requireSmall(t, s.histories(t))
}

// X9, X10, X11
func TestE2EFleets(t *testing.T) {
	t.Parallel()
	const sites = 12
	s := startWith(t, sites, zonesVariable+"="+zones(t))
	for n := range sites {
		s.watchOrder(t, pair(fmt.Sprintf("plant-%d", n+1))...)
	}
	together(t, []part{
		{"a fleet change", s.fleetChanges}, // plant-1 to 6
		{"its operator", s.fleetOperator},  // plant-7 to 12
	})
	s.quiet(t)
	s.asInRegion(t)
	s.asleep(t)
	runs := s.histories(t)
	requireSmall(t, runs)
	require.Empty(t, mentions(t, runs, fieldConfig), "a config is in Temporal")
	for _, r := range runs {
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, r.events[len(r.events)-1].GetEventType(), r.id)
	}
}

// Bad input is checked by what is stored, so it comes first.
func TestE2EInput(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	t.Run("bad", s.refusesBadInput)
	t.Run("of any size", s.takesAnySize)
	t.Run("of another module", s.servesAnotherModule)
}
