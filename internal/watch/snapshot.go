package watch

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const pageOfObjects = 500

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
	if s.Filter.Owner == "" || s.Filter.Owner == s.Self {
		if err := shot.ownPages(ctx); err != nil {
			return err
		}
	}
	if err := shot.copyPages(ctx); err != nil {
		return err
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

func (s *snapshot) send(objects []fleet.Object) error {
	var lines []api.WatchLine
	for _, o := range objects {
		if s.shows(&o) {
			lines = append(lines, s.line(o))
		}
	}
	s.sent += int64(len(lines))
	return s.Send(lines)
}

func (s *snapshot) ownPages(ctx context.Context) error {
	var after fleet.ObjectKey
	for {
		page, err := s.Source.WatchedObjects(ctx, after, s.Filter.Region, s.Filter.Project, pageOfObjects)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := s.send(page); err != nil {
			return err
		}
		after = page[len(page)-1].ObjectKey
	}
}

func (s *snapshot) copyPages(ctx context.Context) error {
	var after fleet.CopyKey
	for {
		page, err := s.Source.WatchedCopies(ctx, after, s.Filter.Owner, s.Filter.Project, pageOfObjects)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := s.send(page); err != nil {
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
