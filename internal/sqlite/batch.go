package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// Turn is how far CommitBatch takes one attempt.
type Turn int

const (
	// TurnCommit accepts it and makes it current, as Accept and Commit do.
	TurnCommit Turn = iota
	// TurnKeep accepts it and stores its body, and leaves the slots to whoever switches later:
	// the high-water mark keeps the body until then. Without a body it is Accept.
	TurnKeep
	// TurnRenumber gives what is current its number, as Renumber does.
	TurnRenumber
)

// Step is one attempt of a batch.
type Step struct {
	Attempt
	Turn Turn
}

// Whole is the body of an Attempt that is in memory, verified.
func Whole(want fleet.Content, data []byte) (*Staging, error) {
	sum := sha256.New()
	_, _ = sum.Write(data) // a hash takes everything
	if got := fleet.Hash(hex.EncodeToString(sum.Sum(nil))); got != want.Hash || int64(len(data)) != want.Size {
		return nil, fleet.Errorf(fleet.HashMismatch, "the body has hash %s and %d bytes, wanted is %s with %d",
			got, len(data), want.Hash, want.Size)
	}
	return &Staging{want: want, received: want.Size, complete: true, sum: sum, whole: data}, nil
}

// CommitBatch takes many attempts, each of another name, in one transaction. Each stands for
// itself: one that is refused or fails leaves nothing, and has its error at its place.
func (s *Store) CommitBatch(ctx context.Context, steps []Step) ([]error, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	refused := make([]error, len(steps))
	err := s.tx(ctx, "commit batch", nil, func(ctx context.Context, tx *sql.Tx) error {
		b := &batch{tx: tx, q: s.q.WithTx(tx), rights: map[Right]error{}}
		if err := b.read(ctx, steps); err != nil {
			return err
		}
		for i, step := range steps {
			var err error
			if refused[i], err = b.isolated(ctx, step); err != nil {
				return err
			}
		}
		return nil
	})
	return refused, err
}

// batch is one CommitBatch under way.
type batch struct {
	tx     *sql.Tx
	q      *db.Queries
	held   map[fleet.InstanceName]Instance // as far as nothing was done about it yet
	rights map[Right]error
}

func (b *batch) read(ctx context.Context, steps []Step) error {
	names := make([]fleet.InstanceName, len(steps))
	for i, step := range steps {
		names[i] = step.Instance
	}
	var err error
	b.held, err = instancesOf(ctx, b.q, names)
	return err
}

// isolated does one step inside a savepoint. The second error is that of the whole batch.
func (b *batch) isolated(ctx context.Context, step Step) (refused, err error) {
	in, is := b.held[step.Instance]
	if !is {
		return fleet.Errorf(fleet.Invalid, "instance %s is in the batch twice", step.Instance), nil
	}
	if err := b.holding(ctx, step.Right); err != nil {
		return err, nil
	}
	if _, err := b.tx.ExecContext(ctx, "SAVEPOINT step"); err != nil {
		return nil, err
	}
	delete(b.held, step.Instance)
	if refused = fail("commit revision", b.do(ctx, step, in)); refused != nil {
		if _, err := b.tx.ExecContext(ctx, "ROLLBACK TO step"); err != nil { // the file is full, and took all of it back
			return nil, errors.Join(refused, err)
		}
	}
	_, err = b.tx.ExecContext(ctx, "RELEASE step")
	return refused, err
}

// holding asks once for each right: the transaction has the lock of the writer.
func (b *batch) holding(ctx context.Context, right Right) error {
	err, asked := b.rights[right]
	if !asked {
		err = fail("commit revision", holding(ctx, b.q, right))
		b.rights[right] = err
	}
	return err
}

func (b *batch) do(ctx context.Context, step Step, in Instance) error {
	if err := raiseHeld(ctx, b.q, step.Attempt); err != nil {
		return err
	}
	switch step.Turn {
	case TurnRenumber:
		return renumber(ctx, b.q, step.Attempt)
	case TurnKeep:
		if step.Body == nil {
			return nil
		}
		_, err := step.Body.putNew(ctx, b.q)
		return err
	case TurnCommit:
		return b.commit(ctx, step.Attempt, in)
	}
	return fleet.Errorf(fleet.Internal, "turn %d of a batch is none", step.Turn)
}

// commit is what stage and promote come to when nothing happens in between.
func (b *batch) commit(ctx context.Context, a Attempt, in Instance) error {
	var content sql.NullInt64
	var err error
	if a.Body != nil {
		content, err = a.Body.putNew(ctx, b.q)
	} else {
		content, err = contentID(ctx, b.q, a.Revision)
	}
	if err != nil {
		return err
	}
	if in.Staged != nil {
		if err := b.drop(ctx, a.Instance, staged); err != nil {
			return err
		}
	}
	if err := b.makeRoom(ctx, a, in); err != nil {
		return err
	}
	return putSlot(ctx, b.q, a, current, content)
}

// makeRoom is the makeRoom of a switch, without what would find nothing: what is current is
// replaced where it is, unless it becomes the previous one.
func (b *batch) makeRoom(ctx context.Context, a Attempt, in Instance) error {
	deleted := a.Revision.Action == fleet.ActionDelete
	switch {
	case !deleted && in.Current != nil && sameContent(*in.Current, a.Revision):
		return nil
	case !deleted && in.Current != nil && !in.Current.Deleted():
		return b.q.ReplacePrevious(ctx, string(a.Instance))
	case in.Previous != nil:
		return b.drop(ctx, a.Instance, previous)
	}
	return nil
}

func (b *batch) drop(ctx context.Context, name fleet.InstanceName, slot string) error {
	return b.q.DropSlot(ctx, db.DropSlotParams{Instance: string(name), Slot: slot})
}

// putNew is put for a body that the file most likely lacks.
func (st *Staging) putNew(ctx context.Context, q *db.Queries) (sql.NullInt64, error) {
	state, err := marshal(st.sum)
	if err != nil {
		return sql.NullInt64{}, err
	}
	id, err := q.PutNewContent(ctx, db.PutNewContentParams{Hash: nullable(st.want.Hash), Size: st.want.Size, ShaState: state})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := st.put(ctx, q); err != nil {
			return sql.NullInt64{}, err
		}
		return contentID(ctx, q, fleet.Revision{Content: st.want})
	case err == nil && len(st.whole) > 0:
		err = q.AddChunk(ctx, db.AddChunkParams{ContentID: id, Data: st.whole})
	}
	return sql.NullInt64{Int64: id, Valid: true}, err
}

// InstancesOf reads some names at one moment; those that were never heard of are there as
// zero Instances with their names.
func (s *Store) InstancesOf(ctx context.Context, names []fleet.InstanceName) (map[fleet.InstanceName]Instance, error) {
	var all map[fleet.InstanceName]Instance
	err := s.read(ctx, "read instances", func(ctx context.Context, q *db.Queries) (err error) {
		all, err = instancesOf(ctx, q, names)
		return err
	})
	return all, err
}

func instancesOf(ctx context.Context, q *db.Queries, names []fleet.InstanceName) (map[fleet.InstanceName]Instance, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("list names: %w", err)
	}
	rows, err := q.InstancesOf(ctx, string(list))
	if err != nil {
		return nil, err
	}
	slots, err := q.SlotsOf(ctx, string(list))
	if err != nil {
		return nil, err
	}
	all := make(map[fleet.InstanceName]Instance, len(names))
	for _, name := range names {
		all[name] = Instance{Name: name}
	}
	for _, row := range rows {
		all[fleet.InstanceName(row.Name)] = instanceOf(row)
	}
	for _, slot := range slots {
		in := all[fleet.InstanceName(slot.Instance)]
		in.put(slot)
		all[in.Name] = in
	}
	return all, nil
}

// CompleteContents says which bodies are there, with their sizes.
func (s *Store) CompleteContents(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash]int64, error) {
	list, err := json.Marshal(hashes)
	if err != nil {
		return nil, fmt.Errorf("list hashes: %w", err)
	}
	rows, err := s.q.CompleteContents(ctx, string(list))
	if err != nil {
		return nil, fail("look for contents", err)
	}
	there := make(map[fleet.Hash]int64, len(rows))
	for _, row := range rows {
		there[fleet.Hash(row.Hash.String)] = row.Size
	}
	return there, nil
}
