package region

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/workflows"
)

// builds are the builds with a worker, as known to one sweep.
type builds struct {
	read  func(context.Context) ([]string, error)
	known []string
}

// serve reports whether a build has a worker. An unknown one may have started since.
func (b *builds) serve(ctx context.Context, build string) (_ bool, err error) {
	if slices.Contains(b.known, build) {
		return true, nil
	}
	b.known, err = b.read(ctx)
	return slices.Contains(b.known, build), err
}

// strandedAtOnce limits the runs that one sweep ends; the next sweep continues.
const strandedAtOnce = 1000

// stranded ends open runs that no worker can continue and that serve no operation: doors that wait for one, and
// entities that wait for a time. These continue in a new run.
func (s *operationsSweep) stranded(ctx context.Context, live *builds, beat func(), out *activities.SweptOperations) (err error) {
	if live.known, err = live.read(ctx); err != nil {
		return err
	}
	var page []byte
	for {
		runs, next, err := s.flows.PinnedElsewhere(ctx, live.known, page)
		if err != nil {
			return err
		}
		for _, run := range runs {
			if out.Stranded == strandedAtOnce {
				return nil
			}
			if err := s.endStranded(ctx, run, live.serve, out); err != nil {
				return err
			}
			beat()
		}
		if page = next; len(page) == 0 {
			return nil
		}
	}
}

func (s *operationsSweep) endStranded(ctx context.Context, of workflows.OpenRun, live workflows.Live, out *activities.SweptOperations) error {
	state, err := s.flows.RunState(ctx, of.Workflow, of.Run, live)
	if err != nil || state != decide.RunStranded {
		return err
	}
	asked, err := s.store.OperationOfDoor(ctx, postgres.Door{Workflow: of.Workflow, Run: of.Run})
	if err != nil {
		return err
	}
	if err := s.flows.EndStranded(ctx, of.Workflow, of.Run, lastWord(asked)); err != nil {
		return err
	}
	out.Stranded++
	if _, _, is := fleet.ParseSubject(of.Workflow); is {
		return s.waker.Wake(ctx, of.Workflow)
	}
	return nil
}

// lastWord is for callers that wait for a door that is ended: its operation. It is empty for a run that is not a
// door, or that continues elsewhere.
func lastWord(asked *postgres.Operation) string {
	switch {
	case asked == nil:
		return ""
	case !asked.State.Ended():
		return "; its operation goes on: holdfast get operation " + string(asked.ID)
	case asked.Reason == "":
		return "; its operation " + string(asked.ID) + " ended: " + string(asked.State)
	}
	return "; its operation " + string(asked.ID) + " ended: " + string(asked.State) + ", " + asked.Reason
}
