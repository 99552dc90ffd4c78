//go:build !race

package httpapi

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// sampling reads through, and remembers the largest heap that it saw.
type sampling struct {
	from  io.Reader
	read  int64
	next  int64
	most  uint64
	every int64
}

func (s *sampling) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if s.read += int64(n); s.read >= s.next {
		s.next += s.every
		s.most = max(s.most, heap())
	}
	return n, err
}

// heap is what lives: how far the collector is behind depends on what else the machine does.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// N97: not parallel, because it measures the heap that all tests share.
func TestMemoryIsBounded(t *testing.T) {
	const size, allowed = 64 << 20, 24 << 20
	r := setup(t)
	r.site()
	r.enrolled("plant-1-a")
	before := heap()
	check := func(s *sampling) {
		t.Helper()
		require.Less(t, s.most, before+allowed, "%d MiB for %d MiB", (s.most-before)>>20, size>>20)
	}

	up := &sampling{from: io.LimitReader(rand.NewChaCha8([32]byte{1}), size), every: 1 << 20}
	a := r.call(r.operator, http.MethodPost, "/api/v1/artifacts", up)
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	check(up)

	r.put(press7Path, api.InstancePut{Artifact: into[api.Artifact](t, a).SHA256})
	f := r.deliver(press, "1")
	// Served as JSON it is compressed, which is how all of the code runs.
	for _, c := range []struct{ kind, coding string }{{"artifact", ""}, {"json", "zstd"}, {"json", "gzip"}} {
		r.sql(`UPDATE revisions SET content_kind = $1`, c.kind)
		resp, err := plain.Do(r.request(f.token, http.MethodGet, f.path+"/config", nil, "Accept-Encoding", c.coding))
		require.NoError(t, err)
		require.Equal(t, c.coding, resp.Header.Get("Content-Encoding"))
		down := &sampling{from: resp.Body, every: 1 << 20}
		n, err := io.Copy(io.Discard, down)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Greater(t, n, int64(size*9/10))
		check(down)
	}
}

// N97: not parallel, because it measures the heap that all tests share.
func TestBatchMemoryIsBounded(t *testing.T) {
	const bodies, allowed = 64, 24 << 20
	r, f, tokens := withBatch(t)
	noise := rand.NewChaCha8([32]byte{})
	f.bodies = func(_ fleet.NodeName, _ []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
		for range bodies {
			body := make([]byte, fleet.MaxBatchBody)
			_, _ = noise.Read(body) // never fails
			if err := emit(someHash, body); err != nil {
				return err
			}
		}
		return nil
	}
	runtime.GC()
	before := heap()
	for _, coding := range []string{"", "gzip", "zstd"} {
		resp, err := plain.Do(r.request(tokens[0], http.MethodPost, batchPath+"/bodies", hashesOf(1), "Accept-Encoding", coding))
		require.NoError(t, err)
		down := &sampling{from: resp.Body, every: 1 << 20}
		n, err := io.Copy(io.Discard, down)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Greater(t, n, int64(bodies)<<20)
		require.Less(t, down.most, before+allowed, "%d MiB", (down.most-before)>>20)
	}
}

// N97: the finder holds one token, however large the document and what it hides. Not
// parallel, because it measures the heap that all tests share.
func TestFindingSecretsIsBounded(t *testing.T) {
	const rows, allowed = 200_000, 8 << 20
	row := `{"name":"` + strings.Repeat("n", 100) + `","secret":[1,2,3]},`
	body := bytes.NewReader([]byte(`{"a":[` + strings.Repeat(row, rows) + `1],"b":[` + strings.Repeat(row, rows) + `1]}`))
	before := heap()
	s := &sampling{from: body, every: 1 << 20}
	hidden, err := findSecrets(s, []string{"/a/7/secret", "/b"})
	require.NoError(t, err)
	require.Len(t, hidden, 2)
	require.Less(t, s.most, before+allowed)
}
