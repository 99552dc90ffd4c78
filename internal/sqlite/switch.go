package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// Attempt is one revision on its way into a slot, under the right that it was accepted with.
type Attempt struct {
	Instance fleet.InstanceName
	Revision fleet.Revision
	Right    Right
	Run      []byte // the run section; empty if the revision has none
	// Body is what Stage and Commit store with the slot; nil if the content is already stored.
	Body *Staging
}

// Accept raises the high-water mark before anything is fetched: from here on no older revision is accepted,
// however this attempt ends. The same revision may be accepted again.
func (s *Store) Accept(ctx context.Context, a Attempt) error {
	return s.write(ctx, "accept revision", func(ctx context.Context, q *db.Queries) error { return raise(ctx, q, a) })
}

// SetAside keeps the content of a revision for a later switch; call it before the fetch. It accepts nothing:
// older revisions are still accepted. The newest of a name stays.
func (s *Store) SetAside(ctx context.Context, a Attempt) error {
	return s.write(ctx, "set revision aside", func(ctx context.Context, q *db.Queries) error {
		if err := holding(ctx, q, a.Right); err != nil {
			return err
		}
		return setAside(ctx, q, a)
	})
}

func setAside(ctx context.Context, q *db.Queries, a Attempt) error {
	r := a.Revision
	n, err := q.SetAside(ctx, db.SetAsideParams{
		Instance: string(a.Instance), Era: r.Era, Revision: r.Version.Revision, Hash: string(r.Content.Hash),
	})
	if err == nil && n == 0 {
		return notNewest(a)
	}
	return err
}

func notNewest(a Attempt) error {
	return fleet.Errorf(fleet.Stale, "revision %d of %s is not the newest", a.Revision.Version.Revision, a.Instance)
}

// Stage puts an accepted revision next to the current one. Its content must be complete, in the store or in
// Body.
func (s *Store) Stage(ctx context.Context, a Attempt) error {
	return s.write(ctx, "stage revision", func(ctx context.Context, q *db.Queries) error { return stage(ctx, q, a) })
}

// Promote switches a staged revision to current, in one step.
func (s *Store) Promote(ctx context.Context, a Attempt) error {
	return s.write(ctx, "switch revision", func(ctx context.Context, q *db.Queries) error { return promote(ctx, q, a) })
}

// Commit is Stage and Promote in one step, for a revision that needs no start in between.
func (s *Store) Commit(ctx context.Context, a Attempt) error {
	return s.write(ctx, "commit revision", func(ctx context.Context, q *db.Queries) error {
		if err := stage(ctx, q, a); err != nil {
			return err
		}
		return promote(ctx, q, a)
	})
}

// Unstage removes the staged revision; the high-water mark stays.
func (s *Store) Unstage(ctx context.Context, name fleet.InstanceName) error {
	return s.write(ctx, "drop staged revision", func(ctx context.Context, q *db.Queries) error {
		return q.DropSlot(ctx, db.DropSlotParams{Instance: string(name), Slot: staged})
	})
}

// Renumber gives the current revision and the high-water mark a higher number; the content stays the same. A
// staged revision is older than that and is removed.
func (s *Store) Renumber(ctx context.Context, a Attempt) error {
	return s.write(ctx, "renumber revision", func(ctx context.Context, q *db.Queries) error {
		if err := raise(ctx, q, a); err != nil {
			return err
		}
		return renumber(ctx, q, a)
	})
}

func renumber(ctx context.Context, q *db.Queries, a Attempt) error {
	if err := q.DropSlot(ctx, db.DropSlotParams{Instance: string(a.Instance), Slot: staged}); err != nil {
		return err
	}
	r := a.Revision
	n, err := q.RenumberCurrent(ctx, db.RenumberCurrentParams{
		Era: r.Era, Revision: r.Version.Revision, Action: string(r.Action), Enabled: flag(r.Enabled),
		Epoch: a.Right.Epoch, Instance: string(a.Instance), Hash: string(r.Content.Hash), RunHash: string(r.RunHash),
	})
	if err == nil && n == 0 {
		return fleet.Errorf(fleet.Stale, "the current revision of %s has changed", a.Instance)
	}
	return err
}

func raise(ctx context.Context, q *db.Queries, a Attempt) error {
	if err := holding(ctx, q, a.Right); err != nil {
		return err
	}
	return raiseHeld(ctx, q, a)
}

// raiseHeld is raise for callers that have checked the right.
func raiseHeld(ctx context.Context, q *db.Queries, a Attempt) error {
	r := a.Revision
	n, err := q.RaiseHighWater(ctx, db.RaiseHighWaterParams{
		Name: string(a.Instance), Era: r.Era, Revision: r.Version.Revision, Action: string(r.Action),
		Hash: string(r.Content.Hash), RunHash: string(r.RunHash), Enabled: flag(r.Enabled), Epoch: a.Right.Epoch,
	})
	if err == nil && n == 0 {
		return notNewest(a)
	}
	return err
}

// holding refuses a commit by a node that has learned of a higher epoch.
func holding(ctx context.Context, q *db.Queries, right Right) error {
	n, err := q.CountHolding(ctx, db.CountHoldingParams{Epoch: right.Epoch, Role: string(right.Role)})
	if err == nil && n == 0 {
		return fleet.Errorf(fleet.Stale, "the node is no longer %s at epoch %d", right.Role, right.Epoch)
	}
	return err
}

func stage(ctx context.Context, q *db.Queries, a Attempt) error {
	if err := holding(ctx, q, a.Right); err != nil {
		return err
	}
	if err := a.Body.put(ctx, q); err != nil {
		return err
	}
	content, err := contentID(ctx, q, a.Revision)
	if err != nil {
		return err
	}
	return putSlot(ctx, q, a, staged, content)
}

func putSlot(ctx context.Context, q *db.Queries, a Attempt, slot string, content sql.NullInt64) error {
	n, err := q.PutSlot(ctx, slotOf(a, slot, content))
	if err == nil && n == 0 {
		return fleet.Errorf(fleet.Stale, "revision %d of %s is not the newest", a.Revision.Version.Revision, a.Instance)
	}
	return err
}

func slotOf(a Attempt, slot string, content sql.NullInt64) db.PutSlotParams {
	r, run := a.Revision, a.Run
	if run == nil {
		run = []byte{}
	}
	return db.PutSlotParams{
		Instance: string(a.Instance), Slot: slot, Era: r.Era, Revision: r.Version.Revision,
		Action: string(r.Action), Kind: string(r.Content.Kind), Hash: string(r.Content.Hash), Size: r.Content.Size,
		RunHash: string(r.RunHash), Run: run, Enabled: flag(r.Enabled), Epoch: a.Right.Epoch, ContentID: content,
	}
}

func contentID(ctx context.Context, q *db.Queries, r fleet.Revision) (sql.NullInt64, error) {
	if r.Action == fleet.ActionDelete {
		return sql.NullInt64{}, nil
	}
	c, err := q.GetContent(ctx, nullable(r.Content.Hash))
	if errors.Is(err, sql.ErrNoRows) || (err == nil && c.Complete == 0) {
		return sql.NullInt64{}, fleet.Errorf(fleet.IllegalState, "content %s is not complete", r.Content.Hash)
	}
	return sql.NullInt64{Int64: c.ID, Valid: err == nil}, err
}

func promote(ctx context.Context, q *db.Queries, a Attempt) error {
	if err := holding(ctx, q, a.Right); err != nil {
		return err
	}
	rows, err := q.GetSlots(ctx, string(a.Instance))
	if err != nil {
		return err
	}
	var in Instance
	for _, row := range rows {
		in.put(row)
	}
	if in.Staged == nil || in.Staged.Version != a.Revision.Version {
		return fleet.Errorf(fleet.Stale, "revision %d of %s is no longer staged", a.Revision.Version.Revision, a.Instance)
	}
	if err := makeRoom(ctx, q, a.Instance, in); err != nil {
		return err
	}
	_, err = q.MoveSlot(ctx, db.MoveSlotParams{Instance: string(a.Instance), FromSlot: staged, IntoSlot: current})
	return err
}

// makeRoom decides what happens to the current revision. It moves to previous, with these exceptions: a
// tombstone leaves nothing, a deleted one keeps nothing, and a change of only number or enabled leaves the
// previous content in place, because a rollback needs it.
func makeRoom(ctx context.Context, q *db.Queries, name fleet.InstanceName, in Instance) error {
	drop := func(slot string) error {
		return q.DropSlot(ctx, db.DropSlotParams{Instance: string(name), Slot: slot})
	}
	switch {
	case in.Current != nil && !in.Staged.Deleted() && sameContent(*in.Current, in.Staged.Revision):
		return drop(current)
	case in.Staged.Deleted() || in.Current.Deleted():
		return errors.Join(drop(previous), drop(current))
	}
	if err := drop(previous); err != nil {
		return err
	}
	_, err := q.MoveSlot(ctx, db.MoveSlotParams{Instance: string(name), FromSlot: current, IntoSlot: previous})
	return err
}

func sameContent(cur Slot, next fleet.Revision) bool {
	return cur.Content.Hash == next.Content.Hash && cur.RunHash == next.RunHash
}

func flag(b bool) int64 { //nolint:revive // it is the value
	if b {
		return 1
	}
	return 0
}

func nullable(h fleet.Hash) sql.NullString { return sql.NullString{String: string(h), Valid: h != ""} }
