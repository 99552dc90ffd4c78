package postgres

import (
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ChunkSize is the most that one row of a body holds.
const ChunkSize = 1 << 20

// PutBody stores bytes once by their hash and lets a project refer to them. It does not
// wait for the disk: the change that refers to them, which is what is answered, comes
// after it in the log and flushes both.
func (s *Store) PutBody(ctx context.Context, project fleet.ProjectName, body []byte) (fleet.Hash, error) {
	sum := sha256.Sum256(body)
	err := s.Tx(ctx, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil {
			return err
		}
		known, err := knownBody(ctx, q, sum[:])
		if err != nil || known {
			return orAllow(ctx, q, err, project, sum[:])
		}
		id, err := q.InsertWholeBody(ctx, db.InsertWholeBodyParams{Hash: sum[:], Size: int64(len(body))})
		if err != nil {
			return err
		}
		for idx := int32(0); len(body) > int(idx)*ChunkSize; idx++ {
			from := int(idx) * ChunkSize
			chunk := body[from:min(from+ChunkSize, len(body))]
			if err := q.InsertChunk(ctx, db.InsertChunkParams{BodyID: id, Idx: idx, Data: chunk}); err != nil {
				return err
			}
		}
		return orAllow(ctx, q, nil, project, sum[:])
	})
	return HashText(sum[:]), err
}

// knownBody takes the lock of a hash, so that two writers of the same bytes store one. A
// body that is there cannot be collected before the transaction ends.
func knownBody(ctx context.Context, q *db.Queries, sum []byte) (bool, error) {
	if err := q.LockBodyHash(ctx, int64(binary.BigEndian.Uint64(sum[:8]))); err != nil { //nolint:gosec // any 64 bits will do
		return false, err
	}
	_, err := q.UseBody(ctx, sum)
	if NoRows(err) {
		return false, nil
	}
	return err == nil, err
}

// orAllow lets a project refer to a body by its hash. Of what came from a peer ("") no project may.
func orAllow(ctx context.Context, q *db.Queries, err error, project fleet.ProjectName, sum []byte) error {
	if err != nil || project == "" {
		return err
	}
	return q.AllowBody(ctx, db.AllowBodyParams{Project: string(project), Hash: sum})
}

// BodySize gives the size of bytes that a project uploaded.
func (s *Store) BodySize(ctx context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error) {
	size, err := s.Q.BodyAllowed(ctx, db.BodyAllowedParams{Hash: HashBytes(h), Project: string(project)})
	if NoRows(err) {
		return 0, OrNotFound(nil, "artifact", string(h), "upload it first: POST /api/v1/artifacts")
	}
	return size, err
}

// Body reads a body by chunks; it is an io.ReadSeeker with the memory of one chunk.
type Body struct {
	ctx   context.Context //nolint:containedctx // an io.ReadSeeker has no other way to end with its request
	q     *db.Queries
	id    int64
	size  int64
	at    int64
	idx   int64
	chunk []byte
}

// OpenBody finds a body by hash.
func (s *Store) OpenBody(ctx context.Context, h fleet.Hash) (*Body, error) {
	row, err := s.Q.GetBody(ctx, HashBytes(h))
	if NoRows(err) {
		return nil, OrNotFound(nil, "body", string(h), "")
	}
	return &Body{ctx: ctx, q: s.Q, id: row.ID, size: row.Size, idx: -1}, err
}

// Size is the body's length in bytes.
func (b *Body) Size() int64 { return b.size }

// Read gives what is left of the chunk at the offset.
func (b *Body) Read(p []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	if idx := b.at / ChunkSize; idx != b.idx {
		data, err := b.q.ReadChunk(b.ctx, db.ReadChunkParams{BodyID: b.id, Idx: int32(idx)}) //nolint:gosec // 2^31 chunks are 2 PiB
		if err != nil {
			return 0, err
		}
		b.chunk, b.idx = data, idx
	}
	n := copy(p, b.chunk[b.at%ChunkSize:])
	b.at += int64(n)
	return n, nil
}

// Seek moves the offset.
func (b *Body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, fleet.Errorf(fleet.Invalid, "seek before the start of a body")
	}
	b.at = offset
	return offset, nil
}

// Upload is an artifact on its way in.
type Upload struct {
	ID       string
	Project  fleet.ProjectName
	Received int64
	Created  time.Time
}

// StartUpload makes a body without a hash, which grows by AppendUpload.
func (s *Store) StartUpload(ctx context.Context, project fleet.ProjectName) (Upload, error) {
	u := Upload{Project: project, Created: time.Now()}
	id, err := NewID()
	if err != nil {
		return u, err
	}
	state, err := marshalHash(sha256.New())
	if err != nil {
		return u, err
	}
	u.ID = id
	err = s.Tx(ctx, func(q *db.Queries) error {
		body, err := q.InsertBody(ctx)
		if err != nil {
			return err
		}
		return q.InsertUpload(ctx, db.InsertUploadParams{ID: id, Project: string(project), BodyID: body, HashState: state})
	})
	return u, err
}

// StartOwnUpload is StartUpload for what the region itself fetches, under an id that it chooses. It may be repeated.
func (s *Store) StartOwnUpload(ctx context.Context, id string) error {
	_, err := s.Q.GetUpload(ctx, id)
	if !NoRows(err) {
		return err
	}
	state, err := marshalHash(sha256.New())
	if err != nil {
		return err
	}
	return s.Tx(ctx, func(q *db.Queries) error {
		body, err := q.InsertBody(ctx)
		if err != nil {
			return err
		}
		n, err := q.InsertOwnUpload(ctx, db.InsertOwnUploadParams{ID: id, BodyID: body, HashState: state})
		if err != nil || n > 0 {
			return err
		}
		return q.DropBody(ctx, body) // another server was first
	})
}

// DropUpload forgets an upload and its bytes.
func (s *Store) DropUpload(ctx context.Context, id string) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		u, err := q.LockUpload(ctx, id)
		if NoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return q.DropBody(ctx, u.BodyID)
	})
}

// GetUpload says how far an upload is.
func (s *Store) GetUpload(ctx context.Context, id string) (Upload, error) {
	row, err := s.Q.GetUpload(ctx, id)
	if NoRows(err) {
		return Upload{}, OrNotFound(nil, "upload", id, "start one: POST /api/v1/artifacts")
	}
	return Upload{row.ID, fleet.ProjectName(row.Project), row.Received, row.CreatedAt}, err
}

// AppendUpload stores what r gives from an offset on, chunk by chunk, each committed on
// its own, and says how many bytes there are now. The offset must be the one reached; a
// part of a chunk is kept only at the end of r, so a resume starts at a multiple of
// ChunkSize unless the upload is complete.
func (s *Store) AppendUpload(ctx context.Context, id string, offset int64, r io.Reader, last bool) (int64, error) { //nolint:revive // last says what the bytes are, not what to do
	buf := make([]byte, ChunkSize)
	for {
		n, err := io.ReadFull(r, buf)
		whole := err == nil
		if n == 0 || !whole && !errors.Is(err, io.ErrUnexpectedEOF) {
			return offset, readEnd(err)
		}
		if !whole && !last {
			return offset, nil // a cut in mid-chunk: that chunk is sent again
		}
		if err := s.appendChunk(ctx, id, offset, buf[:n]); err != nil {
			return offset, err
		}
		offset += int64(n)
		if !whole {
			return offset, readEnd(err)
		}
	}
}

func readEnd(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	var known *fleet.Error // the sender is refused
	if errors.As(err, &known) {
		return known
	}
	return fleet.Errorf(fleet.Communication, "the upload was interrupted").WithHint("continue from the offset that GET returns")
}

func (s *Store) appendChunk(ctx context.Context, id string, offset int64, chunk []byte) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		u, err := q.LockUpload(ctx, id)
		if NoRows(err) {
			return OrNotFound(nil, "upload", id, "start one: POST /api/v1/artifacts")
		}
		if err != nil {
			return err
		}
		if u.Received != offset || offset%ChunkSize != 0 {
			return fleet.Errorf(fleet.Conflict, "the upload is at offset %d", u.Received).At("Upload-Offset").
				WithHint("continue from there")
		}
		h, err := unmarshalHash(u.HashState)
		if err != nil {
			return err
		}
		h.Write(chunk)
		state, err := marshalHash(h)
		if err != nil {
			return err
		}
		idx := int32(offset / ChunkSize) //nolint:gosec // 2^31 chunks are 2 PiB
		if err := q.InsertChunk(ctx, db.InsertChunkParams{BodyID: u.BodyID, Idx: idx, Data: chunk}); err != nil {
			return err
		}
		return q.AdvanceUpload(ctx, db.AdvanceUploadParams{ID: id, Received: offset + int64(len(chunk)), HashState: state})
	})
}

// FinishUpload names the bytes by their hash; bytes that the region has already are kept
// once. want is refused when it is not what arrived ("" for any).
func (s *Store) FinishUpload(ctx context.Context, id string, want fleet.Hash) (fleet.Content, error) {
	var out fleet.Content
	err := s.Tx(ctx, func(q *db.Queries) error {
		u, err := q.LockUpload(ctx, id)
		if NoRows(err) {
			return OrNotFound(nil, "upload", id, "start one: POST /api/v1/artifacts")
		}
		if err != nil {
			return err
		}
		h, err := unmarshalHash(u.HashState)
		if err != nil {
			return err
		}
		sum := h.Sum(nil)
		out = fleet.Content{Kind: fleet.ContentArtifact, Hash: HashText(sum), Size: u.Received}
		if want != "" && want != out.Hash {
			return fleet.Errorf(fleet.HashMismatch, "the upload has SHA-256 %s", out.Hash).At("sha256").
				WithHint("start the upload again")
		}
		known, err := knownBody(ctx, q, sum)
		if err != nil {
			return err
		}
		if known {
			if err := q.DropBody(ctx, u.BodyID); err != nil {
				return err
			}
			return orAllow(ctx, q, nil, fleet.ProjectName(u.Project), sum)
		}
		if _, err := q.FinishBody(ctx, db.FinishBodyParams{ID: u.BodyID, Hash: sum, Size: u.Received}); err != nil {
			return err
		}
		if err := q.DropUpload(ctx, id); err != nil {
			return err
		}
		return orAllow(ctx, q, nil, fleet.ProjectName(u.Project), sum)
	})
	return out, err
}

func marshalHash(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, fleet.Errorf(fleet.Internal, "cannot save the SHA-256 state")
	}
	b, err := m.MarshalBinary()
	return b, err
}

func unmarshalHash(state []byte) (hash.Hash, error) {
	h := sha256.New()
	u, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, fleet.Errorf(fleet.Internal, "cannot restore the SHA-256 state")
	}
	return h, Unreadable("the hash of an upload", u.UnmarshalBinary(state))
}

// Hold keeps bodies from being collected until the transaction has committed its reference
// to them. A row lock that both sides take decides who was first: the collection passes over
// what is held, and a writer that comes later waits and then misses the body.
func Hold(ctx context.Context, q *db.Queries, hashes ...fleet.Hash) error {
	distinct := map[fleet.Hash]bool{}
	var keys [][]byte
	for _, h := range hashes {
		if b := HashBytes(h); b != nil && !distinct[h] {
			distinct[h] = true
			keys = append(keys, b)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return q.HoldBodies(ctx, keys)
}

// WholeBodies reads those of some bodies that are at most a chunk, with one query.
func (s *Store) WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	rows, err := s.Q.BodiesInOneChunk(ctx, HashesBytes(hashes))
	out := make(map[fleet.Hash][]byte, len(rows))
	for _, r := range rows {
		out[HashText(r.Hash)] = r.Data
	}
	return out, err
}
