package copies

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Stream is how far a peer is followed.
type Stream struct {
	Peer                         fleet.RegionName
	Run                          string
	Position                     string
	Applied, Copies, Quarantined int64
	// Waiting counts copies whose newest state waits for what it is composed of.
	Waiting int64
	// Seen is how long ago the run that follows the peer gave a sign, Lag how far its copies are behind (Lags), negative before they
	// were ever up to date.
	Seen, Lag time.Duration
}

// Streams lists all.
func (s *Store) Streams(ctx context.Context) ([]Stream, error) {
	rows, err := s.Q.Streams(ctx)
	if err != nil {
		return nil, err
	}
	lags, err := s.Lags(ctx)
	out := make([]Stream, len(rows))
	for i, r := range rows {
		lag, known := lags[fleet.RegionName(r.Peer)]
		if !known {
			lag = -1
		}
		out[i] = Stream{
			Peer: fleet.RegionName(r.Peer), Run: r.Run, Position: r.Position, Applied: r.Applied, Copies: r.Copies, Quarantined: r.Quarantined, Waiting: r.Waiting,
			Seen: seconds(r.SeenSeconds), Lag: lag,
		}
	}
	return out, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func copiesOf(rows []db.Copy) []fleet.Object {
	out := make([]fleet.Object, len(rows))
	for i, r := range rows {
		out[i] = copyOf(r)
	}
	return out
}

// ListCopies pages through the copies of one kind that a region created, by name.
func (s *Store) ListCopies(ctx context.Context, of fleet.CopyKey, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error) {
	rows, err := s.Q.ListCopies(ctx, db.ListCopiesParams{
		Kind: string(of.Kind), Scope: of.Scope, Region: string(of.Region), Project: string(project), After: after, MaxRows: limit,
	})
	return copiesOf(rows), err
}

// GetCopy reads a copy; without a region, it has to be the only one of its name.
func (s *Store) GetCopy(ctx context.Context, k fleet.CopyKey) (fleet.Object, error) {
	rows, err := s.Q.FindCopies(ctx, db.FindCopiesParams{Kind: string(k.Kind), Scope: k.Scope, Name: k.Name, Region: string(k.Region)})
	switch {
	case err != nil:
		return fleet.Object{}, err
	case len(rows) == 0:
		return fleet.Object{}, fleet.NoObject(k.ObjectKey)
	case len(rows) > 1:
		return fleet.Object{}, fleet.Ambiguous(k.ObjectKey, rows[0].Region, rows[1].Region)
	}
	return copyOf(rows[0]), nil
}

// WatchedCopies pages through copies by key, for a watch: those that a region owns ("" for any), of a project ("" for all).
func (s *Store) WatchedCopies(ctx context.Context, after fleet.CopyKey, owner fleet.RegionName, project fleet.ProjectName, limit int32) ([]fleet.Object, error) {
	rows, err := s.Q.WatchCopies(ctx, db.WatchCopiesParams{
		AfterKind: string(after.Kind), AfterScope: after.Scope, AfterName: after.Name, AfterRegion: string(after.Region),
		WantedOwner: string(owner), Project: string(project), MaxRows: limit,
	})
	return copiesOf(rows), err
}

// CopiesNow reads copies by their keys; those that are gone are missing.
func (s *Store) CopiesNow(ctx context.Context, keys []fleet.CopyKey) ([]fleet.Object, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	c := columnsOf(keys)
	rows, err := s.Q.CopiesNow(ctx, db.CopiesNowParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	return copiesOf(rows), err
}

// SetAside is a change that was not taken.
type SetAside struct {
	Key     fleet.CopyKey
	Version fleet.CopyVersion
	Reason  string
	At      time.Time
}

// Quarantined pages through what a peer sent and this region did not take, by key.
func (s *Store) Quarantined(ctx context.Context, peer fleet.RegionName, after fleet.CopyKey, limit int32) ([]SetAside, error) {
	rows, err := s.Q.Quarantined(ctx, db.QuarantinedParams{
		Peer: string(peer), Kind: string(after.Kind), Scope: after.Scope, Name: after.Name, Region: string(after.Region), MaxRows: limit,
	})
	out := make([]SetAside, len(rows))
	for i, r := range rows {
		out[i] = SetAside{
			Key:     fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}},
			Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number}, Reason: r.Reason, At: r.At,
		}
	}
	return out, err
}

// maxKept bounds how many generations are listed whose copies are gone.
const maxKept = 100

// KeptGeneration is a generation of a template whose copy is gone, and how many objects pin it.
type KeptGeneration struct {
	fleet.TemplatePin
	UsedBy int64
}

// KeptGenerations lists generations that are in use of templates whose copies are gone, by name, at most 100.
func (s *Store) KeptGenerations(ctx context.Context) (map[fleet.RegionName][]KeptGeneration, error) {
	rows, err := s.Q.KeptGenerations(ctx, maxKept)
	if err != nil {
		return nil, err
	}
	out := map[fleet.RegionName][]KeptGeneration{}
	for _, r := range rows {
		pin := fleet.TemplatePin{Name: fleet.TemplateName(r.Name), Generation: r.Generation}
		region, _, _ := pin.Name.Copy()
		out[region] = append(out[region], KeptGeneration{pin, r.UsedBy})
	}
	return out, nil
}
