package copies

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// read finds what is here of objects.
func (a *applying) read(ctx context.Context, q *db.Queries, changes []fleet.CopyChange) error {
	if len(changes) == 0 {
		return nil
	}
	c := columnsOf(keysOf(changes))
	rows, err := q.HeldNow(ctx, db.HeldNowParams{Peer: string(a.peer), Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	if err != nil {
		return err
	}
	for _, r := range rows {
		key := fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}}
		a.marked[key], a.aside[key], a.pending[key], a.listed[key] = r.MarkedBy != "", r.Aside, r.Waits, r.Listed
		switch {
		case r.Copy != nil:
			var is row
			if err := json.Unmarshal(r.Copy, &is); err != nil {
				return postgres.Unreadable("a copy", err)
			}
			a.copies[key] = is.object()
			a.held[key] = decide.HeldCopy{Known: true, Owner: is.Owner, Version: a.copies[key].Version}
		case a.marked[key]:
			a.held[key] = decide.HeldCopy{
				Known: true, Gone: true, Deleted: r.Deleted, Owner: fleet.RegionName(r.MarkedBy), Version: fleet.CopyVersion{OwnerEpoch: r.MarkedEpoch, Number: r.MarkedNumber},
			}
		}
	}
	return nil
}

func (a *applying) wasRead(c fleet.CopyChange) bool {
	_, is := a.marked[c.Key]
	return is
}
