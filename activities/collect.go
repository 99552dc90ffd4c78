package activities

import (
	"context"
	"errors"
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
// long backlog, or for one that fails, until there is no more or the time is up.
func (s *Sweeps) CollectGarbage(ctx context.Context) (Collected, error) {
	out := Collected{Removed: map[fleet.CollectedKind]int64{}}
	kinds := fleet.CollectedKinds()
	var failures error
	for turn := 0; turn < collectTurns && len(kinds) > 0 && !s.timeIsUp(ctx); turn++ {
		var again []fleet.CollectedKind
		for _, kind := range kinds {
			removed, more, err := s.Collector.CollectPage(ctx, kind, s.Keep)
			failures = errors.Join(failures, err)
			out.Removed[kind] += removed
			if s.Collected != nil {
				s.Collected(kind, removed)
			}
			if more {
				again = append(again, kind)
			}
			activity.RecordHeartbeat(ctx)
		}
		kinds = again
	}
	out.More = len(kinds) > 0
	return out, fail(ctx, failures)
}

func (s *Sweeps) timeIsUp(ctx context.Context) bool {
	until, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && until.Sub(s.Now()) < collectSpare
}
