package postgres_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// noise is n bytes that no two chunks of which are the same.
func noise(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(out) // it never fails
	return out
}

func hashOf(data []byte) fleet.Hash {
	sum := sha256.Sum256(data)
	return fleet.Hash(hex.EncodeToString(sum[:]))
}

func (b *bench) read(h fleet.Hash) []byte {
	b.T.Helper()
	body, err := b.OpenBody(b.Ctx(), h)
	require.NoError(b.T, err)
	data, err := io.ReadAll(body)
	require.NoError(b.T, err)
	require.EqualValues(b.T, len(data), body.Size())
	return data
}

func TestPutBody(t *testing.T) {
	t.Parallel()

	t.Run("stores the same bytes once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		for range 2 {
			h, err := b.PutBody(t.Context(), project, []byte("press"))
			require.NoError(t, err)
			require.Equal(t, hashOf([]byte("press")), h)
		}
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM bodies"))
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM body_chunks"))
	})

	t.Run("stores them once for many writers at once, whom all it lets refer to them", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(100_000)
		projects := []fleet.ProjectName{"a", "b", "c"}
		require.NoError(t, stores.AtOnce(12, func(i int) error {
			_, err := b.PutBody(t.Context(), projects[i%3], data)
			return err
		}))
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM bodies"))
		for _, p := range projects {
			size, err := b.BodySize(t.Context(), p, hashOf(data))
			require.NoError(t, err)
			require.EqualValues(t, len(data), size)
		}
	})

	for name, size := range map[string]int{
		"no bytes": 0, "one byte": 1, "a chunk": postgres.ChunkSize, "a chunk and a byte": postgres.ChunkSize + 1,
		"two chunks": 2 * postgres.ChunkSize, "two chunks less a byte": 2*postgres.ChunkSize - 1,
	} {
		t.Run("keeps "+name, func(t *testing.T) {
			t.Parallel()
			b := bare(t)
			data := noise(size)
			h, err := b.PutBody(t.Context(), project, data)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, b.read(h)))
			chunks := (size + postgres.ChunkSize - 1) / postgres.ChunkSize
			require.Equal(t, chunks, stores.Scan[int](b, "SELECT count(*) FROM body_chunks"))
		})
	}

	t.Run("gives nothing for a hash that nobody stored", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		_, err := b.OpenBody(t.Context(), hashOf([]byte("press")))
		stores.Refused(t, fleet.NotFound, err)
	})
}

// N96
func TestBodySeek(t *testing.T) {
	t.Parallel()
	b := bare(t)
	data := noise(2*postgres.ChunkSize + 4321)
	h, err := b.PutBody(t.Context(), project, data)
	require.NoError(t, err)
	edges := rapid.OneOf(
		rapid.Int64Range(-10, int64(len(data))+10),
		rapid.SampledFrom([]int64{0, postgres.ChunkSize - 1, postgres.ChunkSize, postgres.ChunkSize + 1, 2 * postgres.ChunkSize, int64(len(data))}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		got, err := b.OpenBody(t.Context(), h)
		require.NoError(rt, err)
		want := bytes.NewReader(data)
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "seek") {
				whence := rapid.SampledFrom([]int{io.SeekStart, io.SeekCurrent, io.SeekEnd}).Draw(rt, "whence")
				offset := edges.Draw(rt, "offset")
				if whence == io.SeekEnd {
					offset = -offset
				}
				at, wantErr := want.Seek(offset, whence)
				to, err := got.Seek(offset, whence)
				require.Equal(rt, wantErr == nil, err == nil)
				require.Equal(rt, at, to)
				continue
			}
			size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, postgres.ChunkSize+100)).Draw(rt, "bytes")
			p, q := make([]byte, size), make([]byte, size)
			n, wantErr := io.ReadFull(want, p)
			m, err := io.ReadFull(got, q)
			require.Equal(rt, wantErr, err)
			require.Equal(rt, n, m)
			require.True(rt, bytes.Equal(p, q))
		}
	})
}

// breaking gives some bytes and then fails.
func breaking(data []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(data), failingReader{})
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestUpload(t *testing.T) {
	t.Parallel()

	const chunk = postgres.ChunkSize
	start := func(b *bench) string {
		b.T.Helper()
		u, err := b.StartUpload(b.Ctx(), project)
		require.NoError(b.T, err)
		return u.ID
	}
	send := func(b *bench, id string, offset int64, r io.Reader, last bool) int64 {
		b.T.Helper()
		at, err := b.AppendUpload(b.Ctx(), id, offset, r, last)
		require.NoError(b.T, err)
		return at
	}
	at := func(b *bench, id string) int64 {
		b.T.Helper()
		u, err := b.GetUpload(b.Ctx(), id)
		require.NoError(b.T, err)
		require.Equal(b.T, project, u.Project)
		return u.Received
	}

	t.Run("is named by the hash of all its pieces", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(2*chunk + 77)
		id := start(b)
		require.EqualValues(t, chunk, send(b, id, 0, bytes.NewReader(data[:chunk]), false))
		require.EqualValues(t, len(data), send(b, id, chunk, bytes.NewReader(data[chunk:]), true))
		got, err := b.FinishUpload(t.Context(), id, hashOf(data))
		require.NoError(t, err)
		require.Equal(t, fleet.Content{Kind: fleet.ContentArtifact, Hash: hashOf(data), Size: int64(len(data))}, got)
		require.True(t, bytes.Equal(data, b.read(got.Hash)))
		_, err = b.GetUpload(t.Context(), id)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("of nothing is the empty body", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		id := start(b)
		require.Zero(t, send(b, id, 0, bytes.NewReader(nil), true))
		got, err := b.FinishUpload(t.Context(), id, "")
		require.NoError(t, err)
		require.Equal(t, hashOf(nil), got.Hash)
		require.Empty(t, b.read(got.Hash))
	})

	t.Run("goes on from the chunk at which it broke, whatever it was", func(t *testing.T) {
		t.Parallel()
		for _, last := range []bool{false, true} {
			b := bare(t)
			data := noise(2*chunk + 77)
			id := start(b)
			reached, err := b.AppendUpload(t.Context(), id, 0, breaking(data[:chunk+500]), last)
			stores.Refused(t, fleet.Communication, err)
			require.EqualValues(t, chunk, reached)
			require.EqualValues(t, chunk, at(b, id))
			require.EqualValues(t, chunk, send(b, id, chunk, bytes.NewReader(data[chunk:chunk+9]), false), "less than a chunk is not kept")
			require.EqualValues(t, len(data), send(b, id, at(b, id), bytes.NewReader(data[chunk:]), true))
			got, err := b.FinishUpload(t.Context(), id, hashOf(data))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, b.read(got.Hash)))
		}
	})

	t.Run("at another offset than it stands is refused", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(chunk)
		id := start(b)
		_, err := b.AppendUpload(t.Context(), id, chunk, bytes.NewReader(data), true)
		stores.Refused(t, fleet.Conflict, err)
		send(b, id, 0, bytes.NewReader(data), false)
		_, err = b.AppendUpload(t.Context(), id, 0, bytes.NewReader(data), true)
		stores.Refused(t, fleet.Conflict, err)
		require.EqualValues(t, chunk, at(b, id))
		_, err = b.AppendUpload(t.Context(), "unknown", 0, bytes.NewReader(data), true)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("sent twice at once is stored once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(chunk + 5)
		id := start(b)
		require.NoError(t, stores.AtOnce(4, func(int) error {
			_, err := b.AppendUpload(t.Context(), id, 0, bytes.NewReader(data), true)
			if fleet.KindOf(err) == fleet.Conflict {
				return nil
			}
			return err
		}))
		got, err := b.FinishUpload(t.Context(), id, "")
		require.NoError(t, err)
		require.Equal(t, hashOf(data), got.Hash)
	})

	t.Run("of bytes that the region has keeps one copy", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(chunk + 5)
		_, err := b.PutBody(t.Context(), "other", data)
		require.NoError(t, err)
		ids := make([]string, 3)
		for i := range ids {
			ids[i] = start(b)
			send(b, ids[i], 0, bytes.NewReader(data), true)
		}
		require.NoError(t, stores.AtOnce(len(ids), func(i int) error {
			got, err := b.FinishUpload(t.Context(), ids[i], "")
			if err == nil && got.Hash != hashOf(data) {
				return errors.New("another hash")
			}
			return err
		}))
		require.Equal(t, []int64{1, 2, 0}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM bodies),
			(SELECT count(*) FROM body_chunks), (SELECT count(*) FROM uploads)]`))
		_, err = b.BodySize(t.Context(), project, hashOf(data))
		require.NoError(t, err)
	})

	t.Run("finished by many at once under new bytes keeps one copy", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		data := noise(4096)
		ids := make([]string, 6)
		for i := range ids {
			ids[i] = start(b)
			send(b, ids[i], 0, bytes.NewReader(data), true)
		}
		require.NoError(t, stores.AtOnce(len(ids), func(i int) error {
			_, err := b.FinishUpload(t.Context(), ids[i], "")
			return err
		}))
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM bodies"))
		require.True(t, bytes.Equal(data, b.read(hashOf(data))))
	})

	t.Run("that is not what was announced is refused, and names nothing", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		id := start(b)
		send(b, id, 0, bytes.NewReader([]byte("what came")), true)
		_, err := b.FinishUpload(t.Context(), id, hashOf([]byte("what was meant")))
		stores.Refused(t, fleet.HashMismatch, err)
		_, err = b.BodySize(t.Context(), project, hashOf([]byte("what came")))
		stores.Refused(t, fleet.NotFound, err)
		require.EqualValues(t, 9, at(b, id), "it can still be finished as what it is")
	})
}

func TestBodyOfProject(t *testing.T) {
	t.Parallel()
	b := setup(t)
	data := []byte("weights")
	_, err := b.PutBody(t.Context(), "other", data)
	require.NoError(t, err)
	_, err = b.BodySize(t.Context(), project, hashOf(data))
	stores.Refused(t, fleet.NotFound, err)
	content := fleet.Content{Kind: fleet.ContentArtifact, Hash: hashOf(data), Size: int64(len(data))}
	c := b.ChangeOf(`{}`, func(c *deliveries.InstanceChange) {
		c.Spec.Config, c.Spec.Artifact, c.Content = nil, &content, content
	})
	_, err = b.PutInstance(t.Context(), c)
	stores.Refused(t, fleet.NotFound, err)
	_, err = b.PutBody(t.Context(), project, data)
	require.NoError(t, err)
	_, err = b.PutInstance(t.Context(), c)
	require.NoError(t, err)
}
