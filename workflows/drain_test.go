package workflows_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// emptied is a toy store of one drain, whose connection does what work says.
type emptied struct {
	mu    sync.Mutex
	now   func() time.Time
	seen  fleet.DrainSeen
	work  func(s *fleet.DrainSeen) // what happened since it was seen last
	did   []string
	notes []string
	ends  []fleet.DrainEnd
	away  int // how many looks the database does not answer
	waits time.Duration
}

func (e *emptied) SeeDrain(_ context.Context, in fleet.DrainLook) (fleet.DrainSeen, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away > 0 {
		e.away--
		return fleet.DrainSeen{}, fleet.Errorf(fleet.Unavailable, "the database is away")
	}
	if in.Rule != "" && (len(e.notes) == 0 || e.notes[len(e.notes)-1] != in.Rule) {
		e.notes = append(e.notes, in.Rule)
	}
	e.seen.At = e.now()
	if e.work != nil {
		e.work(&e.seen)
	}
	out := e.seen
	out.Connections = slices.Clone(out.Connections)
	return out, nil
}

func (e *emptied) say(what string) { e.did = append(e.did, what) }

func (e *emptied) AskConnections(_ context.Context, _ fleet.NodeName, ids []fleet.ConnectionID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.say("ask")
	for i, c := range e.seen.Connections {
		e.seen.Connections[i].Asked = c.Asked || slices.Contains(ids, c.ID)
	}
	return nil
}

func (e *emptied) EvictReplicas(context.Context, fleet.NodeName) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.say("evict")
	e.seen.Live = 0
	return nil
}

func (e *emptied) CutConnections(_ context.Context, _ fleet.NodeName, ids []fleet.ConnectionID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.say("cut")
	for i, c := range e.seen.Connections {
		if slices.Contains(ids, c.ID) {
			e.seen.Connections[i].State, e.seen.Connections[i].Reason = fleet.ConnectionDisconnected, fleet.DrainDeadline
		}
	}
	return nil
}

func (e *emptied) EndDrain(_ context.Context, end fleet.DrainEnd) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.say("end")
	if end.Operation != e.seen.Operation {
		return nil
	}
	e.ends = append(e.ends, end)
	e.waits = e.now().Sub(e.seen.Began)
	e.seen.Operation, e.seen.Wanted = "", false
	return nil
}

func (e *emptied) change(f func(s *fleet.DrainSeen)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.seen)
}

// failover stands for the door that moves a lease.
type failover func(ctx workflow.Context, to fleet.NodeName) error

// newDrain is the entity of plant-1-a's drain on a toy store, with a minute left.
func newDrain(t *testing.T, e *emptied, moves failover, stop func() (bool, error)) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	env := emptyEnv()
	e.now = env.Now
	e.seen.Node, e.seen.Site, e.seen.Operation, e.seen.Wanted = "plant-1-a", "plant-1", "op-1", true
	e.seen.Began, e.seen.Deadline = env.Now(), env.Now().Add(time.Minute)
	for name, f := range workers.Workflows() {
		if name != "FailoverSite" {
			env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
		}
	}
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in map[string]string) (workflows.DoorResult, error) {
		require.Equal(t, []string{"plant-1", "plant-1-a"}, []string{in["site"], in["drainOf"]})
		return workflows.DoorResult{}, moves(ctx, fleet.NodeName(in["to"]))
	}, workflow.RegisterOptions{Name: "FailoverSite"})
	env.RegisterActivity(&activities.Drains{Store: e, Signer: silent{}, Doors: silent{}})
	env.RegisterActivityWithOptions(func(_ context.Context, in map[string]any) (map[string]any, error) {
		require.Equal(t, []any{"plant-1", ""}, []any{in["site"], in["to"]})
		released, err := stop()
		return map[string]any{"released": released, "reason": "still stopping"}, err
	}, activity.RegisterOptions{Name: "HandOver"})
	return env
}

func drainEnded(t *testing.T, env *testsuite.TestWorkflowEnvironment, e *emptied) fleet.DrainEnd {
	t.Helper()
	env.ExecuteWorkflow(workflows.TypeDrain, workflows.DrainInput{Node: "plant-1-a"})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	require.NotEmpty(t, e.ends)
	return e.ends[len(e.ends)-1]
}

func linked(inFlight int) []fleet.DrainConnection {
	return []fleet.DrainConnection{{ID: "c1", Provider: "plant-1-a", State: fleet.ConnectionActive, InFlight: inFlight}}
}

// works acks, finishes one thing a look, and closes.
func works(s *fleet.DrainSeen) {
	for i := range s.Connections {
		c := &s.Connections[i]
		switch {
		case !c.Asked || !c.State.Live():
		case !c.Acked:
			c.Acked, c.State = true, fleet.ConnectionDraining
		case c.InFlight > 0:
			c.InFlight--
		default:
			c.State, c.Reason = fleet.ConnectionDisconnected, fleet.StreamClosed
		}
	}
}

func noFailover(workflow.Context, fleet.NodeName) error { return errors.New("nobody asked for it") }
func noStop() (bool, error)                             { return false, errors.New("nobody asked for it") }

func TestDrainNode(t *testing.T) {
	t.Parallel()

	t.Run("asks, counts down, and ends when the node has closed", func(t *testing.T) { // C12, C23, C27, X8
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(5)}, work: works, away: 3}
		env := newDrain(t, e, noFailover, noStop)
		env.RegisterDelayedCallback(func() {
			v, err := env.QueryWorkflow(workflows.QueryStatus)
			require.NoError(t, err)
			var s workflows.DrainStatus
			require.NoError(t, v.Get(&s))
			require.Equal(t, []any{"in_flight", fleet.DrainDraining}, []any{s.Next.Rule, s.Next.Phase})
			require.Positive(t, s.Seen.Connections[0].InFlight)
		}, 9*time.Second)
		end := drainEnded(t, env, e)
		require.Equal(t, []any{fleet.OperationSucceeded, "drained", fleet.OperationID("op-1")}, []any{end.State, end.Reason, end.Operation})
		require.Equal(t, []string{"ask", "end"}, e.did)
		require.Subset(t, e.notes, []string{"in_flight"}, "people are told what it waits for")
	})

	t.Run("cuts a node that hangs at the deadline, not before", func(t *testing.T) { // C13, C66, C67, X6
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(2)}}
		end := drainEnded(t, newDrain(t, e, noFailover, noStop), e)
		require.Equal(t, []any{fleet.OperationSucceeded, "cut_off"}, []any{end.State, end.Reason})
		require.Contains(t, end.Message, "2 in flight")
		require.Equal(t, []string{"ask", "cut", "end"}, e.did)
		require.GreaterOrEqual(t, e.waits, time.Minute)
		require.Less(t, e.waits, time.Minute+5*time.Second)
	})

	t.Run("has the peer take over before it breaks anything", func(t *testing.T) {
		t.Parallel()
		e := &emptied{work: works, seen: fleet.DrainSeen{
			Connections: linked(1), Holds: true, Running: 3, Peer: &fleet.DrainPeer{Node: "plant-1-b", Ready: true},
		}}
		tries := 0
		env := newDrain(t, e, func(ctx workflow.Context, to fleet.NodeName) error {
			tries++
			require.Equal(t, fleet.NodeName("plant-1-b"), to)
			require.NoError(t, workflow.Sleep(ctx, 2*time.Second))
			if tries == 1 {
				return temporal.NewNonRetryableApplicationError("the peer votes no", "failed", nil)
			}
			e.change(func(s *fleet.DrainSeen) { s.Holds, s.Running = false, 0; e.say("moved") })
			return nil
		}, noStop)
		end := drainEnded(t, env, e)
		require.Equal(t, "drained", end.Reason)
		require.Equal(t, []string{"moved", "ask", "end"}, e.did)
		require.Equal(t, 2, tries)
		require.Contains(t, e.notes, "lease_moving")
		require.Contains(t, e.notes, "move_lease_again")
	})

	t.Run("asks again after a rest, however the database's clock differs from Temporal's", func(t *testing.T) {
		t.Parallel()
		for _, ahead := range []time.Duration{0, -time.Hour, time.Hour} {
			e := &emptied{work: works, seen: fleet.DrainSeen{
				Connections: linked(1), Holds: true, Running: 3, Peer: &fleet.DrainPeer{Node: "plant-1-b", Ready: true},
			}}
			var tries []time.Time
			env := newDrain(t, e, func(ctx workflow.Context, _ fleet.NodeName) error {
				tries = append(tries, workflow.Now(ctx))
				if len(tries) < 3 {
					return temporal.NewNonRetryableApplicationError("the peer votes no", "failed", nil)
				}
				e.change(func(s *fleet.DrainSeen) { s.Holds, s.Running = false, 0 })
				return nil
			}, noStop)
			e.now = func() time.Time { return env.Now().Add(ahead) }
			e.seen.Began, e.seen.Deadline = e.now(), e.now().Add(time.Minute)
			require.Equal(t, "drained", drainEnded(t, env, e).Reason, ahead)
			require.Len(t, tries, 3, ahead)
			for i := range 2 {
				rest := tries[i+1].Sub(tries[i])
				require.GreaterOrEqual(t, rest, 10*time.Second, ahead)
				require.Less(t, rest, 20*time.Second, ahead)
			}
		}
	})

	t.Run("does not end well when the peer never takes what was given back", func(t *testing.T) { // X5, X6
		t.Parallel()
		for forced, want := range map[bool][]any{
			false: {fleet.OperationFailed, "not_taken_over"}, true: {fleet.OperationSucceeded, "cut_off"},
		} {
			e := &emptied{seen: fleet.DrainSeen{
				Connections: linked(0), Holds: true, Running: 3, Force: forced, Peer: &fleet.DrainPeer{Node: "plant-1-b", Ready: true},
			}}
			env := newDrain(t, e, func(workflow.Context, fleet.NodeName) error {
				e.change(func(s *fleet.DrainSeen) {
					s.Holds, s.Vacant, s.Running, s.Peer = false, true, 0, &fleet.DrainPeer{Node: "plant-1-b"}
				})
				return temporal.NewNonRetryableApplicationError("node plant-1-b was not reached", "failed", nil)
			}, noStop)
			end := drainEnded(t, env, e)
			require.Equal(t, want, []any{end.State, end.Reason})
			if !forced {
				require.Contains(t, end.Message, "node plant-1-b was not reached")
				require.Contains(t, end.Message, "holdfast uncordon plant-1-a")
				require.Equal(t, []string{"end"}, e.did, "its connection is left alone")
			}
		}
	})

	t.Run("waits for replicas to move, and ends them by force at the deadline", func(t *testing.T) { // S110
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(0), Replicas: 2, Live: 2}}
		end := drainEnded(t, newDrain(t, e, noFailover, noStop), e)
		require.Equal(t, []any{fleet.OperationFailed, "replicas_not_moved"}, []any{end.State, end.Reason})
		require.Contains(t, e.notes, "replicas_moving")

		e = &emptied{seen: fleet.DrainSeen{Connections: linked(0), Replicas: 2, Live: 2, Force: true}}
		e.work = func(s *fleet.DrainSeen) {
			if s.Live == 0 {
				s.Replicas = 0
			}
			works(s)
		}
		end = drainEnded(t, newDrain(t, e, noFailover, noStop), e)
		require.Equal(t, fleet.OperationSucceeded, end.State)
		require.Equal(t, []string{"evict", "ask"}, e.did[:2])
	})

	t.Run("leaves running what has no other place, unless it is forced", func(t *testing.T) {
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(0), Holds: true, Running: 3}}
		end := drainEnded(t, newDrain(t, e, noFailover, noStop), e)
		require.Equal(t, []any{fleet.OperationFailed, "no_other_place"}, []any{end.State, end.Reason})
		require.Equal(t, []string{"end"}, e.did)
	})

	t.Run("waits for a peer that never answers until the deadline", func(t *testing.T) { // X6
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(0), Holds: true, Running: 3, Peer: &fleet.DrainPeer{Node: "plant-1-b", Ready: true}}}
		env := newDrain(t, e, func(ctx workflow.Context, _ fleet.NodeName) error { return workflow.Sleep(ctx, time.Hour) }, noStop)
		end := drainEnded(t, env, e)
		require.Equal(t, []any{fleet.OperationFailed, "lease_not_moved"}, []any{end.State, end.Reason})
		require.Less(t, e.waits, time.Minute+5*time.Second)
		require.Equal(t, []string{"end"}, e.did)
	})

	t.Run("stops what runs when it is forced, then drains", func(t *testing.T) {
		t.Parallel()
		e := &emptied{work: works, seen: fleet.DrainSeen{Connections: linked(1), Holds: true, Running: 3, Force: true}}
		end := drainEnded(t, newDrain(t, e, noFailover, func() (bool, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.say("stopped")
			return true, nil
		}), e)
		require.Equal(t, "drained", end.Reason)
		require.Equal(t, []string{"stopped", "ask", "end"}, e.did)
	})

	t.Run("says so when a node does not stop what runs", func(t *testing.T) {
		t.Parallel()
		for want, stop := range map[string]func() (bool, error){
			"still stopping": func() (bool, error) { return false, nil },
			"it is broken": func() (bool, error) {
				return false, temporal.NewNonRetryableApplicationError("it is broken", "internal", nil)
			},
		} {
			e := &emptied{seen: fleet.DrainSeen{Connections: linked(1), Holds: true, Running: 3, Force: true}}
			end := drainEnded(t, newDrain(t, e, noFailover, stop), e)
			require.Equal(t, []any{fleet.OperationFailed, "not_stopped"}, []any{end.State, end.Reason})
			require.Contains(t, end.Message, want)
			require.Equal(t, []string{"end"}, e.did, "its connection is left alone")
		}
	})

	t.Run("goes by an earlier deadline at once", func(t *testing.T) {
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(1)}}
		env := newDrain(t, e, noFailover, noStop)
		env.RegisterDelayedCallback(func() {
			e.change(func(s *fleet.DrainSeen) { s.Operation, s.Deadline, s.Connections[0].Asked = "op-2", env.Now(), false })
			env.SignalWorkflow(workflows.SignalWake, nil)
		}, 10*time.Second)
		end := drainEnded(t, env, e)
		require.Equal(t, []any{"cut_off", fleet.OperationID("op-2")}, []any{end.Reason, end.Operation})
		require.Less(t, e.waits, 15*time.Second)
	})

	t.Run("ends without a word when nobody waits any more", func(t *testing.T) { // X7
		t.Parallel()
		e := &emptied{seen: fleet.DrainSeen{Connections: linked(1)}}
		env := newDrain(t, e, noFailover, noStop)
		env.RegisterDelayedCallback(func() {
			e.change(func(s *fleet.DrainSeen) { s.Wanted = false })
			env.SignalWorkflow(workflows.SignalWake, nil)
		}, 10*time.Second)
		end := drainEnded(t, env, e)
		require.Equal(t, []any{fleet.OperationCancelled, "nobody_waits"}, []any{end.State, end.Reason})
		require.Less(t, e.waits, 15*time.Second)
	})

	t.Run("serves a drain that is asked for while it ends", func(t *testing.T) {
		t.Parallel()
		e := &emptied{}
		env := newDrain(t, e, noFailover, noStop)
		once := false
		e.work = func(s *fleet.DrainSeen) {
			if s.Operation == "" && !once {
				once = true
				s.Operation, s.Wanted, s.Began = "op-2", true, s.Began.Add(time.Second)
				s.Connections = linked(1)
			}
			works(s)
		}
		end := drainEnded(t, env, e)
		require.Len(t, e.ends, 2)
		require.Equal(t, []any{"drained", fleet.OperationID("op-2")}, []any{end.Reason, end.Operation})
	})
}
