package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

const testID = "0123456789abcdef0123456789abcdef"

// memory is a sink that keeps only what it must.
type memory struct {
	want fleet.Content
	at   int64
	sum  hash.Hash
	keep *bytes.Buffer
}

var _ sink = (*memory)(nil)

func (m *memory) Received() int64 { return m.at }

func (m *memory) Append(_ context.Context, data []byte) error {
	if len(data) > chunkSize {
		return errors.New("chunk is too large")
	}
	m.at += int64(len(data))
	m.sum.Write(data)
	if m.keep != nil {
		m.keep.Write(data)
	}
	return nil
}

func (m *memory) Restart(context.Context) error {
	m.at = 0
	m.sum.Reset()
	if m.keep != nil {
		m.keep.Reset()
	}
	return nil
}

func (m *memory) Seal(context.Context) error {
	if got := fleet.Hash(hex.EncodeToString(m.sum.Sum(nil))); got != m.want.Hash || m.at != m.want.Size {
		return fleet.Errorf(fleet.HashMismatch, "the body has hash %s", got)
	}
	return nil
}

// served counts what a region wrote of the identity coding.
type served struct {
	*httptest.Server
	answers []http.HandlerFunc // one per request, the last for all further ones
	bytes   atomic.Int64
	mu      sync.Mutex
	seen    []http.Header
}

func serve(t *testing.T, answers ...http.HandlerFunc) *served {
	t.Helper()
	s := &served{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := min(len(s.seen), len(s.answers)-1)
		s.seen = append(s.seen, r.Header.Clone())
		s.mu.Unlock()
		s.answers[n](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *served) asked() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// whole answers as a correct region does, ranges included.
func (s *served) whole(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", strconv.Quote(string(hashOf(data))))
		http.ServeContent(counting{w, &s.bytes}, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// broken answers correctly for some bytes and then does what end says.
func (s *served) broken(data []byte, after int, end func(r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var from int
		status := http.StatusOK
		if n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && n == 1 {
			status = http.StatusPartialContent
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))
		w.WriteHeader(status)
		n, _ := w.Write(data[from:min(from+after, len(data))])
		s.bytes.Add(int64(n))
		w.(http.Flusher).Flush()
		end(r)
	}
}

func reset(*http.Request) {
	panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler cuts its connection
}

func hang(r *http.Request) { <-r.Context().Done() }

type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "body of "+testToken)
	}
}

func compressed(coding string, data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", coding)
		w.Header().Set("ETag", `"other"`)
		var enc io.WriteCloser = gzip.NewWriter(w)
		if coding == "zstd" {
			enc, _ = zstd.NewWriter(w)
		}
		_, _ = enc.Write(data)
		_ = enc.Close()
	}
}

func random(size int) []byte {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	return data
}

// fetching is one fetch of data from a server, with all that it left.
type fetching struct {
	*Fetcher
	logs *safeBuffer
	to   *memory
	req  FetchRequest
	wire int64
	seen []int64
}

func fetch(t *testing.T, s *served, data []byte, changes ...func(*fetching)) (*fetching, error) {
	t.Helper()
	logs := &safeBuffer{}
	f := &fetching{
		Fetcher: &Fetcher{
			Client: NewHTTPClient(nil), Counters: &Counters{}, Log: slog.New(slog.NewTextHandler(logs, nil)),
			ReadIdle: 5 * time.Second, Attempts: 4, Backoff: time.Millisecond,
		},
		logs: logs,
	}
	want := fleet.Content{Kind: fleet.ContentArtifact, Hash: hashOf(data), Size: int64(len(data))}
	f.to = &memory{want: want, sum: sha256.New(), keep: &bytes.Buffer{}}
	f.req = FetchRequest{BaseURL: s.URL + "/", DeploymentID: testID, Token: testToken, Want: want}
	for _, change := range changes {
		change(f)
	}
	var err error
	f.wire, err = f.Fetch(t.Context(), f.req, f.to, func(done int64) { f.seen = append(f.seen, done) })
	if err != nil {
		require.NotContains(t, err.Error(), testToken)
	}
	require.NotContains(t, logs.String(), testToken)
	return f, err
}

// quick leaves a loaded machine the time to connect, and to answer what does not stall.
func quick(f *fetching) { f.ReadIdle = 2 * time.Second }

// N39
func TestFetch(t *testing.T) {
	t.Parallel()
	data := random(3<<20 + 17)
	t.Run("reads a body with the token in a header only, and tells how far it is", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil)
		s.answers[0] = func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/api/internal/deployments/"+testID+"/config", r.URL.String())
			require.Equal(t, "Bearer "+testToken, r.Header.Get("Authorization"))
			require.Equal(t, "zstd, gzip", r.Header.Get("Accept-Encoding"))
			require.Empty(t, r.Header.Get("Range"))
			s.whole(data)(w, r)
		}
		f, err := fetch(t, s, data)
		require.NoError(t, err)
		require.Equal(t, data, f.to.keep.Bytes())
		require.Equal(t, int64(len(data)), f.wire)
		require.IsIncreasing(t, f.seen)
		require.Equal(t, int64(len(data)), f.seen[len(f.seen)-1])
	})
	t.Run("reads an empty body without asking", func(t *testing.T) {
		t.Parallel()
		s := serve(t, status(http.StatusTeapot))
		_, err := fetch(t, s, nil)
		require.NoError(t, err)
		require.Empty(t, s.asked())
	})
	// N97
	for _, coding := range []string{"zstd", "gzip"} {
		t.Run("reads a body that is compressed by "+coding, func(t *testing.T) {
			t.Parallel()
			text := bytes.Repeat([]byte("config "), 500_000)
			f, err := fetch(t, serve(t, compressed(coding, text)), text)
			require.NoError(t, err)
			require.Equal(t, text, f.to.keep.Bytes())
			require.Less(t, f.wire, int64(len(text)/10), "what is counted is what was sent")
		})
	}
	t.Run("asks for no compression again when it could not be read", func(t *testing.T) {
		t.Parallel()
		for _, coding := range []string{"zstd", "gzip"} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", coding)
				_, _ = io.WriteString(w, strings.Repeat("this is none", 10))
			}, nil)
			s.answers[1] = s.whole(data)
			_, err := fetch(t, s, data)
			require.NoError(t, err)
			require.Equal(t, "identity", s.asked()[1].Get("Accept-Encoding"))
		}
	})
}

// N96
func TestFetchResumes(t *testing.T) {
	t.Parallel()
	data := random(3<<20 + 17)
	resumes := func(t *testing.T, s *served, f *fetching, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, data, f.to.keep.Bytes())
		require.LessOrEqual(t, s.bytes.Load(), int64(len(data)+1<<20), "at most 1 MiB is sent twice")
		for _, h := range s.asked()[1:] {
			require.Equal(t, "identity", h.Get("Accept-Encoding"))
			require.Equal(t, strconv.Quote(string(hashOf(data))), h.Get("If-Range"))
			require.Regexp(t, `^bytes=[1-9][0-9]*-$`, h.Get("Range"))
		}
		require.Positive(t, f.Counters.Resumed.Load())
		require.Less(t, f.Counters.Resumed.Load(), int64(len(s.asked())))
	}
	t.Run("after the connection was reset, again and again", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil)
		s.answers[0] = s.broken(data, 300_000, reset)
		f, err := fetch(t, s, data)
		resumes(t, s, f, err)
		require.Greater(t, len(s.asked()), 8, "an attempt that brought something is not counted as failed")
	})
	t.Run("after the body stalled", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil, nil)
		s.answers[0], s.answers[1] = s.broken(data, 1_700_000, hang), s.whole(data)
		f, err := fetch(t, s, data, quick)
		resumes(t, s, f, err)
	})
	t.Run("when a body ended early without an error", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil, nil)
		s.answers[0] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data[:100_000]) }
		s.answers[1] = s.whole(data)
		f, err := fetch(t, s, data)
		resumes(t, s, f, err)
	})
	t.Run("in the identity coding, after a compressed body broke", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil, nil)
		s.answers[0] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "zstd")
			enc, _ := zstd.NewWriter(w)
			_, _ = enc.Write(data[:2<<20])
			_ = enc.Flush()
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler cuts its connection
		}
		s.answers[1] = s.whole(data)
		f, err := fetch(t, s, data)
		resumes(t, s, f, err)
	})
	t.Run("from the start when the server does not continue", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil, nil)
		s.answers[0] = s.broken(data, 1<<20, reset)
		s.answers[1] = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
		f, err := fetch(t, s, data)
		require.NoError(t, err)
		require.Equal(t, data, f.to.keep.Bytes())
	})
	t.Run("not with a range that was not asked for", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil, nil)
		s.answers[0] = s.broken(data, 1<<20, reset)
		s.answers[1] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}
		_, err := fetch(t, s, data)
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
	})
	t.Run("after the process was killed, from its store", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "node.db")
		want := fleet.Content{Kind: fleet.ContentArtifact, Hash: hashOf(data), Size: int64(len(data))}
		s := serve(t, nil, nil)
		s.answers[0], s.answers[1] = s.broken(data, 2_000_000, hang), s.whole(data)
		for round := range 2 {
			store, err := sqlite.Open(t.Context(), path)
			require.NoError(t, err)
			staging, err := store.OpenStaging(t.Context(), want)
			require.NoError(t, err)
			ctx, kill := context.WithCancel(t.Context())
			f := &Fetcher{Client: NewHTTPClient(nil), Counters: &Counters{}, Log: slog.New(slog.DiscardHandler)}
			to := struct{ sink }{staging}
			_, err = f.Fetch(ctx, FetchRequest{BaseURL: s.URL, DeploymentID: testID, Token: testToken, Want: want}, to,
				func(done int64) {
					if round == 0 && done == 2_000_000 { // more than is committed: that part is lost
						require.NoError(t, store.Close())
						kill()
					}
				})
			kill()
			if round == 0 {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.True(t, staging.Complete())
			require.NoError(t, store.Close())
		}
		require.Equal(t, fmt.Sprintf("bytes=%d-", 3*chunkSize), s.asked()[1].Get("Range"))
		require.LessOrEqual(t, s.bytes.Load(), int64(len(data)+1<<20))
	})
}

// N41, N74, N92, N104
func TestFetchFails(t *testing.T) {
	t.Parallel()
	data := random(100_000)
	t.Run("as the status says", func(t *testing.T) {
		t.Parallel()
		for code, want := range map[int]fleet.Kind{
			http.StatusNotFound: fleet.Stale, http.StatusUnauthorized: fleet.Unauthenticated,
			http.StatusNotModified: fleet.Communication, http.StatusFound: fleet.Communication,
			http.StatusForbidden: fleet.Communication,
		} {
			s := serve(t, status(code))
			f, err := fetch(t, s, data)
			require.Equal(t, want, fleet.KindOf(err), code)
			require.Len(t, s.asked(), 1, "an answer is not asked for again")
			require.Equal(t, want == fleet.Communication, strings.HasPrefix(err.Error(), "Communication failure:"))
			require.Zero(t, f.to.at)
		}
	})
	t.Run("by communication, after attempts that brought nothing", func(t *testing.T) {
		t.Parallel()
		for _, answer := range []http.HandlerFunc{status(http.StatusServiceUnavailable), func(_ http.ResponseWriter, r *http.Request) { reset(r) }} {
			s := serve(t, answer)
			_, err := fetch(t, s, data)
			require.Equal(t, fleet.Communication, fleet.KindOf(err))
			require.True(t, strings.HasPrefix(err.Error(), "Communication failure:"), err)
			require.GreaterOrEqual(t, len(s.asked()), 4)
		}
	})
	t.Run("not while a server error passes", func(t *testing.T) {
		t.Parallel()
		s := serve(t, status(http.StatusBadGateway), status(http.StatusTooManyRequests), nil)
		s.answers[2] = s.whole(data)
		_, err := fetch(t, s, data)
		require.NoError(t, err)
	})
	t.Run("by communication when nobody listens", func(t *testing.T) {
		t.Parallel()
		s := serve(t, status(http.StatusOK))
		s.Close()
		_, err := fetch(t, s, data)
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
	})
	t.Run("by communication when there was no progress for too long", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil)
		s.answers[0] = s.broken(data, 0, hang)
		_, err := fetch(t, s, data, func(f *fetching) { f.req.IdleTimeout = 100 * time.Millisecond })
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
		require.Contains(t, err.Error(), "Communication failure: fetch config: no progress in 100ms")
	})
	t.Run("by communication when it stalls at the same place every time", func(t *testing.T) {
		t.Parallel()
		s := serve(t, nil)
		s.answers[0] = s.broken(data, 0, hang)
		_, err := fetch(t, s, data, quick)
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
		require.LessOrEqual(t, len(s.asked()), 4)
		require.Contains(t, err.Error(), "stalled")
	})
	t.Run("with the caller's own end", func(t *testing.T) {
		t.Parallel()
		s := serve(t, hangUp)
		f := &Fetcher{Client: NewHTTPClient(nil), Counters: &Counters{}, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		want := fleet.Content{Hash: hashOf(data), Size: int64(len(data))}
		_, err := f.Fetch(ctx, FetchRequest{BaseURL: s.URL, DeploymentID: testID, Want: want},
			&memory{want: want, sum: sha256.New()}, func(int64) {})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("when an id could lead elsewhere", func(t *testing.T) {
		t.Parallel()
		s := serve(t, status(http.StatusOK))
		_, err := fetch(t, s, data, func(f *fetching) { f.req.DeploymentID = "../../x" })
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		require.Empty(t, s.asked())
	})
}

func hangUp(_ http.ResponseWriter, r *http.Request) { hang(r) }

// N94
func TestFetchVerifies(t *testing.T) {
	t.Parallel()
	data := random(100_000)
	other := append([]byte{data[0] ^ 1}, data[1:]...)
	for name, answer := range map[string]http.HandlerFunc{
		"another body":                  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(other) },
		"a longer body":                 func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(data, 1)) },
		"another body, compressed":      compressed("zstd", other),
		"a longer body, compressed":     compressed("zstd", bytes.Repeat(data, 2)),
		"a body that has no more to it": nil,
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, answer)
			if answer == nil {
				s.answers[0] = s.whole(data[:50_000]) // answers 416 to the rest, or 200 for the ETag differs
			}
			f, err := fetch(t, s, data)
			if answer == nil {
				require.Error(t, err)
				require.Contains(t, []fleet.Kind{fleet.HashMismatch, fleet.Communication}, fleet.KindOf(err))
				return
			}
			require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
			require.Equal(t, int64(1), f.Counters.HashMismatch.Load())
		})
	}
	t.Run("refuses a body that the server says has no more", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data[:50_000]) },
			status(http.StatusRequestedRangeNotSatisfiable))
		f, err := fetch(t, s, data)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
		require.Zero(t, f.to.at)
	})
}

// N2, N97: not parallel, it measures the memory of the process.
func TestFetchMemory(t *testing.T) {
	const size = 40 << 20
	block := random(64 << 10)
	sum := sha256.New()
	for range size / len(block) {
		sum.Write(block)
	}
	want := fleet.Content{Hash: fleet.Hash(hex.EncodeToString(sum.Sum(nil))), Size: size}
	for name, coding := range map[string]string{"plain": "", "compressed": "zstd"} {
		t.Run("stays bounded over 40 MiB, "+name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				var out io.Writer = w
				if coding != "" {
					w.Header().Set("Content-Encoding", coding)
					enc, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
					defer func() { _ = enc.Close() }()
					out = enc
				}
				for range size / len(block) {
					_, _ = out.Write(block)
				}
			})
			f := &Fetcher{Client: NewHTTPClient(nil), Counters: &Counters{}, Log: slog.New(slog.DiscardHandler)}
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			_, err := f.Fetch(t.Context(), FetchRequest{BaseURL: s.URL, DeploymentID: testID, Want: want},
				&memory{want: want, sum: sha256.New()}, func(int64) {})
			require.NoError(t, err)
			goruntime.ReadMemStats(&after)
			// All that was ever allocated, by both sides together, so no peak can hide.
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size/2))
		})
	}
}

func TestFetchRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		want       fleet.Kind
		hash       fleet.Hash
	}{
		{"a run section", testRun, "", hashOf([]byte(testRun))},
		{"another one than announced", testRun, fleet.HashMismatch, hashOf([]byte("x"))},
		{"one that cannot be carried out", `{"command":[]}`, fleet.Invalid, hashOf([]byte(`{"command":[]}`))},
		{"one that is too long", strings.Repeat(" ", fleet.MaxRun) + testRun, fleet.HashMismatch, hashOf([]byte(testRun))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, status(http.StatusBadGateway), func(w http.ResponseWriter, r *http.Request) {
				require.Equal(t, "/api/internal/deployments/"+testID+"/run", r.URL.Path)
				require.Equal(t, "Bearer "+testToken, r.Header.Get("Authorization"))
				_, _ = io.WriteString(w, tc.body)
			})
			f := &Fetcher{Client: NewHTTPClient(nil), Counters: &Counters{}, Log: slog.New(slog.DiscardHandler), Backoff: time.Millisecond}
			got, err := f.FetchRun(t.Context(), FetchRequest{BaseURL: s.URL, DeploymentID: testID, Token: testToken}, tc.hash)
			if tc.want != "" {
				require.Equal(t, tc.want, fleet.KindOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.body, string(got))
		})
	}
}
