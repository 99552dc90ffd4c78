package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

type listFleetRunsInput struct {
	NameParam
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
}

type fleetRunsOutput struct{ Body api.List[api.FleetRun] }

type listFleetTargetsInput struct {
	NameParam
	Run    int64  `query:"run" minimum:"0" doc:"of this run; the newest by default"`
	State  string `query:"state" enum:"waiting,delivering,staged,succeeded,unchanged,superseded,failed"`
	Limit  int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
}

type fleetTargetsOutput struct{ Body api.List[api.FleetTarget] }

func (s *server) mountFleetReads() {
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, fleetPath+"/runs", "list-fleet-runs", "The runs of a fleet change, newest first"), s.listFleetRuns)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, fleetPath+"/targets", "list-fleet-targets", "The instances of a run, in the order of site and name"), s.listFleetTargets)
}

func (s *server) visibleFleet(ctx context.Context, name string) (fleet.FleetName, error) {
	_, err := s.visible(ctx, fleet.ObjectKey{Kind: fleet.KindFleet, Name: name})
	return fleet.FleetName(name), err
}

func (s *server) listFleetRuns(ctx context.Context, in *listFleetRunsInput) (*fleetRunsOutput, error) {
	name, err := s.visibleFleet(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	var before int64
	if place != "" {
		if before, err = strconv.ParseInt(place, 10, 64); err != nil || before <= 0 {
			return nil, badCursor(place)
		}
	}
	rows, err := s.store.ListFleetRuns(ctx, name, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(r fleets.FleetRun) string { return strconv.FormatInt(r.Run, 10) })
	out := &fleetRunsOutput{Body: api.List[api.FleetRun]{Items: make([]api.FleetRun, len(cut.Items)), Next: cut.Next}}
	for i, r := range cut.Items {
		out.Body.Items[i] = fleetRunView(r)
	}
	return out, nil
}

func fleetRunView(r fleets.FleetRun) api.FleetRun {
	return api.FleetRun{
		Run: r.Run, Generation: r.Generation, RollbackOf: r.RollbackOf, State: r.State, Reason: r.Reason, Message: r.Message,
		Cancelling: r.Cancel && r.State.Live(), Wave: r.Wave, Waves: r.Waves, Counts: r.Counts,
		RequestedBy: r.RequestedBy, CreatedAt: r.CreatedAt, Deadline: r.Deadline, EndedAt: r.EndedAt,
	}
}

// listFleetTargets lists the instances of one run; the cursor names it, so that a run which
// begins between two pages does not mix with it.
func (s *server) listFleetTargets(ctx context.Context, in *listFleetTargetsInput) (*fleetTargetsOutput, error) {
	name, err := s.visibleFleet(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	f := fleets.FleetTargetFilter{Fleet: name, Run: in.Run, State: fleet.FleetTargetState(in.State), Limit: in.Limit + 1}
	if err := targetPlace(in.Cursor, &f); err != nil {
		return nil, err
	}
	if in.Cursor == "" {
		run, err := s.store.GetFleetRun(ctx, name, in.Run)
		if err != nil {
			return nil, err
		}
		f.Run = run.Run
	}
	rows, err := s.store.ListFleetTargets(ctx, f)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(t fleets.FleetTargetView) string {
		return strings.Join([]string{strconv.FormatInt(f.Run, 10), string(t.Site), string(t.Instance)}, " ")
	})
	out := &fleetTargetsOutput{Body: api.List[api.FleetTarget]{Items: make([]api.FleetTarget, len(cut.Items)), Next: cut.Next}}
	for i, t := range cut.Items {
		out.Body.Items[i] = api.FleetTarget{
			Site: string(t.Site), Instance: string(t.Instance), Wave: t.Wave, State: t.State, Revision: t.Revision, Before: t.Before,
			Tries: t.Tries, Delivery: string(t.Delivery), Reason: t.Reason, Message: t.Message, UpdatedAt: t.Updated,
		}
	}
	return out, nil
}

func targetPlace(cursor string, f *fleets.FleetTargetFilter) error {
	place, err := placeOf(cursor)
	if err != nil || place == "" {
		return err
	}
	parts := strings.Split(place, " ")
	const runSiteAndName = 3
	if len(parts) != runSiteAndName {
		return badCursor(place)
	}
	run, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || run <= 0 || f.Run != 0 && f.Run != run {
		return badCursor(place)
	}
	if fleet.ValidateName("cursor", parts[1]) != nil || fleet.ValidateName("cursor", parts[2]) != nil {
		return badCursor(place)
	}
	f.Run, f.AfterSite, f.AfterName = run, fleet.SiteName(parts[1]), fleet.InstanceName(parts[2])
	return nil
}
