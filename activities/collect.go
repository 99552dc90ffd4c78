package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Collected counts the rows that one run removed, by kind. More says that it ended before
// everything was looked at: the next run goes on.
type Collected struct {
	Removed map[fleet.CollectedKind]int64 `json:"removed"`
	More    bool                          `json:"more,omitempty"`
}

const (
	// collectTurns bounds the pages of one kind in one run.
	collectTurns = 2000
	// collectSpare is what a run leaves of its time, for the last page and the answer.
	collectSpare = 30 * time.Second
)

// CollectGarbage takes a page of each kind in turn, so that none waits for another with a
// long backlog, until there is no more or the time is up.
func (s *Sweeps) CollectGarbage(ctx context.Context) (Collected, error) {
	out := Collected{Removed: map[fleet.CollectedKind]int64{}}
	kinds := fleet.CollectedKinds()
	for range collectTurns {
		var again []fleet.CollectedKind
		for _, kind := range kinds {
			removed, more, err := s.Collector.CollectPage(ctx, kind, s.Keep)
			if err != nil {
				return out, fail(ctx, err)
			}
			out.Removed[kind] += removed
			if s.Collected != nil {
				s.Collected(kind, removed)
			}
			if more {
				again = append(again, kind)
			}
			activity.RecordHeartbeat(ctx)
		}
		if kinds = again; len(kinds) == 0 {
			break
		}
		if until, limited := ctx.Deadline(); limited && time.Until(until) < collectSpare {
			break
		}
	}
	out.More = len(kinds) > 0
	return out, nil
}
