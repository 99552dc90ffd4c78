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

// Turn is what CommitBatch does with one attempt.
type Turn int

const (
	// TurnCommit accepts it and makes it current, as Accept and Commit do.
	TurnCommit Turn = iota
	// TurnKeep accepts it and stores its body, but leaves the slots to the later switch: until then the high-water
	// mark keeps the body. Without a body it is Accept.
	TurnKeep
	// TurnSetAside stores its body for a later switch, as SetAside does, and accepts nothing.
	TurnSetAside
	// TurnRenumber gives the current revision a new number, as Renumber does.
	TurnRenumber
)

// Step is one attempt of a batch.
type Step struct {
	Attempt
	Turn Turn
}

// Whole is the verified body of an Attempt in memory.
func Whole(want fleet.Content, data []byte) (*Staging, error) {
	sum := sha256.New()
	_, _ = sum.Write(data) // a hash accepts everything
	if got := fleet.Hash(hex.EncodeToString(sum.Sum(nil))); got != want.Hash || int64(len(data)) != want.Size {
		return nil, fleet.Errorf(fleet.HashMismatch, "the body has hash %s and %d bytes; expected %s and %d",
			got, len(data), want.Hash, want.Size)
	}
	return &Staging{want: want, received: want.Size, complete: true, sum: sum, whole: data}, nil
}

// CommitBatch commits many attempts, each of another name, in one transaction. Each succeeds or fails on its
// own: a refused or failed one leaves nothing, and its error is at its index.
func (s *Store) CommitBatch(ctx context.Context, steps []Step) ([]error, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	// Savepoints double the cost of a step, and few steps need one.
	refused, err := s.commitBatch(ctx, steps, (*batch).bare)
	if errors.Is(err, errHalf) {
		refused, err = s.commitBatch(ctx, steps, (*batch).saved)
	}
	return refused, err
}

// errHalf: a step failed after it had written something.
var errHalf = errors.New("a step of the batch failed halfway")

// takeStep commits one step, or refuses it. The second error is of the whole batch.
type takeStep func(*batch, context.Context, Step) (refused, err error)

func (s *Store) commitBatch(ctx context.Context, steps []Step, take takeStep) ([]error, error) {
	refused := make([]error, len(steps))
	err := s.tx(ctx, "commit batch", nil, func(ctx context.Context, tx *sql.Tx) error {
		b := &batch{tx: tx, q: s.q.WithTx(tx), recent: &s.recent, rights: map[Right]error{}, taken: map[fleet.InstanceName]bool{}}
		if err := b.read(ctx, steps); err != nil {
			return err
		}
		for i, step := range steps {
			var err error
			if refused[i], err = take(b, ctx, step); err != nil {
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
	recent *recent
	held   holdings // before the batch
	taken  map[fleet.InstanceName]bool
	bodies map[fleet.Hash]bool // that the file has, or part of
	wanted map[fleet.Hash]bool // by a step
	rights map[Right]error
}

func (b *batch) read(ctx context.Context, steps []Step) error {
	names, hashes := make([]fleet.InstanceName, len(steps)), make([]fleet.Hash, len(steps))
	b.wanted = make(map[fleet.Hash]bool, len(steps))
	for i, step := range steps {
		names[i], hashes[i] = step.Instance, step.Revision.Content.Hash
		b.wanted[hashes[i]] = true
	}
	var err error
	if b.held, err = b.recent.instances(ctx, b.q, names); err != nil {
		return err
	}
	rows, err := b.recent.contents(ctx, b.q, hashes)
	b.bodies = make(map[fleet.Hash]bool, len(rows))
	for _, row := range rows {
		b.bodies[fleet.Hash(row.Hash.String)] = true
	}
	return err
}

// bare commits a step whose refusal, if any, comes before its first change.
func (b *batch) bare(ctx context.Context, step Step) (refused, err error) {
	if err := b.accept(ctx, step); err != nil {
		return fail("commit revision", err), nil
	}
	if err := b.do(ctx, step); err != nil {
		return nil, errors.Join(errHalf, err)
	}
	return nil, nil
}

// saved commits a step inside a savepoint.
func (b *batch) saved(ctx context.Context, step Step) (refused, err error) {
	if _, err := b.tx.ExecContext(ctx, "SAVEPOINT step"); err != nil {
		return nil, err
	}
	if refused = b.accept(ctx, step); refused == nil {
		refused = b.do(ctx, step)
	}
	if refused != nil {
		refused = fail("commit revision", refused)
		if _, err := b.tx.ExecContext(ctx, "ROLLBACK TO step"); err != nil { // a full disk rolled back all of it
			return nil, errors.Join(refused, err)
		}
	}
	_, err = b.tx.ExecContext(ctx, "RELEASE step")
	return refused, err
}

// accept is the first write of a step: it raises the high-water mark, or sets aside.
func (b *batch) accept(ctx context.Context, step Step) error {
	if b.taken[step.Instance] {
		return fleet.Errorf(fleet.Invalid, "duplicate instance %s in the batch", step.Instance)
	}
	b.taken[step.Instance] = true
	if err := b.holding(ctx, step.Right); err != nil {
		return err
	}
	if step.Turn == TurnSetAside {
		return setAside(ctx, b.q, step.Attempt)
	}
	return raiseHeld(ctx, b.q, step.Attempt)
}

// holding checks each right once: the transaction has the writer's lock.
func (b *batch) holding(ctx context.Context, right Right) error {
	err, asked := b.rights[right]
	if !asked {
		err = holding(ctx, b.q, right)
		b.rights[right] = err
	}
	return err
}

func (b *batch) do(ctx context.Context, step Step) error {
	switch step.Turn {
	case TurnRenumber:
		return renumber(ctx, b.q, step.Attempt)
	case TurnKeep, TurnSetAside:
		if step.Body == nil {
			return nil
		}
		_, err := b.store(ctx, step.Body)
		return err
	case TurnCommit:
		return b.commit(ctx, step.Attempt, b.held.of[step.Instance])
	}
	return fleet.Errorf(fleet.Internal, "unknown turn %d of a batch", step.Turn)
}

// commit is stage and promote without anything in between.
func (b *batch) commit(ctx context.Context, a Attempt, in Instance) error {
	var content sql.NullInt64
	var err error
	if a.Body == nil {
		if content, err = contentID(ctx, b.q, a.Revision); err != nil {
			return err
		}
	}
	if in.Staged != nil {
		if err := b.drop(ctx, a.Instance, staged); err != nil {
			return err
		}
	}
	free, err := b.makeRoom(ctx, a, in)
	if err != nil {
		return err
	}
	if a.Body != nil {
		if content, err = b.replace(ctx, free, a.Body); err != nil {
			return err
		}
	}
	return b.q.AddSlot(ctx, db.AddSlotParams(slotOf(a, current, content)))
}

// makeRoom is the makeRoom of a switch, without steps that would find nothing. It returns the previous revision
// if that was removed.
func (b *batch) makeRoom(ctx context.Context, a Attempt, in Instance) (gone *Slot, err error) {
	deleted := a.Revision.Action == fleet.ActionDelete
	keeps := in.Current != nil && !deleted && !in.Current.Deleted()
	same := keeps && sameContent(*in.Current, a.Revision)
	if in.Previous != nil && !same {
		if err := b.drop(ctx, a.Instance, previous); err != nil {
			return nil, err
		}
		gone = in.Previous
	}
	switch {
	case in.Current == nil:
		return gone, nil
	case same || !keeps:
		return gone, b.drop(ctx, a.Instance, current)
	}
	_, err = b.q.MoveSlot(ctx, db.MoveSlotParams{Instance: string(a.Instance), FromSlot: current, IntoSlot: previous})
	return gone, err
}

func (b *batch) drop(ctx context.Context, name fleet.InstanceName, slot string) error {
	return b.q.DropSlot(ctx, db.DropSlotParams{Instance: string(name), Slot: slot})
}

// maxReused bounds the bodies that are overwritten: a larger one has many pages, which Collect frees.
const maxReused = 64 << 10

// replace is store in place of the body of a removed slot, if nothing else uses that body and no step of the
// batch needs it. This saves Collect the search for it and its removal from every tree.
func (b *batch) replace(ctx context.Context, gone *Slot, body *Staging) (sql.NullInt64, error) {
	if gone == nil || !reusable(gone.Content.Size) || !reusable(int64(len(body.whole))) ||
		b.wanted[gone.Content.Hash] || b.bodies[body.want.Hash] {
		return b.store(ctx, body)
	}
	id := b.held.ids[gone.Content.Hash]
	state, err := marshal(body.sum)
	if err != nil {
		return sql.NullInt64{}, err
	}
	n, err := b.q.ReuseContent(ctx, db.ReuseContentParams{
		ID: id, Was: nullable(gone.Content.Hash), Hash: nullable(body.want.Hash), Size: body.want.Size, ShaState: state,
	})
	if err != nil {
		return sql.NullInt64{}, err
	}
	if n == 0 {
		return b.store(ctx, body)
	}
	n, err = b.q.UpdateChunk(ctx, db.UpdateChunkParams{ContentID: id, Data: body.whole})
	if err == nil && n != 1 {
		err = fleet.Errorf(fleet.Internal, "content %s has no chunk", gone.Content.Hash)
	}
	b.bodies[body.want.Hash] = true
	return sql.NullInt64{Int64: id, Valid: true}, err
}

func reusable(size int64) bool { return size > 0 && size <= maxReused }

// store stores a body that the file lacks, and returns its number.
func (b *batch) store(ctx context.Context, body *Staging) (sql.NullInt64, error) {
	if b.bodies[body.want.Hash] { // or another step of this batch stored it
		if err := body.put(ctx, b.q); err != nil {
			return sql.NullInt64{}, err
		}
		return contentID(ctx, b.q, fleet.Revision{Content: body.want})
	}
	state, err := marshal(body.sum)
	if err != nil {
		return sql.NullInt64{}, err
	}
	id, err := b.q.PutNewContent(ctx, db.PutNewContentParams{Hash: nullable(body.want.Hash), Size: body.want.Size, ShaState: state})
	if err == nil && len(body.whole) > 0 {
		err = b.q.AddChunk(ctx, db.AddChunkParams{ContentID: id, Data: body.whole})
	}
	b.bodies[body.want.Hash] = true // put checks again if this is rolled back
	return sql.NullInt64{Int64: id, Valid: true}, err
}

// InstancesOf reads some names at one moment; unknown names are zero Instances with their names. The map may
// have more entries, and must not be changed.
func (s *Store) InstancesOf(ctx context.Context, names []fleet.InstanceName) (map[fleet.InstanceName]Instance, error) {
	all := s.recent.instancesKnown(names)
	if all.of != nil {
		return all.of, nil
	}
	err := s.read(ctx, "read instances", func(ctx context.Context, q *db.Queries) (err error) {
		all, err = s.recent.instances(ctx, q, names)
		return err
	})
	return all.of, err
}

// holdings are some names at one moment, with the numbers of the bodies of their slots.
type holdings struct {
	of  map[fleet.InstanceName]Instance
	ids map[fleet.Hash]int64
}

func instancesOf(ctx context.Context, q *db.Queries, names []fleet.InstanceName) (holdings, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return holdings{}, fmt.Errorf("list names: %w", err)
	}
	rows, err := q.InstancesOf(ctx, string(list))
	if err != nil {
		return holdings{}, err
	}
	slots, err := q.SlotsOf(ctx, string(list))
	if err != nil {
		return holdings{}, err
	}
	all, ids := make(map[fleet.InstanceName]Instance, len(names)), make(map[fleet.Hash]int64, len(slots))
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
		ids[fleet.Hash(slot.Hash)] = slot.ContentID.Int64
	}
	return holdings{all, ids}, nil
}

// CompleteContents gives the complete bodies among hashes, with their sizes; it may include others.
func (s *Store) CompleteContents(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash]int64, error) {
	var rows []db.ContentsOfRow
	err := s.read(ctx, "look for contents", func(ctx context.Context, q *db.Queries) (err error) {
		rows, err = s.recent.contents(ctx, q, hashes)
		return err
	})
	if err != nil {
		return nil, err
	}
	there := make(map[fleet.Hash]int64, len(rows))
	for _, row := range rows {
		if row.Complete == 1 {
			there[fleet.Hash(row.Hash.String)] = row.Size
		}
	}
	return there, nil
}

func contentsOf(ctx context.Context, q *db.Queries, hashes []fleet.Hash) ([]db.ContentsOfRow, error) {
	list, err := json.Marshal(hashes)
	if err != nil {
		return nil, fmt.Errorf("list hashes: %w", err)
	}
	return q.ContentsOf(ctx, string(list))
}
