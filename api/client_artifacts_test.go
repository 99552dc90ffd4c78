package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// depot takes uploads, and loses connections where a test says so.
type depot struct {
	mu      sync.Mutex
	data    []byte
	patches int
	// cut is how many bytes of the n-th piece arrive before its connection breaks; -1 keeps it.
	cut func(n int) int64
	// refuse answers the n-th piece with a status; 0 takes it.
	refuse func(n int) int
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := func() { w.Header().Set(OffsetField, fmt.Sprint(len(d.data))) }
	switch {
	case r.URL.Path == "/api/v1/artifacts":
		at()
		answer(w, 202, Artifact{Upload: "u1"})
	case r.Method == http.MethodGet:
		at()
	case r.Method == http.MethodPatch:
		d.patches++
		if status := d.refuse(d.patches); status != 0 {
			w.WriteHeader(status)
			return
		}
		if r.Header.Get(OffsetField) != fmt.Sprint(len(d.data)) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		if n := d.cut(d.patches); n >= 0 {
			part, _ := io.ReadAll(io.LimitReader(r.Body, n))
			d.data = append(d.data, part...)
			hangUp(w)
			return
		}
		all, _ := io.ReadAll(r.Body)
		d.data = append(d.data, all...)
		at()
	default:
		sum := sha256.Sum256(d.data)
		if got := hex.EncodeToString(sum[:]); got != r.URL.Query().Get("sha256") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		answer(w, 201, Artifact{SHA256: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(len(d.data))})
	}
}

// holds says what arrived, and in how many pieces.
func (d *depot) holds() ([]byte, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.data), d.patches
}

func newDepot() *depot {
	return &depot{cut: func(int) int64 { return -1 }, refuse: func(int) int { return 0 }}
}

func bodyOf(size int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), size/16) }

func TestUploadArtifact(t *testing.T) {
	t.Parallel()

	t.Run("sends pieces and shows what the region holds", func(t *testing.T) {
		t.Parallel()
		d, body := newDepot(), bodyOf(2*uploadPiece+1600)
		var sent []int64
		a, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{
			Body: bytes.NewReader(body), Size: int64(len(body)), Progress: func(n, _ int64) { sent = append(sent, n) },
		})
		require.NoError(t, err)
		require.Equal(t, int64(len(body)), a.Size)
		data, _ := d.holds()
		require.True(t, bytes.Equal(body, data))
		require.Equal(t, []int64{0, uploadPiece, 2 * uploadPiece, int64(len(body))}, sent)
	})

	t.Run("goes on where the region stands when connections break, however often", func(t *testing.T) {
		t.Parallel()
		d, body := newDepot(), bodyOf(uploadPiece)
		d.cut = func(n int) int64 { // eight breaks, each behind some progress
			if n <= 8 {
				return 300_000
			}
			return -1
		}
		_, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: bytes.NewReader(body), Size: int64(len(body))})
		require.NoError(t, err)
		data, patches := d.holds()
		require.True(t, bytes.Equal(body, data))
		require.Equal(t, 9, patches)
	})

	t.Run("goes on with an upload of an earlier run", func(t *testing.T) {
		t.Parallel()
		d, body := newDepot(), bodyOf(3200)
		d.data = append(d.data, body[:1000]...)
		_, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: bytes.NewReader(body), Size: 3200, ID: "u1"})
		require.NoError(t, err)
		data, _ := d.holds()
		require.True(t, bytes.Equal(body, data))
	})

	t.Run("gives up without progress and names the upload to go on with", func(t *testing.T) {
		t.Parallel()
		d := newDepot()
		d.cut = func(int) int64 { return 0 }
		_, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: bytes.NewReader(bodyOf(1600)), Size: 1600})
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		require.ErrorContains(t, err, "resume upload u1")
		_, patches := d.holds()
		require.Equal(t, 4, patches)
	})

	t.Run("takes a refusal for an answer", func(t *testing.T) {
		t.Parallel()
		d := newDepot()
		d.refuse = func(int) int { return http.StatusRequestEntityTooLarge }
		_, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: bytes.NewReader(bodyOf(1600)), Size: 1600})
		require.Equal(t, fleet.TooLarge, fleet.KindOf(err))
		_, patches := d.holds()
		require.Equal(t, 1, patches)
	})

	t.Run("tells a file that cannot be read from a bad connection", func(t *testing.T) {
		t.Parallel()
		d := newDepot()
		_, err := clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: &failing{after: 1, size: 1600}, Size: 1600})
		require.ErrorContains(t, err, "read artifact: the disk is gone")
		_, patches := d.holds()
		require.LessOrEqual(t, patches, 1, "it was not tried again")
		_, err = clientOf(t, d.ServeHTTP).UploadArtifact(t.Context(), Upload{Body: strings.NewReader("short"), Size: 6})
		require.ErrorContains(t, err, "the artifact has 5 bytes instead of the announced 6")
	})

	t.Run("of nothing is an artifact too", func(t *testing.T) {
		t.Parallel()
		a, err := clientOf(t, newDepot().ServeHTTP).UploadArtifact(t.Context(), Upload{Body: strings.NewReader("")})
		require.NoError(t, err)
		require.Equal(t, fleet.Hash("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), a.SHA256)
	})
}

// failing is a file that can be read once, for its hash.
type failing struct {
	mu          sync.Mutex
	after, size int
	seen        int
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off == 0 {
		f.seen++
	}
	if f.seen > f.after {
		return 0, errors.New("the disk is gone")
	}
	n := min(len(p), f.size-int(off))
	return n, nil
}
