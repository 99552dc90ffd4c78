package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/workflows"
)

// operationsSweep closes or moves what lost its workflow (X25).
type operationsSweep struct {
	store    *postgres.Store
	flows    *workflows.Client
	entities *waker
	doors    *tellers
	stranded time.Duration
}

const (
	sweepPage  = 100
	sweepOlder = 3 * time.Second
)

// SweepOperations looks at every subject with something under way, once.
func (s *operationsSweep) SweepOperations(ctx context.Context, beat func()) (activities.SweptOperations, error) {
	var out activities.SweptOperations
	live, err := s.store.LiveBuilds(ctx, s.stranded.Seconds())
	if err != nil {
		return out, err
	}
	var after postgres.OpenSubject
	for {
		page, err := s.store.OpenSubjects(ctx, after, sweepOlder, sweepPage)
		if err != nil {
			return out, err
		}
		for _, o := range page {
			if err := s.look(ctx, o, live, &out); err != nil {
				return out, err
			}
			beat()
		}
		if len(page) < sweepPage {
			break
		}
		after = page[len(page)-1]
	}
	if out.Overdue, err = s.store.EndOverdue(ctx, sweepPage); err != nil {
		return out, err
	}
	out.Told, err = s.doors.tell(ctx, "")
	return out, err
}

func (s *operationsSweep) look(ctx context.Context, o postgres.OpenSubject, live []string, out *activities.SweptOperations) error {
	out.Looked++
	state, err := s.flows.RunState(ctx, o.Name(), o.Run, live)
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
	if state == decide.RunStranded {
		if err := s.flows.EndStranded(ctx, o.Name(), o.Run); err != nil {
			return err
		}
	}
	if err := s.store.CloseLost(ctx, o, end, "workflow_"+string(state)); err != nil {
		return err
	}
	return s.entities.Wake(ctx, o.Name())
}
