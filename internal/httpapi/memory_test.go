package httpapi

import (
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
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
