package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/workflows"
)

// operationsSweep closes or moves what lost its workflow (X25).
type operationsSweep struct {
	store  *store.Store
	flows  *workflows.Client
	waker  *waker
	doors  *tellers
	live   func(context.Context) ([]string, error) // the builds with a worker
	lately func(context.Context) ([]string, error) // and those that had one a moment ago
	closed func([]fleet.OperationEnded)            // gets the ended operations of deployments
}

const (
	sweepPage  = 100
	sweepOlder = 3 * time.Second
)

// SweepOperations checks every subject with something under way, once.
func (s *operationsSweep) SweepOperations(ctx context.Context, beat func()) (activities.SweptOperations, error) {
	var out activities.SweptOperations
	known := &builds{read: s.live}
	live := known.serve
	var after deliveries.OpenSubject
	for {
		page, err := s.store.OpenSubjects(ctx, after, sweepOlder, sweepPage)
		if err != nil {
			return out, err
		}
		for _, o := range page {
			if err := s.look(ctx, s.instance(o), live, &out); err != nil {
				return out, err
			}
			beat()
		}
		if len(page) < sweepPage {
			break
		}
		after = page[len(page)-1]
	}
	if err := s.batches(ctx, live, beat, &out); err != nil {
		return out, err
	}
	for _, kind := range fleet.EntityKinds() {
		if kind == fleet.EntityInstance { // looked at above, with what is open or owed
			continue
		}
		if err := s.entities(ctx, kind, live, beat, &out); err != nil {
			return out, err
		}
	}
	overdue, ended, err := s.store.EndOverdue(ctx, sweepPage)
	s.closed(ended)
	if out.Overdue = overdue; err != nil {
		return out, err
	}
	if out.Told, err = s.doors.tell(ctx, ""); err != nil {
		return out, err
	}
	return out, s.stranded(ctx, &builds{read: s.lately}, beat, &out)
}

// suspect is something under way, and the last run that served it. Lose closes what the run leaves; with end
// running it only detaches it.
type suspect struct {
	subject, run string
	lose         func(ctx context.Context, end fleet.OperationState, reason string) error
}

func (s *operationsSweep) look(ctx context.Context, of suspect, live workflows.Live, out *activities.SweptOperations) error {
	out.Looked++
	state, err := s.flows.RunState(ctx, of.subject, of.run, live)
	if err != nil {
		return err
	}
	end := fleet.OperationRunning
	switch decide.LostOperation(state) {
	case decide.LostKeep:
		return nil
	case decide.LostClose:
		end = fleet.OperationFailed
		out.Closed++
	case decide.LostMove:
		out.Moved++
	}
	stranded := of.run
	if state == decide.RunUnserved {
		if stranded, err = s.flows.StrandedRun(ctx, of.subject, live); err != nil {
			return err
		}
	}
	if state == decide.RunStranded || state == decide.RunUnserved && stranded != "" {
		if err := s.flows.EndStranded(ctx, of.subject, stranded, ""); err != nil {
			return err
		}
	}
	if err := of.lose(ctx, end, "workflow_"+string(state)); err != nil {
		return err
	}
	return s.waker.Wake(ctx, of.subject)
}

func (s *operationsSweep) instance(o deliveries.OpenSubject) suspect {
	return suspect{o.Name(), o.Run, func(ctx context.Context, end fleet.OperationState, reason string) error {
		return s.store.CloseLost(ctx, o, end, reason)
	}}
}

// entities looks at all of one kind that serve operations.
func (s *operationsSweep) entities(ctx context.Context, kind fleet.EntityKind, live workflows.Live, beat func(), out *activities.SweptOperations) error {
	after := ""
	for {
		open, err := s.store.OpenEntities(ctx, kind, after, sweepOlder, sweepPage)
		if err != nil {
			return err
		}
		for _, o := range open {
			if err := s.look(ctx, s.served(kind, o), live, out); err != nil {
				return err
			}
			beat()
			after = o.Subject
		}
		if len(open) < sweepPage {
			return nil
		}
	}
}

func (s *operationsSweep) served(kind fleet.EntityKind, o postgres.OpenEntity) suspect {
	return suspect{o.Subject, o.Run, func(ctx context.Context, end fleet.OperationState, reason string) error {
		if end == fleet.OperationRunning {
			return nil
		}
		ended, err := s.store.CloseEntityOperations(ctx, o, reason)
		if err == nil && kind == fleet.EntityDeployment {
			s.closed(ended)
		}
		return err
	}}
}

// batches gives up batches whose workflow is gone or whose deadline passed: their deliveries are settled like any
// others (N98).
func (s *operationsSweep) batches(ctx context.Context, live workflows.Live, beat func(), out *activities.SweptOperations) error {
	var after postgres.Place
	for {
		open, err := s.store.OpenBatches(ctx, after, sweepOlder, sweepPage)
		if err != nil {
			return err
		}
		for _, b := range open {
			if err := s.batch(ctx, b, live, out); err != nil {
				return err
			}
			beat()
			after = b.Place()
		}
		if len(open) < sweepPage {
			return nil
		}
	}
}

func (s *operationsSweep) batch(ctx context.Context, b deliveries.OpenBatch, live workflows.Live, out *activities.SweptOperations) error {
	out.Looked++
	state, err := s.flows.RunState(ctx, b.Workflow, b.Run, live)
	if err != nil {
		return err
	}
	reason := "workflow_" + string(state)
	switch {
	case b.Overdue:
		reason = "deadline"
	case decide.LostOperation(state) == decide.LostKeep:
		return nil
	case state == decide.RunStranded:
		if err := s.flows.EndStranded(ctx, b.Workflow, b.Run, ""); err != nil {
			return err
		}
	}
	out.Moved++
	return s.store.LoseBatch(ctx, b.ID, reason)
}

// lostAfter is how long a node may be disconnected and still be compared by the schedule; one that reconnects is
// compared when it starts.
const lostAfter = time.Hour

// nodeSweep finds the nodes to compare.
type nodeSweep struct {
	store              *store.Store
	full, settle, lost time.Duration
}

// NodesToReconcile returns one page of a shard.
func (n *nodeSweep) NodesToReconcile(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.NodeName, error) {
	return n.store.NodesToReconcile(ctx, reconcile.NodeShard{
		Shard: shard, Shards: shards, Full: n.full, Settle: n.settle, Lost: n.lost,
	}, after, limit)
}
