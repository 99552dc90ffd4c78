package postgres

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Event is one committed change.
type Event struct {
	Cursor     Cursor
	At         time.Time
	Type       string
	Key        fleet.ObjectKey
	Project    fleet.ProjectName
	UID        string
	Generation int64
	Actor      string
	Before     json.RawMessage
	After      json.RawMessage
	// Region created the object, if this is a copy; "" for an object of this region.
	Region string
	// Object is the object of this region as it was when ReadFeed read the event: with this change, or a newer one. It is nil when it was
	// gone, or the event is of its status.
	Object *fleet.Object
}

// Cursor is a place in the feed: the total order of all committed changes.
type Cursor struct {
	Era, Xid, Seq int64
}

// String is the cursor as an event id.
func (c Cursor) String() string { return fmt.Sprintf("%d.%d.%d", c.Era, c.Xid, c.Seq) }

// ParseCursor reads an event id.
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	n, err := fmt.Sscanf(s, "%d.%d.%d", &c.Era, &c.Xid, &c.Seq)
	if err != nil || n != 3 || c.String() != s || c.Era < 0 || c.Xid < 0 || c.Seq < 0 {
		return Cursor{}, fleet.Errorf(fleet.Invalid, "invalid event id %.60q", s).At("Last-Event-ID")
	}
	return c, nil
}

// PlaceOfToken reads the place in the feed from the token of a watch: the filter, the era and the place.
func PlaceOfToken(text string) (Cursor, bool) {
	at, _, is := readToken(text)
	return at, is
}

// readToken reads the place of a token, and the random id of its era.
func readToken(text string) (at Cursor, era string, is bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.Split(string(raw), " ")
	if err != nil || len(parts) != 3 {
		return Cursor{}, "", false
	}
	at, err = ParseCursor(parts[2])
	return at, parts[1], err == nil
}

// ReadFeed gives what follows a cursor, oldest first: only changes below the oldest
// transaction still running, so that none that commits late is ever passed over (X24). It
// is Gone when some of what follows has been collected.
func (s *Store) ReadFeed(ctx context.Context, after Cursor, limit int32) ([]Event, error) {
	rows, err := s.Q.ReadFeed(ctx, db.ReadFeedParams{Era: after.Era, Xid: uint64(after.Xid), Seq: after.Seq, MaxRows: limit}) //nolint:gosec // never negative
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 { // also where there is a gap: the query sees both at once
		return nil, s.FeedKept(ctx, after)
	}
	out := make([]Event, len(rows))
	for i, r := range rows {
		out[i] = eventOf(db.ListEventsNewestFirstRow{
			Seq: r.Seq, Era: r.Era, Xid: r.Xid, At: r.At, Type: r.Type, Kind: r.Kind, Project: r.Project, Scope: r.Scope, Name: r.Name, Uid: r.Uid,
			Generation: r.Generation, Actor: r.Actor, Before: r.Before, After: r.After, Region: r.Region,
		})
		if out[i].Object, err = objectIn(r.Object); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// FeedKept is Gone unless all that follows a cursor is kept, and what is before it still holds: a restore undoes events,
// and their places are taken by others.
func (s *Store) FeedKept(ctx context.Context, after Cursor) error {
	r, err := s.Q.FeedHorizon(ctx)
	if err != nil {
		return err
	}
	if first := Cursor(r); after.Before(first) {
		return fleet.Errorf(fleet.Gone, "some of the events after %s are no longer stored; the oldest are after %s", after, first).
			At("Last-Event-ID").
			WithHint("read the objects again (holdfast get), then watch without this event id")
	}
	if after == (Cursor{}) {
		return nil
	}
	end, err := s.eraEnd(ctx, after.Era)
	if err == nil && end.Before(after) {
		return fleet.Errorf(fleet.Gone, "there is no event %s: it was undone by a restore, or never was", after).At("Last-Event-ID").
			WithHint("read the objects again (holdfast get), then watch without this event id")
	}
	return err
}

// eraEnd is the last place of an era, of the current one the place after all that is committed now.
func (s *Store) eraEnd(ctx context.Context, era int64) (Cursor, error) {
	end, err := s.FeedEnd(ctx)
	if err != nil || end.Era <= era {
		return end, err
	}
	r, err := s.Q.EndedEra(ctx, era)
	if NoRows(err) { // before eras were recorded: nothing is known of it
		return Cursor{}, nil
	}
	return Cursor{Era: era, Xid: r.Xid, Seq: r.Seq}, err
}

// Before reports whether c is a place before o.
func (c Cursor) Before(o Cursor) bool {
	return cmp.Or(cmp.Compare(c.Era, o.Era), cmp.Compare(c.Xid, o.Xid), cmp.Compare(c.Seq, o.Seq)) < 0
}

// FeedEnd is the place after all that is committed now.
func (s *Store) FeedEnd(ctx context.Context) (Cursor, error) {
	r, err := s.Q.FeedEnd(ctx)
	return Cursor{Era: r.Era, Xid: max(0, r.Xid-1), Seq: math.MaxInt64}, err
}

// heldBackSQL is here because sqlc does not know the view. Of a transaction of another role, Postgres does not say when it began.
const heldBackSQL = `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - a.xact_start)), 0)::float8
	FROM pg_stat_activity a WHERE a.backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid`

// FeedHeldBack is how long ago the oldest transaction began that has an id and still runs: the feed has nothing of what was
// committed since.
func (s *Store) FeedHeldBack(ctx context.Context) (time.Duration, error) {
	var seconds float64
	err := s.Pool.QueryRow(ctx, heldBackSQL).Scan(&seconds)
	return time.Duration(max(0, seconds) * float64(time.Second)), failed("the transactions under way", err)
}

// ListEvents lists newest first, before a cursor (zero is the end).
func (s *Store) ListEvents(ctx context.Context, before Cursor, limit int32) ([]Event, error) {
	if before == (Cursor{}) {
		before = Cursor{Era: math.MaxInt64, Xid: math.MaxInt64, Seq: math.MaxInt64}
	}
	rows, err := s.Q.ListEventsNewestFirst(ctx, db.ListEventsNewestFirstParams{
		Era: before.Era, Xid: uint64(before.Xid), Seq: before.Seq, MaxRows: limit, //nolint:gosec // never negative
	})
	if err != nil {
		return nil, err
	}
	out := make([]Event, len(rows))
	for i, r := range rows {
		out[i] = eventOf(r)
	}
	return out, nil
}

func eventOf(r db.ListEventsNewestFirstRow) Event {
	return Event{
		Cursor: Cursor{r.Era, r.Xid, r.Seq}, At: r.At, Type: r.Type,
		Key:     fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name},
		Project: fleet.ProjectName(r.Project), UID: r.Uid, Generation: r.Generation, Actor: r.Actor,
		Before: r.Before, After: r.After, Region: r.Region,
	}
}

// WatchedObjects pages through the objects of this region by key, for a watch: those of a project ("" for all) that a
// region has ("" for any).
func (s *Store) WatchedObjects(ctx context.Context, after fleet.ObjectKey, region fleet.RegionName, project fleet.ProjectName, limit int32) ([]fleet.Object, error) {
	rows, err := s.Q.WatchObjects(ctx, db.WatchObjectsParams{
		AfterKind: string(after.Kind), AfterScope: after.Scope, AfterName: after.Name, Region: string(region), Project: string(project), MaxRows: limit,
	})
	return objectsOf(rows), err
}

func objectsOf(rows []db.Object) []fleet.Object {
	out := make([]fleet.Object, len(rows))
	for i, r := range rows {
		out[i] = ObjectOf(r)
	}
	return out
}

// UndoneFrom is the number of the first event of the era of a token that a restore undid, 0 if the era did not end or is not known.
func (s *Store) UndoneFrom(ctx context.Context, token string) (int64, error) {
	at, id, is := readToken(token)
	if !is {
		return 0, nil
	}
	ended, err := s.Q.EndedEra(ctx, at.Era)
	if NoRows(err) || err == nil && ended.ID != id {
		return 0, nil
	}
	return ended.Seq + 1, err
}

// EraID gives the random id of an era, "" for one that is not known.
func (s *Store) EraID(ctx context.Context, era int64) (string, error) {
	r, err := s.Q.GetRegion(ctx)
	if err != nil {
		return "", err
	}
	if r.Era == era {
		return r.EraID, nil
	}
	ended, err := s.Q.EndedEra(ctx, era)
	if NoRows(err) {
		return "", nil
	}
	return ended.ID, err
}
