package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// N40, N47
func TestApplyCommits(t *testing.T) {
	t.Parallel()
	standby := under(fleet.RoleStandby, 2)
	small, chunk, long := strings.Repeat("x", 64<<10), strings.Repeat("y", sqlite.MaxChunk), strings.Repeat("z", sqlite.MaxChunk+1)
	for _, tc := range []struct {
		name    string
		config  string
		changes []with
		commits int // each is one fsync
	}{
		{"an active takes a small body in three: accepted, staged with its body, current", small, nil, 3},
		{"an active takes one chunk in three", chunk, nil, 3},
		{"a standby takes one chunk in two: accepted, current with its body", chunk, []with{standby}, 2},
		{"a standby takes an empty body in two", "", []with{standby}, 2},
		{"a longer one is committed chunk by chunk", long, []with{standby}, 6},
		{"a body that is there already is not stored again", "one", []with{disabled}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one", tc.changes...))
			b.must(b.cmd(2, "two", tc.changes...))
			before := b.commits()
			b.must(b.cmd(3, tc.config, tc.changes...))
			require.Equal(t, tc.commits, b.commits()-before)
			var out bytes.Buffer
			require.NoError(t, b.store.WriteContent(t.Context(), b.cmd(3, tc.config).Revision.Content, &out))
			require.Equal(t, tc.config, out.String())
		})
	}
	t.Run("a duplicate and a stale one commit nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(2, "two"))
		before := b.commits()
		b.must(b.cmd(2, "two"))
		_, err := b.apply(b.cmd(1, "one"))
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		require.Equal(t, before, b.commits())
	})
}

// commits counts those in the store's log: the frames that end one.
func (b *bench) commits() (n int) {
	b.t.Helper()
	log, err := os.ReadFile(filepath.Join(b.dir, "node.db-wal"))
	require.NoError(b.t, err)
	const logHeader, frameHeader = 32, 24
	page, salts := int(binary.BigEndian.Uint32(log[8:])), log[16:24]
	for at := logHeader; at < len(log); at += frameHeader + page {
		frame := log[at : at+frameHeader]
		if !bytes.Equal(frame[8:16], salts) {
			break // left over from before the log began anew
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 {
			n++
		}
	}
	return n
}

func TestCollects(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, every time.Duration) *bench {
		b := setup(t)
		require.NoError(t, b.store.Close())
		b.collectEvery = every
		b.open()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-done)
		})
		return b
	}
	has := func(b *bench, config string) bool {
		there, err := b.store.HasContent(b.t.Context(), hashOf([]byte(config)))
		require.NoError(b.t, err)
		return there
	}
	t.Run("bodies that nothing refers to, soon after, and no others", func(t *testing.T) {
		t.Parallel()
		b := run(t, time.Millisecond)
		for i, config := range []string{"one", "two", "three"} {
			b.must(b.cmd(int64(i+1), config))
		}
		require.Eventually(t, func() bool { return !has(b, "one") }, patience, time.Millisecond)
		require.True(t, has(b, "two") && has(b, "three"), "the previous and the current one")
	})
	t.Run("not while it delivers", func(t *testing.T) {
		t.Parallel()
		b := run(t, time.Hour)
		for i, config := range []string{"one", "two", "three"} {
			b.must(b.cmd(int64(i+1), config))
		}
		before := b.commits()
		b.must(b.cmd(4, "four"))
		require.Equal(t, 3, b.commits()-before)
		require.True(t, has(b, "one"))
	})
}

// N97
func TestFetchReuses(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"zstd", "gzip", "identity"} {
		t.Run("one connection for one delivery after the other, "+coding, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var connections sync.Map
			b.region.before = func(w http.ResponseWriter, r *http.Request) bool {
				connections.Store(r.RemoteAddr, true)
				isConfig := strings.HasSuffix(r.URL.Path, "/config")
				if isConfig && coding != "identity" {
					compressed(coding, b.region.bodies[strings.Split(r.URL.Path, "/")[4]])(w, r)
				}
				return isConfig && coding != "identity"
			}
			for n := range int64(5) {
				config := strings.Repeat(string(rune('a'+n)), 100_000)
				b.must(b.cmd(n+1, config))
				require.Equal(t, config, b.file(press))
			}
			used := 0
			connections.Range(func(any, any) bool { used++; return true })
			require.Equal(t, 1, used)
		})
	}
	t.Run("a decoder, also after a body that it could not read", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.region.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Accept-Encoding") == "identity" {
				return false
			}
			w.Header().Set("Content-Encoding", "zstd")
			_, _ = w.Write([]byte("this is not zstd"))
			return true
		}
		b.must(b.cmd(1, "one"))
		b.region.before = nil
		b.must(b.cmd(2, "two"))
		b.is(2, "two", 2, 2)
	})
}
