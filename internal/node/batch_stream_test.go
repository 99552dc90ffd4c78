package node

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// three is a batch of three small bodies, and their stream in the order of their hashes.
func three(t *testing.T) (m *many, order []fleet.InstanceName, stream []byte) {
	t.Helper()
	m = batched(t, fleet.RoleStandby)
	m.opt.Fetcher.ReadIdle = 10 * time.Second
	byHash := map[fleet.Hash]fleet.InstanceName{}
	for name, config := range map[fleet.InstanceName]string{"a": "first", "b": "second body", "c": "third"} {
		byHash[m.add(name, 1, config).Revision.Content.Hash] = name
	}
	for _, h := range slices.Sorted(maps.Keys(byHash)) {
		order = append(order, byHash[h])
		stream = append(stream, record(h, m.bodies[h])...)
	}
	return m, order, stream
}

// N98: the reader gives what is whole before a cut, wherever the cut is.
func TestBodyStreamCut(t *testing.T) {
	t.Parallel()
	bodies := []string{"first", "", "the third"}
	var whole []byte
	ends := map[int]int{0: 0} // how many bodies end by there
	for i, b := range bodies {
		whole = append(whole, record(hashOf([]byte(b)), []byte(b))...)
		ends[len(whole)] = i + 1
	}
	arrived := 0
	for cut := range len(whole) + 1 {
		s := &bodyStream{from: bytes.NewReader(whole[:cut]), left: 100}
		n, clean := ends[cut]
		if clean {
			arrived = n
		}
		for i := range arrived {
			hash, data, err := s.next()
			require.NoError(t, err)
			require.Equal(t, hashOf([]byte(bodies[i])), hash)
			require.Equal(t, bodies[i], string(data))
		}
		_, _, err := s.next()
		require.Equal(t, clean, errors.Is(err, io.EOF))
		require.Equal(t, !clean, errors.Is(err, errAgain))
	}
}

// N98, N96: what arrived before a cut goes on, wherever the cut is.
func TestBatchCut(t *testing.T) {
	t.Parallel()
	_, _, whole := three(t)
	for cut := 0; cut < len(whole); cut += 9 {
		m, order, stream := three(t)
		m.opt.Fetcher.Attempts = 1
		m.stream = func(w http.ResponseWriter, _ []fleet.Hash) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(stream[:cut])
		}
		out := m.mustRun()
		at, arrived := 0, 0
		for i, name := range order {
			at += bodyHead + len(m.bodies[m.items[m.index(name)].Revision.Content.Hash])
			if at <= cut {
				arrived++
				require.Empty(t, m.reason(name), "cut at %d", cut)
				require.EqualValues(t, 1, m.held(name).Version.Revision)
				continue
			}
			require.Equal(t, fleet.Communication, m.reason(name), "cut at %d, %d", cut, i)
			require.False(t, m.held(name).Known)
		}
		require.Equal(t, arrived, out.Applied)
		m.stream = nil
		require.Equal(t, 3-arrived, m.mustRun().Applied, "and the rest goes through when it is tried again")
		m.batch.Close()
	}
}

func (m *many) index(name fleet.InstanceName) int {
	for i, item := range m.items {
		if item.Instance == name {
			return i
		}
	}
	return -1
}

// N96
func TestBatchGoesOn(t *testing.T) {
	t.Parallel()
	t.Run("asks again for what a cut stream did not bring, and for no more", func(t *testing.T) {
		t.Parallel()
		m, _, stream := three(t)
		m.stream = func(w http.ResponseWriter, hashes []fleet.Hash) {
			for _, h := range hashes {
				_, _ = w.Write(record(h, m.bodies[h]))
				break
			}
			if len(hashes) > 1 {
				_, _ = w.Write(stream[:10])
			}
		}
		require.Equal(t, 3, m.mustRun().Applied)
		require.Equal(t, 3+2+1, m.asks())
	})
	t.Run("gives a stalled one up", func(t *testing.T) {
		t.Parallel()
		m, order, stream := three(t)
		m.opt.Fetcher.ReadIdle, m.opt.Fetcher.Attempts = 2*time.Second, 1 // that includes to connect
		release := make(chan struct{})
		m.stream = func(w http.ResponseWriter, _ []fleet.Hash) {
			_, _ = w.Write(stream[:len(stream)-3])
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is one
			m.mu.Unlock()
			<-release
			m.mu.Lock()
		}
		t.Cleanup(func() { close(release) }) // before the server closes, which waits for it
		require.Equal(t, 2, m.mustRun().Applied)
		require.Equal(t, fleet.Communication, m.reason(order[2]))
	})
	t.Run("asks for no compression where that could not be read", func(t *testing.T) {
		t.Parallel()
		m, _, stream := three(t)
		m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			if tail(r) != "bodies" {
				return false
			}
			w.Header().Set("Content-Type", bodiesType)
			if r.Header.Get("Accept-Encoding") != "identity" {
				w.Header().Set("Content-Encoding", "zstd")
				_, _ = w.Write([]byte("this is not zstd"))
				return true
			}
			_, _ = w.Write(stream)
			return true
		}
		require.Equal(t, 3, m.mustRun().Applied)
	})
}

// N98, N94: bytes that make no sense fail what they should have brought, by communication.
func TestBatchNonsense(t *testing.T) {
	t.Parallel()
	huge := bytes.Repeat([]byte{0xff}, bodyHead)
	for name, spoil := range map[string]func(stream []byte) []byte{
		"a length beyond all bounds":    func(s []byte) []byte { return append(s, huge...) },
		"a body that was not asked for": func(s []byte) []byte { return append(s, record(hashOf([]byte("x")), []byte("x"))...) },
		"text": func(s []byte) []byte {
			return append(s, "<html>what is this, which is longer than a head of forty bytes"...)
		},
		"the same body once more": func(s []byte) []byte { return append(s, s...) },
		"half a head":             func(s []byte) []byte { return append(s, 1, 2, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, order, stream := three(t)
			first := bodyHead + len(m.bodies[m.items[m.index(order[0])].Revision.Content.Hash])
			m.stream = func(w http.ResponseWriter, hashes []fleet.Hash) {
				if len(hashes) == 3 {
					_, _ = w.Write(spoil(bytes.Clone(stream[:first])))
					return
				}
				_, _ = w.Write([]byte{1})
			}
			out := m.mustRun()
			require.Equal(t, 1, out.Applied)
			require.Empty(t, m.reason(order[0]))
			for _, name := range order[1:] {
				require.Equal(t, fleet.Communication, m.reason(name))
			}
		})
	}
	t.Run("another type", func(t *testing.T) {
		t.Parallel()
		m, order, _ := three(t)
		m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			if tail(r) == "bodies" {
				_, _ = w.Write([]byte("hello"))
			}
			return tail(r) == "bodies"
		}
		m.mustRun()
		require.Equal(t, fleet.Communication, m.reason(order[0]))
	})
}

func FuzzBodyStream(f *testing.F) {
	good := append(record(hashOf([]byte("one")), []byte("one")), record(hashOf(nil), nil)...)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1 << 16
		s := &bodyStream{from: bytes.NewReader(data), left: most}
		var back []byte
		for total := 0; ; {
			hash, body, err := s.next()
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				require.Equal(t, string(data), string(back), "nothing is lost or made up")
				return
			}
			if err != nil {
				require.True(t, errors.Is(err, errAgain) || fleet.KindOf(err) == fleet.Communication)
				return
			}
			require.NoError(t, fleet.ValidateHash("/", hash))
			total += len(body)
			require.LessOrEqual(t, total, most)
			back = append(back, record(hash, body)...)
		}
	})
}
