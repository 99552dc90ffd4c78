package copies

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SyncRequest asks for a comparison with a peer. Accept has it remove all copies that the peer does not know.
type SyncRequest struct {
	postgres.Request
	Peer   fleet.RegionName
	Accept bool
}

// AskSync opens an operation that ends with the next comparison that begins after the request.
func (s *Store) AskSync(ctx context.Context, in SyncRequest) (postgres.Operation, error) {
	return postgres.Only(s.Request(ctx, in.Request, func(*db.Queries) error { return nil },
		func(q *db.Queries) ([]postgres.Operation, error) {
			if err := s.wantSync(ctx, q, in.Peer, in.Accept); err != nil {
				return nil, err
			}
			op, err := postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
				Kind: fleet.OperationSync, Name: string(in.Peer), Subject: fleet.SyncSubject(in.Peer), Project: fleet.DefaultProject,
			})
			return []postgres.Operation{op}, err
		}))
}

func (s *Store) wantSync(ctx context.Context, q *db.Queries, peer fleet.RegionName, accept bool) error {
	_, err := postgres.WantSync(ctx, q, string(peer), accept)
	return err
}

// WantSyncs has every peer compared whose last comparison ended longer ago.
func (s *Store) WantSyncs(ctx context.Context, every time.Duration) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		peers, err := q.WantSyncs(ctx, every.Seconds())
		if err != nil || len(peers) == 0 {
			return err
		}
		for i, p := range peers {
			peers[i] = fleet.SyncSubject(fleet.RegionName(p))
		}
		return postgres.PutOutbox(ctx, q, peers...)
	})
}

// streamPatience is how long a comparison waits for the stream of the peer: what arrives by it need not be compared.
const streamPatience = 2 * time.Minute

// BeginSync gives the place of the comparison that is wanted, and begins it if it is not under way. Without one that is
// wanted, the operations end and the turn is done.
func (s *Store) BeginSync(ctx context.Context, v fleet.SyncVisit) (fleet.SyncPlace, fleet.SyncTurn, error) {
	var at fleet.SyncPlace
	var turn fleet.SyncTurn
	err := s.Tx(ctx, func(q *db.Queries) error {
		at, turn = fleet.SyncPlace{}, fleet.SyncTurn{}
		by := db.ServeOperationsParams{Run: v.Run, Build: v.Build, Subjects: []string{fleet.SyncSubject(v.Peer)}}
		if err := q.ServeOperations(ctx, by); err != nil {
			return err
		}
		row, err := q.GetSync(ctx, string(v.Peer))
		if postgres.NoRows(err) {
			turn.Done = true
			return s.endSync(ctx, q, v.Peer, turn)
		}
		if err != nil {
			return err
		}
		at, turn = placeOf(row), turnOf(row)
		if row.StartedAt != nil && row.EndedAt == nil {
			return nil
		}
		if turn.Done = row.Wanted == row.Pass; turn.Done {
			return s.endSync(ctx, q, v.Peer, turn)
		}
		at, turn, err = s.startSync(ctx, q, row.Peer)
		return err
	})
	if err != nil || turn.Done {
		return at, turn, err
	}
	at.Position, err = s.Q.StreamPlace(ctx, string(v.Peer))
	if postgres.NoRows(err) {
		err = nil
	}
	return at, turn, err
}

// startSync begins a comparison, unless the stream of the peer still brings what it has.
func (s *Store) startSync(ctx context.Context, q *db.Queries, peer string) (fleet.SyncPlace, fleet.SyncTurn, error) {
	waits, err := s.streamWaits(ctx, q, peer)
	if err != nil || waits != "" {
		return fleet.SyncPlace{}, fleet.SyncTurn{Waits: waits}, err
	}
	if err := q.StartSync(ctx, peer); err != nil {
		return fleet.SyncPlace{}, fleet.SyncTurn{}, err
	}
	row, err := q.GetSync(ctx, peer)
	return placeOf(row), turnOf(row), err
}

// streamWaits says that the stream of the peer still brings what it has.
func (s *Store) streamWaits(ctx context.Context, q *db.Queries, peer string) (string, error) {
	ready, err := q.SyncReady(ctx, db.SyncReadyParams{Peer: peer, PatienceSeconds: streamPatience.Seconds()})
	if err != nil || ready {
		return "", err
	}
	return "the stream of region " + peer + " is not current yet", nil
}

// syncPlace reads the place under a lock.
func (s *Store) syncPlace(ctx context.Context, q *db.Queries, peer fleet.RegionName) (fleet.SyncPlace, error) {
	row, err := q.GetSync(ctx, string(peer))
	if postgres.NoRows(err) {
		return fleet.SyncPlace{}, nil
	}
	return placeOf(row), err
}

func placeOf(r db.RegionSync) fleet.SyncPlace {
	return fleet.SyncPlace{
		Peer: fleet.RegionName(r.Peer), Pass: r.Pass, Bits: int(r.Bits), At: r.At, Accept: r.Accepting, Objects: r.Objects, Unshown: r.Unshown,
	}
}

func turnOf(r db.RegionSync) fleet.SyncTurn {
	turn := fleet.SyncTurn{Pass: r.Pass, At: r.At, SyncCounts: fleet.SyncCounts{
		Compared: r.Compared, Differed: r.Differed, Written: r.Written, Removed: r.Removed, Lost: r.Lost, Waiting: r.Waiting,
	}}
	if r.Bits > 0 {
		turn.Ranges = 1 << r.Bits
	}
	return turn
}

// SplitSync has the comparison begin again with smaller ranges.
func (s *Store) SplitSync(ctx context.Context, at fleet.SyncPlace, bits int, objects int64) error {
	n, err := s.Q.SplitSync(ctx, db.SplitSyncParams{Peer: string(at.Peer), Pass: at.Pass, Bits: int32(bits), Objects: objects}) //nolint:gosec // at most 32
	if err == nil && n == 0 {
		return fleet.Errorf(fleet.Stale, "the comparison with region %s is elsewhere now", at.Peer)
	}
	return err
}

// FinishSync ends a comparison that is at its end. What it did not set aside again is settled.
func (s *Store) FinishSync(ctx context.Context, peer fleet.RegionName) (fleet.SyncTurn, error) {
	var turn fleet.SyncTurn
	err := s.Tx(ctx, func(q *db.Queries) error {
		row, err := q.GetSync(ctx, string(peer))
		if err != nil {
			return err
		}
		turn = turnOf(row)
		if row.EndedAt != nil || turn.At < turn.Ranges {
			return fleet.Errorf(fleet.Stale, "the comparison with region %s is elsewhere now", peer)
		}
		if _, err := q.SettleQuarantine(ctx, row.Peer); err != nil {
			return err
		}
		if err := q.EndSync(ctx, row.Peer); err != nil {
			return err
		}
		if err := wakeClaims(ctx, q, row.Peer); err != nil {
			return err
		}
		if turn.Done = row.Wanted == row.Pass; !turn.Done { // the operations wait for one more
			return nil
		}
		return s.endSync(ctx, q, peer, turn)
	})
	return turn, err
}

// wakeClaims has holders looked at again that wait for a comparison with the peer.
func wakeClaims(ctx context.Context, q *db.Queries, peer string) error {
	rows, err := q.TakeClaimsCompared(ctx, peer)
	if err != nil || len(rows) == 0 {
		return err
	}
	subjects := make([]string, len(rows))
	for i, r := range rows {
		subjects[i] = fleet.PolicySubject(fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Name: r.Name})
	}
	return postgres.PutOutbox(ctx, q, subjects...)
}

// NoteSync has the operations on a comparison say why they wait, with "" that they do not.
func (s *Store) NoteSync(ctx context.Context, peer fleet.RegionName, why string) error {
	if why != "" {
		trouble, err := postgres.PeerTrouble(ctx, s.Q, string(peer))
		if err != nil {
			return err
		}
		why = fmt.Sprintf("waiting for region %s%s: %s", peer, trouble, why)
	}
	return postgres.NoteWaiting(ctx, s.Q, fleet.SyncSubject(peer), fleet.OperationSync, why)
}

// endSync ends what was asked, and takes the outbox row.
func (s *Store) endSync(ctx context.Context, q *db.Queries, peer fleet.RegionName, turn fleet.SyncTurn) error {
	subject := fleet.SyncSubject(peer)
	if err := postgres.EndOperations(ctx, q, subject, postgres.Ending{State: fleet.OperationSucceeded, Reason: "compared", Message: turn.Message(peer)}); err != nil {
		return err
	}
	return q.TakeOutbox(ctx, []string{subject})
}

// LeaveSync fails the operations on a region that is not a peer, or is disabled.
func (s *Store) LeaveSync(ctx context.Context, peer fleet.RegionName) error {
	subject := fleet.SyncSubject(peer)
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.EndOperations(ctx, q, subject, postgres.Ending{
			State: fleet.OperationFailed, Reason: string(fleet.NotFound), Message: "region " + string(peer) + " is not a peer, or is disabled",
		}); err != nil {
			return err
		}
		if err := q.DropSync(ctx, string(peer)); err != nil { // it begins again when the peer is back
			return err
		}
		return q.TakeOutbox(ctx, []string{subject})
	})
}

// Sync is the last comparison with a peer, and how far it is.
type Sync struct {
	Peer fleet.RegionName
	fleet.SyncTurn
	StartedAt, EndedAt *time.Time
}

// Syncs lists the last comparison with each peer.
func (s *Store) Syncs(ctx context.Context) ([]Sync, error) {
	rows, err := s.Q.Syncs(ctx)
	out := make([]Sync, len(rows))
	for i, r := range rows {
		turn := turnOf(r)
		turn.Done = r.Wanted == r.Pass && r.EndedAt != nil
		out[i] = Sync{fleet.RegionName(r.Peer), turn, r.StartedAt, r.EndedAt}
	}
	return out, err
}

// LostWrite is a state of an object that its owner did not know, and that was replaced. Object is nil of a deletion.
type LostWrite struct {
	ID      int64
	Peer    fleet.RegionName
	Key     fleet.CopyKey
	Version fleet.CopyVersion
	Reason  string
	Object  *fleet.Object
	At      time.Time
}

// LostWrites pages through what was lost, oldest first.
func (s *Store) LostWrites(ctx context.Context, after int64, limit int32) ([]LostWrite, error) {
	rows, err := s.Q.LostWrites(ctx, db.LostWritesParams{After: after, MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]LostWrite, len(rows))
	for i, r := range rows {
		out[i] = LostWrite{
			ID: r.ID, Peer: fleet.RegionName(r.Peer), Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number}, Reason: r.Reason, At: r.At,
			Key: fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}},
		}
		if r.Object == nil {
			continue
		}
		var was row
		if err := json.Unmarshal(r.Object, &was); err != nil {
			return nil, postgres.Unreadable(fmt.Sprintf("lost write %d", r.ID), err)
		}
		o := was.object()
		out[i].Object = &o
	}
	return out, nil
}
