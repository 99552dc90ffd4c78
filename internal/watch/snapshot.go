package watch

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const pageOfObjects = 500

// others are the kinds that hold no policy. Their objects come last: a peer trusts them by the policies before them.
const others fleet.ObjectKind = ""

// snapshot is one under way. Its pages are read at different times; later changes complete them.
type snapshot struct {
	*Stream
	sent int64
}

// sendSnapshot sends what there is, page by page, then what changed since the first page, or since the one that broke,
// and the size.
func (s *Stream) sendSnapshot(ctx context.Context, since string) error {
	if err := s.begin(ctx, since); err != nil {
		return err
	}
	if err := s.Send([]api.WatchLine{{Type: api.WatchSnapshot, Token: s.place()}}); err != nil {
		return err
	}
	shot := &snapshot{Stream: s}
	for _, kind := range []fleet.ObjectKind{fleet.KindOrganization, fleet.KindProject, fleet.KindService, others} {
		if err := shot.pages(ctx, kind); err != nil {
			return err
		}
	}
	if err := shot.changed(ctx); err != nil {
		return err
	}
	return s.Send([]api.WatchLine{{Type: api.WatchSnapshotSize, Count: shot.sent}, s.current()})
}

// begin finds the place from which changes complete the snapshot.
func (s *Stream) begin(ctx context.Context, since string) error {
	resumes, err := s.resume(ctx, since)
	if err != nil || resumes {
		return err
	}
	if s.at, err = s.Source.FeedEnd(ctx); err != nil {
		return err
	}
	s.era, err = s.Source.EraID(ctx, s.at.Era)
	return err
}

// send sends those of a page that are of a kind, and reports whether more of the kind may follow.
func (s *snapshot) send(objects []fleet.Object, kind fleet.ObjectKind) (more bool, err error) {
	var lines []api.WatchLine
	for _, o := range objects {
		if (o.Kind == kind || kind == others && !o.Kind.Declared().Holder) && s.shows(&o) {
			lines = append(lines, s.line(o))
		}
	}
	s.sent += int64(len(lines))
	return len(objects) > 0 && (kind == others || objects[len(objects)-1].Kind == kind), s.Send(lines)
}

func (s *snapshot) pages(ctx context.Context, kind fleet.ObjectKind) error {
	if s.Filter.Owner == "" || s.Filter.Owner == s.Self {
		if err := s.ownPages(ctx, kind); err != nil {
			return err
		}
	}
	return s.copyPages(ctx, kind)
}

func (s *snapshot) ownPages(ctx context.Context, kind fleet.ObjectKind) error {
	after := fleet.ObjectKey{Kind: kind}
	for {
		page, err := s.Source.WatchedObjects(ctx, after, s.Filter.Region, s.Filter.Project, pageOfObjects)
		if err != nil {
			return err
		}
		if more, err := s.send(page, kind); err != nil || !more {
			return err
		}
		after = page[len(page)-1].ObjectKey
	}
}

func (s *snapshot) copyPages(ctx context.Context, kind fleet.ObjectKind) error {
	after := fleet.CopyKey{ObjectKey: fleet.ObjectKey{Kind: kind}}
	for {
		page, err := s.Source.WatchedCopies(ctx, after, s.Filter.Owner, s.Filter.Project, pageOfObjects)
		if err != nil {
			return err
		}
		if more, err := s.send(page, kind); err != nil || !more {
			return err
		}
		last := page[len(page)-1]
		after = fleet.CopyKey{Region: last.Region, ObjectKey: last.ObjectKey}
	}
}

// changed sends what changed up to now.
func (s *snapshot) changed(ctx context.Context) error {
	end, err := s.Source.FeedEnd(ctx)
	if err != nil {
		return err
	}
	for more := true; more; {
		rows, err := s.Source.ReadFeed(ctx, s.at, readAtOnce)
		if err != nil {
			return err
		}
		lines, err := s.changes(ctx, rows)
		if err != nil {
			return err
		}
		s.sent += int64(len(lines))
		if err := s.Send(lines); err != nil {
			return err
		}
		more = len(rows) == readAtOnce && s.at.Before(end)
	}
	return nil
}
