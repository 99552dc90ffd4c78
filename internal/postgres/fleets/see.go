package fleets

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SeeFleet makes the workflow run the newest run's current one, takes the operations and the
// outbox rows of the fleet change, and reads all that the decision looks at in one query.
// Whether a site is closed is for who can read time zones, by the windows.
func (s *Store) SeeFleet(ctx context.Context, v fleet.FleetVisit) (fleet.FleetSeen, error) {
	var seen fleet.FleetSeen
	var windows []fleet.Window
	subject := fleet.FleetSubject(v.Fleet)
	err := s.Tx(ctx, func(q *db.Queries) error {
		seen, windows = fleet.FleetSeen{}, nil
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.FleetKey(v.Fleet)}); err != nil {
			return err
		}
		if err := q.AttachFleetRun(ctx, db.AttachFleetRunParams{Fleet: string(v.Fleet), EntityRun: v.Run}); err != nil {
			return err
		}
		if err := postgres.Serve(ctx, q, postgres.Server{Run: v.Run, Build: v.Build}, subject); err != nil {
			return err
		}
		proving, err := judgeStarts(ctx, q, v.Fleet)
		if err != nil {
			return err
		}
		row, err := q.SeeFleet(ctx, db.SeeFleetParams{Fleet: string(v.Fleet), Subject: subject, MaxSites: fleet.MaxFleetSitesSeen})
		if err != nil {
			return err
		}
		err = errors.Join(json.Unmarshal(row.Seen, &seen), json.Unmarshal(row.Windows, &windows))
		seen.Proving, seen.ProvenAt = proving.count, proving.from
		return postgres.Unreadable("the run", err)
	})
	for i, at := range seen.Sites {
		if open, opens := decide.WindowAt(windows, at.Site, seen.At, time.LoadLocation); !open {
			seen.Sites[i].Closed, seen.Sites[i].Opens = true, opens
		}
	}
	return seen, err
}

// Now is what the database's clock shows: windows open and close by it, whichever server asks.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Q.Now(ctx)
	return now, err
}

// StagedFleetSites gives the sites at which the wave of a run has fetched what it may not switch
// to yet, and when that was looked at.
func (s *Store) StagedFleetSites(ctx context.Context, r FleetRun) ([]fleet.SiteName, time.Time, error) {
	row, err := s.Q.StagedFleetSites(ctx, db.StagedFleetSitesParams{Fleet: string(r.Fleet), Run: r.Run, Wave: postgres.WaveNumber(r.Wave)})
	sites := make([]fleet.SiteName, len(row.Sites))
	for i, name := range row.Sites {
		sites[i] = fleet.SiteName(name)
	}
	return sites, row.Now, err
}

// FleetTargets gives the next targets of a site by name, with what their changes are made
// from. A run that does not continue has none.
func (s *Store) FleetTargets(ctx context.Context, p FleetPage) ([]FleetTarget, error) {
	rows, err := s.Q.FleetTargetsPage(ctx, db.FleetTargetsPageParams{
		Fleet: string(p.Fleet), Run: p.Run, Wave: postgres.WaveNumber(p.Wave), Site: string(p.Site), State: string(p.State), MaxRows: postgres.WaveNumber(p.Limit),
	})
	if err != nil {
		return nil, err
	}
	out := make([]FleetTarget, len(rows))
	for i, r := range rows {
		if out[i], err = targetOf(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func targetOf(r db.FleetTargetsPageRow) (FleetTarget, error) {
	t := FleetTarget{
		Instance: fleet.InstanceName(r.Name), Project: fleet.ProjectName(r.Project), Generation: r.Generation, Revision: r.Revision,
	}
	if err := errors.Join(json.Unmarshal(r.Labels, &t.Labels), json.Unmarshal(r.Spec, &t.Spec)); err != nil {
		return t, postgres.Unreadable("target "+r.Name, err)
	}
	if t.Refused = refusedTarget(r); t.Refused != nil || r.Undoes == 0 || r.Revision != 0 {
		return t, nil
	}
	restored, err := postgres.Marked(r.RestoredSpec, r.Spec)
	if err != nil {
		return t, err
	}
	t.Restore = &FleetRestore{
		Spec: restored, RunJSON: r.Run, RunHash: postgres.HashText(r.RunHash),
		Content: fleet.Content{Kind: fleet.ContentKind(r.ContentKind), Hash: postgres.HashText(r.BodyHash), Size: r.Size},
	}
	return t, nil
}

// refusedTarget is why nothing can be written. What another caller released since is not
// taken back (stale); of what this run released itself the batch sees to that.
func refusedTarget(r db.FleetTargetsPageRow) error {
	switch {
	case !r.There || r.Project != r.FleetProject:
		return fleet.Errorf(fleet.NotFound, "instance %s not found", r.Name)
	case r.Deleting:
		return fleet.Errorf(fleet.Gone, "instance %s is being deleted", r.Name)
	case r.Undoes == 0 || r.Revision != 0:
		return nil
	case r.Desired != r.Undoes:
		return fleet.Errorf(fleet.Stale, "revision %d was released since", r.Desired)
	case r.Restores == 0:
		return fleet.Errorf(fleet.IllegalState, "it was never deployed before").WithHint("delete it, or deploy what it should hold")
	case r.Action == "":
		return fleet.Errorf(fleet.Gone, "revision %d is no longer stored", r.Restores).WithHint("deploy what it should hold")
	case r.Action == string(fleet.ActionDelete):
		return fleet.Errorf(fleet.IllegalState, "it was deleted before").WithHint("delete it, or deploy what it should hold")
	}
	return nil
}

// EndFleetTargets ends targets of a site that no batch has; one that ended or travels by now
// stays as it is.
func (s *Store) EndFleetTargets(ctx context.Context, name fleet.FleetName, run int64, site fleet.SiteName, ends []FleetOutcome) error {
	p := db.EndFleetTargetsParams{Fleet: string(name), Run: run, Site: string(site)}
	for _, e := range ends {
		p.Names, p.States = append(p.Names, string(e.Instance)), append(p.States, string(e.State))
		p.Reasons, p.Messages = append(p.Reasons, string(e.Reason)), append(p.Messages, e.Message)
	}
	if len(ends) == 0 {
		return nil
	}
	return s.Tx(ctx, func(q *db.Queries) error {
		return q.EndFleetTargets(ctx, p)
	})
}
