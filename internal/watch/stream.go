package watch

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Source is what a stream reads.
type Source interface {
	feed
	FeedKept(ctx context.Context, after postgres.Cursor) error
	// EraID is the random id of an era, "" for one that is not known.
	EraID(ctx context.Context, era int64) (string, error)
	// UndoneFrom is the number of the first event of a token's era that a restore undid, 0 for none.
	UndoneFrom(ctx context.Context, token string) (int64, error)
	WatchedObjects(ctx context.Context, after fleet.ObjectKey, region fleet.RegionName, project fleet.ProjectName, limit int32) ([]fleet.Object, error)
	WatchedCopies(ctx context.Context, after fleet.CopyKey, owner fleet.RegionName, project fleet.ProjectName, limit int32) ([]fleet.Object, error)
	CopiesNow(ctx context.Context, keys []fleet.CopyKey) ([]fleet.Object, error)
}

// Filter says what a watch shows. Its zero value shows everything.
type Filter struct {
	Kinds []fleet.ObjectKind // none for all
	// Owner is the region that owns the objects, Region one that has them; "" for any.
	Owner, Region fleet.RegionName
	Project       fleet.ProjectName
}

// Stream is one watch.
type Stream struct {
	Source Source
	Reader *Reader
	Filter Filter
	// Self is the region that is watched.
	Self fleet.RegionName
	// Snapshots has room for as many as may be sent at a time.
	Snapshots chan struct{}
	// View shows an object as the watcher may see it.
	View func(fleet.Object) api.Object
	// Send sends lines at once.
	Send func(lines []api.WatchLine) error
	// Beat is the time between current lines when nothing changes: a sign of life, and of being up to date.
	Beat     time.Duration
	Stopping <-chan struct{}

	at  postgres.Cursor
	era string
}

// Run sends the snapshot, or what follows the token after, and then what changes, until the context ends. The snapshot
// also has what is gone since another one began that broke, whose token is since; both may be "".
func (s *Stream) Run(ctx context.Context, after, since string) error {
	if err := s.Reader.join(ctx); err != nil {
		return err
	}
	defer s.Reader.leave()
	resumes, err := s.resume(ctx, after)
	if err != nil {
		return err
	}
	if !resumes {
		if err := s.takeTurn(ctx, since); err != nil {
			return err
		}
	}
	return s.follow(ctx)
}

// takeTurn sends the snapshot when few others are sent.
func (s *Stream) takeTurn(ctx context.Context, since string) error {
	select {
	case s.Snapshots <- struct{}{}:
		defer func() { <-s.Snapshots }()
		return s.sendSnapshot(ctx, since)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resume finds the place after a token. Without one that is good, there is a snapshot.
func (s *Stream) resume(ctx context.Context, after string) (bool, error) {
	if after == "" {
		return false, nil
	}
	t, err := parseToken(after)
	if err != nil {
		return false, err
	}
	reason, err := s.check(ctx, t)
	if err != nil {
		return false, err
	}
	undone, err := s.Source.UndoneFrom(ctx, after)
	if err != nil {
		return false, err
	}
	if reason == "" && undone > 0 { // the watcher may have what was undone without having come so far: by a comparison
		reason = reasonUndone
	}
	if reason != "" {
		return false, s.Send([]api.WatchLine{{Type: api.WatchHardReset, Reason: reason, Number: undone}})
	}
	s.at, s.era = t.at, t.era
	return true, nil
}

// follow sends what changes. A current line follows whenever all that was committed is sent, so that a watch that
// breaks resumes near its end; what the watch does not show is worth none before the next beat.
func (s *Stream) follow(ctx context.Context) error {
	owed, fresh := false, true
	beat := time.NewTicker(s.Beat)
	defer beat.Stop()
	for {
		rows, news, err := s.Reader.after(ctx, s.at, fresh)
		if err != nil {
			return err
		}
		fresh = fresh && len(rows) == readAtOnce
		lines, err := s.changes(ctx, rows)
		if err != nil {
			return err
		}
		if owed = owed || len(lines) > 0; owed && len(rows) < readAtOnce {
			lines, owed = append(lines, s.current()), false
		}
		if err := s.Send(lines); err != nil {
			return err
		}
		if len(rows) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Stopping:
			return nil // the watcher resumes at another server
		case <-news:
		case <-beat.C:
			if err := s.Send([]api.WatchLine{s.current()}); err != nil {
				return err
			}
		}
	}
}

func (s *Stream) current() api.WatchLine {
	return api.WatchLine{Type: api.WatchCurrent, Token: s.place(), HeldBackMs: s.Reader.heldBack().Milliseconds()}
}

func (s *Stream) place() string { return token{s.Filter.sum(), s.era, s.at}.String() }

// change is what the feed says of one object: the last event, the owner's epoch, and whether the watch showed it before.
type change struct {
	key   fleet.CopyKey
	last  postgres.Event
	epoch int64
	// number is that of the last event; of a copy, the last of its owner's.
	number int64
	// object is that of this region as it was when the last event was read; nil if it was gone.
	object *fleet.Object
	// took is what the owner had of the object when it took it over.
	took *fleet.TookOver
	// shown: the watch showed it before. concerns: it did, or does after the last event.
	shown, concerns bool
}

// take notes an event of the object. The version of what a peer sees no more is the last of this region's own.
func (c *change) take(e postgres.Event, s *Stream) {
	before, after := stateOf(e.Before), stateOf(e.After)
	number := c.number
	c.last, c.number, c.object = e, e.Cursor.Seq, e.Object
	for _, is := range []state{before, after} {
		if is.Syncing != nil {
			c.took = is.Syncing.TookOver
		}
		if s.Filter.Owner == "" || is.ownedBy(s.Filter.Owner) {
			c.epoch = max(c.epoch, is.OwnerEpoch)
		}
	}
	if c.key.Region != "" && !before.ownedBy(s.Self) && !after.ownedBy(s.Self) {
		c.number = max(before.Number, after.Number)
		if c.shown && s.Filter.Owner != "" {
			c.number = number // the next owner has its own
		}
	}
	c.shown = c.shown || before.Syncing != nil && s.shared(*before.Syncing)
	c.concerns = c.shown || after.Syncing != nil && s.shared(*after.Syncing)
}

// changes turns events into lines: each object that changed, once, as it is now.
func (s *Stream) changes(ctx context.Context, rows []postgres.Event) ([]api.WatchLine, error) {
	var all []*change
	byKey := map[fleet.CopyKey]*change{}
	for _, e := range rows {
		if e.Cursor.Era != s.at.Era {
			id, err := s.Source.EraID(ctx, e.Cursor.Era)
			if err != nil {
				return nil, err
			}
			s.era = id
		}
		s.at = e.Cursor
		if !s.mayShow(e) {
			continue
		}
		key := fleet.CopyKey{Region: fleet.RegionName(e.Region), ObjectKey: e.Key}
		c := byKey[key]
		if c == nil {
			c = &change{key: key}
			byKey[key] = c
			all = append(all, c)
		}
		c.take(e, s)
	}
	all = slices.DeleteFunc(all, func(c *change) bool { return !c.concerns })
	if len(all) == 0 {
		return nil, nil
	}
	now, err := s.now(ctx, all)
	if err != nil {
		return nil, err
	}
	var lines []api.WatchLine
	for _, c := range all {
		o, is := now[c.key]
		switch {
		case is && s.shows(&o):
			lines = append(lines, s.line(o))
		case c.shown && is:
			lines = append(lines, s.left(c, &o))
		case c.shown:
			lines = append(lines, gone(c, fleet.CopyDeleted))
		}
	}
	return lines, nil
}

// mayShow leaves out what no filter needs the present state for.
func (s *Stream) mayShow(e postgres.Event) bool {
	if e.Type == "status" || e.Key.Kind.Declared().Title == "" {
		return false
	}
	return (len(s.Filter.Kinds) == 0 || slices.Contains(s.Filter.Kinds, e.Key.Kind)) &&
		(s.Filter.Project == "" || s.Filter.Project == e.Project)
}

// state is what an event tells of a state of its object.
type state struct {
	Syncing    *fleet.Syncing `json:"syncing"`
	OwnerEpoch int64          `json:"ownerEpoch"`
	Number     int64          `json:"number"` // of a copy only
}

func stateOf(declared json.RawMessage) (s state) {
	if json.Unmarshal(declared, &s) != nil {
		return state{} // there was nothing
	}
	return s
}

func (s state) ownedBy(region fleet.RegionName) bool {
	return s.Syncing != nil && s.Syncing.OwningRegion == string(region)
}

// left says why a watch shows an object no more: another region owns it now and shows it, or the policy changed.
func (s *Stream) left(c *change, o *fleet.Object) api.WatchLine {
	if share, err := o.Share(); err == nil && s.Filter.Owner != "" && share.OwningRegion != string(s.Filter.Owner) && share.In(s.Filter.Region) {
		line := gone(c, fleet.CopyMoved)
		line.Gone.MovedTo = share.OwningRegion
		return line
	}
	return gone(c, fleet.CopyRemoved)
}

func (s *Stream) shared(share fleet.Syncing) bool {
	return (s.Filter.Owner == "" || share.OwningRegion == string(s.Filter.Owner)) && (s.Filter.Region == "" || share.In(s.Filter.Region))
}

func (s *Stream) shows(o *fleet.Object) bool {
	share, err := o.Share()
	return err == nil && s.shared(share) && (len(s.Filter.Kinds) == 0 || slices.Contains(s.Filter.Kinds, o.Kind)) &&
		(s.Filter.Project == "" || s.Filter.Project == o.Project)
}

// now gives objects as they are: those of this region came with the events, copies are read.
func (s *Stream) now(ctx context.Context, all []*change) (map[fleet.CopyKey]fleet.Object, error) {
	var copied []fleet.CopyKey
	out := make(map[fleet.CopyKey]fleet.Object, len(all))
	for _, c := range all {
		switch {
		case c.key.Region != "":
			copied = append(copied, c.key)
		case c.object != nil:
			out[c.key] = *c.object
		}
	}
	objects, err := s.Source.CopiesNow(ctx, copied)
	for _, o := range objects {
		out[fleet.CopyKey{Region: o.Region, ObjectKey: o.ObjectKey}] = o
	}
	return out, err
}

func (s *Stream) line(o fleet.Object) api.WatchLine {
	view := s.View(o)
	return api.WatchLine{
		Type: api.WatchObject, Region: string(o.Region), OwnerEpoch: o.Version.OwnerEpoch, Number: o.Version.Number, Object: &view,
	}
}

// gone is the line for what the watch shows no more: its version is that of the event by which it went.
func gone(c *change, reason fleet.CopyEnd) api.WatchLine {
	named := &api.GoneNamed{Kind: string(c.key.Kind), Name: c.key.Name, UID: c.last.UID, Reason: string(reason), TookOver: c.took}
	if c.key.Kind.Declared().OfSite {
		named.Site = c.key.Scope
	}
	return api.WatchLine{Type: api.WatchGone, Region: string(c.key.Region), OwnerEpoch: c.epoch, Number: c.number, Gone: named}
}
