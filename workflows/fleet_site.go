package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FleetSiteInput is one site's part of a wave.
type FleetSiteInput struct {
	Fleet  fleet.FleetName `json:"fleet"`
	Run    int64           `json:"run"`
	Wave   int             `json:"wave"`
	Site   fleet.SiteName  `json:"site"`
	Mode   decide.SiteMode `json:"mode"`
	Size   int             `json:"size"`
	Limits DeliveryLimits  `json:"limits,omitzero"`
	// Before counts what earlier runs of it did.
	Before FleetSiteResult `json:"before,omitzero"`
}

// FleetSiteResult counts batches, and how their items ended.
type FleetSiteResult struct {
	Batches   int `json:"batches"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Staged    int `json:"staged,omitempty"`
	// Closed is set when it ended before its part was done, because the site's window closed.
	Closed bool `json:"closed,omitempty"`
}

// FleetSite delivers one site's part of a wave, batch by batch (N98). It stops after a batch
// when its change does not go on, or when the site's window has closed (N100).
func FleetSite(ctx workflow.Context, in FleetSiteInput) (FleetSiteResult, error) {
	s := &fleetSite{in: in, done: in.Before, talk: newBatchTalk(in.Limits)}
	s.in.Limits = s.talk.limits
	for n := 1; ; n++ {
		workflow.SetCurrentDetails(ctx, s.details())
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			in.Before = s.done
			return s.done, workflow.NewContinueAsNewError(ctx, TypeFleetSite, in)
		}
		next, err := s.next(ctx, n)
		if err != nil || next.Looked == 0 {
			s.done.Closed = next.Closed
			return s.done, err
		}
		if next.Claimed > 0 { // else every one of them was done with as it was looked at
			err = s.batch(ctx, next)
		}
		if err != nil || next.Last {
			return s.done, err
		}
	}
}

type fleetSite struct {
	in   FleetSiteInput
	done FleetSiteResult
	talk *batchTalk
}

func (s *fleetSite) next(ctx workflow.Context, number int) (activities.BatchNext, error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	var out activities.BatchNext
	err := insist(ctx, batches.NextBatch, activities.NextBatch{
		Fleet: s.in.Fleet, FleetRun: s.in.Run, Wave: s.in.Wave, Site: s.in.Site, Mode: s.in.Mode, Size: s.in.Size,
		Workflow: info.ID, Run: info.RunID, Number: number,
		Total: s.in.Limits.Total, TTL: s.in.Limits.PendingTTL, Tries: s.in.Limits.Tries,
	}, &out)
	return out, err
}

func (s *fleetSite) batch(ctx workflow.Context, b activities.BatchNext) error {
	end, err := s.talk.deliver(ctx, b)
	if err != nil {
		return err
	}
	s.done.Batches++
	s.done.Succeeded += end.Succeeded
	s.done.Failed += end.Failed
	s.done.Staged += end.Staged
	return nil
}

// details are what people read in Temporal Web.
func (s *fleetSite) details() string {
	d := s.done
	return fmt.Sprintf("**%s** %s: wave %d of fleet change %s, %d batches, %d succeeded, %d failed, %d staged",
		s.in.Mode, s.in.Site, s.in.Wave, s.in.Fleet, d.Batches, d.Succeeded, d.Failed, d.Staged)
}

func compareNames[T ~string](a, b T) int { return strings.Compare(string(a), string(b)) }
