package workflows

import (
	"fmt"
	"strings"
	"time"

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
}

var batches *activities.Batches

// FleetSite delivers one site's part of a wave, batch by batch: persist, tell the active,
// tell the standbys, end (N98). It stops after a batch when its change does not go on.
// docs/batches.md draws it.
func FleetSite(ctx workflow.Context, in FleetSiteInput) (FleetSiteResult, error) {
	s := &fleetSite{in: in, done: in.Before, absent: map[fleet.NodeName]bool{}}
	s.in.Limits = in.Limits.orDefault()
	for n := 1; ; n++ {
		workflow.SetCurrentDetails(ctx, s.details())
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			in.Before = s.done
			return s.done, workflow.NewContinueAsNewError(ctx, TypeFleetSite, in)
		}
		next, err := s.next(ctx, n)
		if err != nil || next.Looked == 0 {
			return s.done, err
		}
		if next.Claimed == 0 {
			continue // every one of them was done with as it was looked at
		}
		if err := s.batch(ctx, next); err != nil {
			return s.done, err
		}
	}
}

type fleetSite struct {
	in     FleetSiteInput
	done   FleetSiteResult
	absent map[fleet.NodeName]bool // that were not there for the last batch
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

// batch tells the nodes of one batch, the active first, and ends it.
func (s *fleetSite) batch(ctx workflow.Context, b activities.BatchNext) error {
	command := b.Command
	for i, node := range b.Nodes {
		if i > 0 {
			var err error
			if command, err = s.prepare(ctx, b.ID, node); err != nil {
				return err
			}
		}
		if err := s.tell(ctx, b.ID, node, command); err != nil {
			return err
		}
	}
	var end activities.BatchEnd
	if err := insist(ctx, batches.EndBatch, b.ID, &end); err != nil {
		return err
	}
	s.done.Batches++
	s.done.Succeeded += end.Succeeded
	s.done.Failed += end.Failed
	s.done.Staged += end.Staged
	return nil
}

// tell has a node carry the batch out, again with a new token while something of it failed
// only by communication.
func (s *fleetSite) tell(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName, command *fleet.BatchCommand) error {
	for try := 0; command != nil && try < s.in.Limits.Tries; try++ {
		failed, err := s.ask(ctx, node, *command)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && !failed {
			return nil
		}
		if err != nil {
			if err := s.miss(ctx, id, node, err); err != nil {
				return err
			}
		}
		if command, err = s.prepare(ctx, id, node); err != nil || command == nil {
			return err
		}
		if err := workflow.Sleep(ctx, storeGap<<try); err != nil {
			return err
		}
	}
	return nil
}

// absentTake is how long a node that was not there for a batch may take to take the next.
const absentTake = 5 * time.Second

// ask gives the batch to a node, and says whether some of its items failed there.
func (s *fleetSite) ask(ctx workflow.Context, node fleet.NodeName, command fleet.BatchCommand) (failed bool, err error) {
	command.IdleTimeout = s.in.Limits.Request
	take := s.in.Limits.Request
	if s.absent[node] {
		take = min(take, absentTake)
	}
	ctx = workflow.WithActivityOptions(ctx, notifyOptions(node, take, s.in.Limits.Total))
	var out fleet.BatchOutcome
	err = workflow.ExecuteActivity(ctx, nodes.RefreshBatch, command).Get(ctx, &out)
	return out.Failed > 0, err
}

// miss writes down why a node's word is missing.
func (s *fleetSite) miss(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName, why error) error {
	state, kind, message := classify(why, node)
	s.absent[node] = kind == fleet.Unavailable
	in := activities.MissBatch{ID: id, Node: node, State: state, Reason: kind, Message: message}
	return insist(ctx, batches.MissBatch, in, nil)
}

// prepare gives the next notify of a node, nil when there is nothing left to tell it.
func (s *fleetSite) prepare(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName) (*fleet.BatchCommand, error) {
	var out activities.PreparedBatch
	in := activities.PrepareBatch{ID: id, Node: node, Tries: s.in.Limits.Tries, TTL: s.in.Limits.PendingTTL}
	err := insist(ctx, batches.PrepareBatch, in, &out)
	return out.Command, err
}

// details are what people read in Temporal Web.
func (s *fleetSite) details() string {
	d := s.done
	return fmt.Sprintf("**%s** %s: wave %d of fleet change %s, %d batches, %d succeeded, %d failed, %d staged",
		s.in.Mode, s.in.Site, s.in.Wave, s.in.Fleet, d.Batches, d.Succeeded, d.Failed, d.Staged)
}

func compareNames[T ~string](a, b T) int { return strings.Compare(string(a), string(b)) }
