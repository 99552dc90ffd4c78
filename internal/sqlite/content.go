package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// MaxChunk is the limit of one transaction, and of what a kill can lose.
const MaxChunk = 1 << 20

// Staging is a body that is being received. One at a time per hash.
type Staging struct {
	store    *Store
	want     fleet.Content
	id       int64 // 0 while the file has nothing of the body
	received int64
	complete bool
	sum      hash.Hash
	whole    []byte // all of a body that came in one piece, until a slot refers to it
}

// OpenStaging starts a body, or continues where an earlier download of it stopped.
func (s *Store) OpenStaging(ctx context.Context, want fleet.Content) (*Staging, error) {
	st := &Staging{store: s, want: want, sum: sha256.New()}
	row, err := s.q.GetContent(ctx, nullable(want.Hash))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return st, nil
	case err != nil:
		return nil, fail("open staging", err)
	case row.Size == want.Size:
		return st, st.resume(row)
	case row.Complete == 1: // it is verified, so its size is right
		return nil, fleet.Errorf(fleet.HashMismatch, "content %s has %d bytes, not %d", want.Hash, row.Size, want.Size)
	}
	st.id = row.ID
	return st, st.Restart(ctx) // a part of a body with another size proves nothing
}

func (st *Staging) resume(row db.Content) (err error) {
	st.id, st.received, st.complete = row.ID, row.Received, row.Complete == 1
	st.sum, err = unmarshal(row.ShaState)
	return err
}

// Received is the number of bytes received.
func (st *Staging) Received() int64 { return st.received }

// Complete tells whether the whole body is stored and verified.
func (st *Staging) Complete() bool { return st.complete }

// Append commits the next chunk together with its hash state. It keeps a whole body in one piece in memory
// instead, data itself: that becomes durable with the slot that refers to it.
func (st *Staging) Append(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if len(data) > MaxChunk || st.received+int64(len(data)) > st.want.Size {
		return fleet.Errorf(fleet.HashMismatch, "content %s is longer than its %d bytes", st.want.Hash, st.want.Size)
	}
	// The state in memory must not be ahead of the file when the commit fails.
	before, err := marshal(st.sum)
	if err != nil {
		return err
	}
	if _, err := st.sum.Write(data); err != nil {
		return fmt.Errorf("hash chunk: %w", err)
	}
	if st.id == 0 && int64(len(data)) == st.want.Size {
		st.whole, st.received = data, st.want.Size
		return nil
	}
	if err := st.commit(ctx, data); err != nil {
		sum, undo := unmarshal(before)
		st.sum = sum
		return errors.Join(err, undo)
	}
	st.received += int64(len(data))
	return nil
}

func (st *Staging) commit(ctx context.Context, data []byte) error {
	state, err := marshal(st.sum)
	if err != nil {
		return err
	}
	id := st.id
	err = st.store.write(ctx, "store chunk", func(ctx context.Context, q *db.Queries) (err error) {
		if id == 0 {
			if id, err = st.begin(ctx, q); err != nil {
				return err
			}
		}
		n, err := q.Advance(ctx, db.AdvanceParams{
			ID: id, Position: st.received, Received: st.received + int64(len(data)), ShaState: state,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return st.givenUp()
		}
		return q.AddChunk(ctx, db.AddChunkParams{ContentID: id, Position: st.received, Data: data})
	})
	if err == nil {
		st.id = id
	}
	return err
}

// begin creates the row of the parts of a body.
func (st *Staging) begin(ctx context.Context, q *db.Queries) (int64, error) {
	fresh, err := marshal(sha256.New())
	if err != nil {
		return 0, err
	}
	id, err := q.CreateContent(ctx, db.CreateContentParams{
		Hash: nullable(st.want.Hash), Size: st.want.Size, ShaState: fresh,
	})
	if errors.Is(err, sql.ErrNoRows) {
		return 0, st.givenUp() // another staging of it started
	}
	return id, err
}

func (st *Staging) givenUp() error {
	return fleet.Errorf(fleet.Stale, "the staging of %s was discarded", st.want.Hash)
}

// Seal verifies the whole body. One with another hash is discarded and changes nothing.
func (st *Staging) Seal(ctx context.Context) error {
	if st.complete {
		return nil
	}
	if st.received != st.want.Size {
		return fleet.Errorf(fleet.IllegalState, "content %s has %d of %d bytes", st.want.Hash, st.received, st.want.Size)
	}
	if got := fleet.Hash(hex.EncodeToString(st.sum.Sum(nil))); got != st.want.Hash {
		mismatch := fleet.Errorf(fleet.HashMismatch, "the body has hash %s; expected %s", got, st.want.Hash)
		return errors.Join(mismatch, st.Restart(ctx))
	}
	if st.id == 0 {
		st.complete = true
		return nil
	}
	err := st.store.write(ctx, "complete content", func(ctx context.Context, q *db.Queries) error {
		n, err := q.Complete(ctx, st.id)
		if err == nil && n == 0 {
			return st.givenUp()
		}
		return err
	})
	st.complete = err == nil
	return err
}

// put stores a verified body that the file lacks, in the transaction of the slot that refers to it.
func (st *Staging) put(ctx context.Context, q *db.Queries) error {
	if st == nil || st.id != 0 || !st.complete {
		return nil
	}
	row, err := q.GetContent(ctx, nullable(st.want.Hash))
	if err == nil && row.Complete == 1 || err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := q.Discard(ctx, nullable(st.want.Hash)); err != nil { // a part of another staging
		return err
	}
	state, err := marshal(st.sum)
	if err != nil {
		return err
	}
	id, err := q.PutContent(ctx, db.PutContentParams{Hash: nullable(st.want.Hash), Size: st.want.Size, ShaState: state})
	if err != nil || len(st.whole) == 0 {
		return err
	}
	return q.AddChunk(ctx, db.AddChunkParams{ContentID: id, Data: st.whole})
}

// Restart drops what was received and starts at the first byte again; Collect removes the rest.
func (st *Staging) Restart(ctx context.Context) error {
	if st.id != 0 {
		if err := st.store.write(ctx, "restart staging", func(ctx context.Context, q *db.Queries) error {
			return q.Discard(ctx, nullable(st.want.Hash))
		}); err != nil {
			return err
		}
	}
	st.id, st.received, st.complete, st.whole = 0, 0, false, nil
	st.sum.Reset()
	return nil
}

// HasContent tells whether a body is complete.
func (s *Store) HasContent(ctx context.Context, h fleet.Hash) (bool, error) {
	row, err := s.q.GetContent(ctx, nullable(h))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil && row.Complete == 1, fail("look for content", err)
}

// WriteContent copies a complete body to w, one chunk in memory at a time.
func (s *Store) WriteContent(ctx context.Context, c fleet.Content, w io.Writer) error {
	for at := int64(0); at < c.Size; {
		chunk, err := s.q.NextChunk(ctx, db.NextChunkParams{Hash: nullable(c.Hash), Position: at})
		if err == nil && chunk.Position != at {
			err = fmt.Errorf("a chunk at %d is missing", at)
		}
		if err != nil {
			return fail("read content", err)
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return fmt.Errorf("copy content: %w", err)
		}
		at += int64(len(chunk.Data))
	}
	return nil
}

func marshal(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, fleet.Errorf(fleet.Internal, "this SHA-256 cannot save its state")
	}
	state, err := m.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save hash state: %w", err)
	}
	return state, nil
}

func unmarshal(state []byte) (hash.Hash, error) {
	h := sha256.New()
	m, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, fleet.Errorf(fleet.Internal, "this SHA-256 cannot load its state")
	}
	if err := m.UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("load hash state: %w", err)
	}
	return h, nil
}
