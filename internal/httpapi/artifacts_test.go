package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// noise is content that no compression shortens.
func noise(size int) []byte {
	b := make([]byte, size)
	from := rand.NewChaCha8([32]byte{1})
	_, _ = from.Read(b) // never fails
	return b
}

// cutting breaks the first connections in the middle of their request bodies, once the
// server has kept the whole chunks that it was sent.
type cutting struct {
	left atomic.Int64
	at   int64
	kept func(upload string, bytes int64)
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && c.left.Add(-1) >= 0 {
		from, err := strconv.ParseInt(r.Header.Get("Upload-Offset"), 10, 64)
		if err != nil {
			return nil, err
		}
		cut := broken(func() { c.kept(path.Base(r.URL.Path), from+c.at/postgres.ChunkSize*postgres.ChunkSize) })
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, c.at), cut))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// broken is a line that is cut after something happened.
type broken func()

func (b broken) Read([]byte) (int, error) {
	b()
	return 0, errors.New("the line is cut")
}

// N2, N82
func TestArtifactUploads(t *testing.T) {
	t.Parallel()
	r := setup(t)
	want := noise(9<<20 + 12345)
	hash := compose.HashOf(want)

	t.Run("go on where a broken line left them", func(t *testing.T) {
		cut := &cutting{at: 2<<20 + 777, kept: func(upload string, bytes int64) {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for deadline := time.After(30 * time.Second); ; {
				u, err := r.store.GetUpload(t.Context(), upload)
				if err == nil && u.Received >= bytes {
					return
				}
				select {
				case <-tick.C:
				case <-deadline:
					t.Errorf("the server kept %d of %d bytes: %v", u.Received, bytes, err)
					return
				}
			}
		}}
		cut.left.Store(2)
		client, err := api.NewClient(r.url, r.operator, api.WithTransport(cut), api.WithPauses(time.Millisecond, time.Millisecond, time.Millisecond))
		require.NoError(t, err)
		var seen []int64
		a, err := client.UploadArtifact(t.Context(), api.Upload{
			Body: bytes.NewReader(want), Size: int64(len(want)),
			Progress: func(sent, _ int64) { seen = append(seen, sent) },
		})
		require.NoError(t, err)
		require.Equal(t, api.Artifact{SHA256: hash, Size: int64(len(want))}, a)
		require.Contains(t, seen, int64(2<<20), "whole chunks of the cut piece are kept")
		require.Contains(t, seen, int64(4<<20), "also after the second cut")
		size, err := r.store.BodySize(t.Context(), "default", hash)
		require.NoError(t, err)
		require.EqualValues(t, len(want), size)
		body, err := r.store.OpenBody(t.Context(), hash)
		require.NoError(t, err)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})

	t.Run("may be one stream of unknown length", func(t *testing.T) {
		a := r.call(r.operator, http.MethodPost, "/api/v1/artifacts?sha256="+string(hash), unannounced{bytes.NewReader(want)})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		require.Equal(t, hash, into[api.Artifact](t, a).SHA256)
	})

	t.Run("may be empty", func(t *testing.T) {
		client, err := api.NewClient(r.url, r.operator)
		require.NoError(t, err)
		a, err := client.UploadArtifact(t.Context(), api.Upload{Body: bytes.NewReader(nil)})
		require.NoError(t, err)
		require.Equal(t, compose.HashOf(nil), a.SHA256)
	})

	t.Run("are refused when something else arrived", func(t *testing.T) {
		a := r.call(r.operator, http.MethodPost, "/api/v1/artifacts?sha256="+string(hash), "something else")
		p := a.problem(t)
		require.Equal(t, api.ProblemPrefix+string(fleet.HashMismatch), p.Type)
		require.Equal(t, "sha256", p.Field)
	})

	t.Run("are told where they stand", func(t *testing.T) {
		begun := r.call(r.operator, http.MethodPost, "/api/v1/artifacts?resumable=true", noise(postgres.ChunkSize))
		require.Equal(t, http.StatusAccepted, begun.status, string(begun.body))
		id := into[api.Artifact](t, begun).Upload
		path := "/api/v1/artifacts/uploads/" + id
		require.Equal(t, path, begun.header.Get("Location"))
		require.Equal(t, fmt.Sprint(postgres.ChunkSize), begun.header.Get("Upload-Offset"))
		require.Equal(t, fmt.Sprint(postgres.ChunkSize), r.call(r.operator, http.MethodHead, path, nil).header.Get("Upload-Offset"))

		wrong := r.call(r.operator, http.MethodPatch, path, "tail", "Upload-Offset", "0")
		require.Equal(t, api.ProblemPrefix+string(fleet.Conflict), wrong.problem(t).Type)
		require.Equal(t, fmt.Sprint(postgres.ChunkSize), wrong.header.Get("Upload-Offset"))
		require.Equal(t, "Upload-Offset", r.call(r.operator, http.MethodPatch, path, "tail").problem(t).Field)

		last := r.call(r.operator, http.MethodPatch, path, "tail", "Upload-Offset", fmt.Sprint(postgres.ChunkSize))
		require.Equal(t, http.StatusNoContent, last.status)
		require.Equal(t, fmt.Sprint(postgres.ChunkSize+4), last.header.Get("Upload-Offset"))
		after := r.call(r.operator, http.MethodPatch, path, "more", "Upload-Offset", fmt.Sprint(postgres.ChunkSize+4))
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), after.problem(t).Type)

		sum := compose.HashOf(append(noise(postgres.ChunkSize), "tail"...))
		for range 2 { // the second as if the first answer was lost
			done := r.call(r.operator, http.MethodPost, path+"/complete?sha256="+string(sum), nil)
			require.Equal(t, http.StatusCreated, done.status, string(done.body))
			require.Equal(t, api.Artifact{SHA256: sum, Size: postgres.ChunkSize + 4}, into[api.Artifact](t, done))
		}
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodGet, path, nil).status)
	})

	t.Run("belong to their project", func(t *testing.T) {
		r.put("/api/v1/projects/red", nil)
		r.put("/api/v1/projects/blue", nil)
		r.site()
		red, blue := r.token("operator", "red"), r.token("operator", "blue")
		begun := into[api.Artifact](t, r.call(red, http.MethodPost, "/api/v1/artifacts?resumable=true", nil))
		path := "/api/v1/artifacts/uploads/" + begun.Upload
		require.Equal(t, http.StatusNotFound, r.call(blue, http.MethodGet, path, nil).status)
		require.Equal(t, http.StatusNotFound, r.call(blue, http.MethodPatch, path, "x", "Upload-Offset", "0").status)
		require.Equal(t, http.StatusOK, r.call(red, http.MethodGet, path, nil).status)

		a := into[api.Artifact](t, r.call(red, http.MethodPost, "/api/v1/artifacts", "red's own"))
		stolen := r.call(blue, http.MethodPut, press7Path, api.InstancePut{Artifact: a.SHA256})
		require.Equal(t, http.StatusNotFound, stolen.status, string(stolen.body))
		require.Equal(t, http.StatusAccepted, r.call(red, http.MethodPut, press7Path, api.InstancePut{Artifact: a.SHA256}).status)
	})
}
