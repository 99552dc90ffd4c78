//go:build slow

package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// faulted is the change that faults are tried on: two batches of three.
var faulted = api.FleetPut{BatchSize: 3, ErrorThreshold: 100}

// smallField has six instances at one site, of which two run a command.
func smallField(t *testing.T, s *stack, name, site string) *field {
	t.Helper()
	s.watchOrder(t, pair(site)...)
	return newField(t, s, name, 6, fieldOptions{running: 2}, site)
}

// survives changes a field while something dies on the way.
func (f *field) survives(t *testing.T, fired ...func() bool) {
	t.Helper()
	op := f.run(t, faulted)
	for _, dead := range fired {
		waitFor(t, "it was killed", func(context.Context) error {
			if dead() {
				return nil
			}
			return errNotYet
		})
	}
	f.mended(t, op)
}

// mended checks that a change which something happened to has brought everything in the end.
func (f *field) mended(t *testing.T, op api.Operation) {
	t.Helper()
	ended := f.ended(t, op.ID)
	t.Logf("ended as %s %s", ended.State, ended.Reason)
	f.good(t)
	require.Equal(t, fleet.OperationSucceeded, ended.State, "%+v", ended)
	run := f.newest(t)
	require.Equal(t, fleet.FleetSucceeded, run.State)
	counts := run.Counts
	require.Equal(t, len(f.keys), counts.Succeeded+counts.Unchanged+counts.Failed, "every target has ended: %+v", counts)
	if counts.Failed > 0 {
		t.Logf("%d failed: %+v", counts.Failed, f.targets(t))
	}
}

// stalled has the active of a field wait with the first batch of a change.
func (f *field) stalled(t *testing.T, site string) (op api.Operation, goOn func()) {
	t.Helper()
	goOn = f.hold(t, f.holder(t, site), "before_fetch")
	op = f.run(t, faulted)
	f.underWay(t, site)
	return op, goOn
}

// N16, N61 to N64, N98, N99, X2, X6, X7, X11, X13, X25, X28
func TestE2EFleetFaults(t *testing.T) {
	t.Parallel()
	s := startStack(t, 4)
	t.Run("something dies", func(t *testing.T) {
		together(t, []part{
			{"active", func(t *testing.T) { s.fleetNodeDies(t, "plant-1", "active", s.holder) }},
			{"standby", func(t *testing.T) { s.fleetNodeDies(t, "plant-2", "standby", s.standby) }},
			{serverName, s.fleetServerDies},
			{"by hand", s.fleetEndedByHand},
		})
	})
	const site = "plant-4"
	f := smallField(t, s, "region", site)
	for _, name := range []string{temporalName, postgresName} {
		t.Run(name+" in the middle of a batch", func(t *testing.T) {
			op, goOn := f.stalled(t, site)
			kill9(t, s.pid(t, name))
			goOn()
			f.mended(t, op)
		})
	}
	t.Run("one of two servers that is paused, and wakes too late", func(t *testing.T) { s.fleetServers(t, f, site) })
	s.quiet(t)
	s.asInRegion(t)
	s.asleep(t)
	for _, r := range s.histories(t) {
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, r.events[len(r.events)-1].GetEventType(), r.id)
	}
}

func (s *stack) fleetNodeDies(t *testing.T, site, role string, node func(t *testing.T, site string) string) {
	f := smallField(t, s, role, site)
	for _, step := range []string{"before_fetch", "after_fetch", "before_switch", "after_switch", "before_reply"} {
		t.Run(step, func(t *testing.T) { f.survives(t, s.arm(t, node(t, site), step)) })
	}
}

func (s *stack) fleetServerDies(t *testing.T) {
	f := smallField(t, s, serverName, "plant-3")
	for _, step := range []string{"batch", "batch_prepare", "batch_end"} {
		for _, when := range []string{"before_", "after_"} {
			t.Run(when+step, func(t *testing.T) { f.survives(t, s.arm(t, serverName, when+step)) })
		}
	}
}

func (s *stack) fleetEndedByHand(t *testing.T) {
	const site = "plant-4"
	f := smallField(t, s, "by-hand", site)
	t.Run("a site's run that is terminated", func(t *testing.T) {
		op, goOn := f.stalled(t, site)
		s.terminate(t, fmt.Sprintf("fleet.%s.%d.1.%s", f.name, f.newest(t).Run, site))
		goOn()
		f.mended(t, op)
	})
	t.Run("an entity that is terminated", func(t *testing.T) { s.fleetTerminated(t, f, site) })
}

// fleetTerminated: the operation ends, and who asks next goes on from the record.
func (s *stack) fleetTerminated(t *testing.T, f *field, site string) {
	op, goOn := f.stalled(t, site)
	s.terminate(t, "fleet."+f.name)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, s.closed(t, &commonpb.WorkflowExecution{WorkflowId: "fleet." + f.name}))
	goOn()
	ended := s.ended(t, op.ID)
	require.Equal(t, fleet.OperationFailed, ended.State, "%+v", ended)
	require.Equal(t, "workflow_terminated", ended.Reason)
	again := f.turn(t, "run")
	require.NotNil(t, again)
	f.mended(t, *again)
}

// fleetServers has the server that made a batch sleep until another one has ended it.
func (s *stack) fleetServers(t *testing.T, f *field, site string) {
	other := s.serve(t, "")
	op, goOn := f.stalled(t, site)
	s.signal(t, serverName, syscall.SIGSTOP)
	goOn()
	over := *s
	over.api = other.api
	moved := *f
	moved.stack = &over
	moved.mended(t, op)
	op = moved.run(t, faulted)
	moved.mended(t, op)
	s.signal(t, serverName, syscall.SIGCONT)
	f.version = moved.version
	f.survives(t)
	other.stop()
	f.survives(t)
}
