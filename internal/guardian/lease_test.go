package guardian

import (
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const someBoot = "0b4ed7a4-6b52-4a1b-9d0c-1a2b3c4d5e6f"

// X21: a value that is not whole and of this boot is no right to run.
func TestReadLease(t *testing.T) {
	t.Parallel()
	whole := Lease{Deadline: 17 * time.Hour, TTL: 15 * time.Second}
	for name, content := range map[string][]byte{
		"empty":               {},
		"torn":                whole.encode(someBoot)[:leaseSize-3],
		"of another boot":     whole.encode("ffffffff-6b52-4a1b-9d0c-1a2b3c4d5e6f"),
		"zeroes":              make([]byte, leaseSize),
		"half of another one": append(whole.encode(someBoot)[:60], NoDeadline().encode(someBoot)[60:]...),
		"a negative deadline": Lease{Deadline: -1, TTL: time.Second}.encode(someBoot),
		"without a TTL":       Lease{Deadline: time.Hour}.encode(someBoot),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, leaseFile), content, 0o600))
			_, err := readLease(root, someBoot)
			require.ErrorIs(t, err, errNoRight)
			require.NoError(t, writeLease(root, someBoot, whole), "the next one mends it")
			l, err := readLease(root, someBoot)
			require.NoError(t, err)
			require.Equal(t, whole, l)
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		_, err := readLease(t.TempDir(), someBoot)
		require.ErrorIs(t, err, errNoRight)
	})
	t.Run("one that cannot be read is not one that says no", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(root, leaseFile), 0o700))
		_, err := readLease(root, someBoot)
		require.Error(t, err)
		require.NotErrorIs(t, err, errNoRight)
	})
	t.Run("what is written is read, and a changed byte is noticed", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			deadlines := rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Just(int64(math.MaxInt64)))
			l := Lease{Deadline: time.Duration(deadlines.Draw(t, "deadline")), TTL: time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "ttl"))}
			l.Patient = rapid.Bool().Draw(t, "patient")
			line := l.encode(someBoot)
			require.Len(t, line, leaseSize)
			got, err := parseLease(line, someBoot)
			require.NoError(t, err)
			require.Equal(t, l, got)
			line[rapid.IntRange(0, leaseSize-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
			_, err = parseLease(line, someBoot)
			require.ErrorIs(t, err, errNoRight)
		})
	})
	t.Run("a reader never sees half of a write", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		short := Lease{Deadline: 1, TTL: 1, Patient: true}
		require.NoError(t, writeLease(root, someBoot, short))
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for l, next := NoDeadline(), short; ; l, next = next, l {
				select {
				case <-stop:
					return
				default:
				}
				if writeLease(root, someBoot, l) != nil {
					return // the reader finds out
				}
			}
		})
		for range 20_000 {
			l, err := readLease(root, someBoot)
			require.NoError(t, err)
			require.True(t, l == NoDeadline() || l == short, "%+v", l)
		}
		close(stop)
		writer.Wait()
	})
}

func FuzzParseLease(f *testing.F) {
	f.Add(NoDeadline().encode(someBoot))
	f.Add([]byte("holdfast-lease 1 x 1 1 0"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if l, err := parseLease(line, someBoot); err == nil {
			require.Equal(t, string(line), string(l.encode(someBoot)))
		}
	})
}

// X21
func TestStartUnderLease(t *testing.T) {
	t.Run("is refused before there is any, and once the stop would begin", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "exec sleep 1000")
		for name, lose := range map[string]func() error{
			"passed":     func() error { return r.Lease(t.Context(), Lease{Deadline: SinceBoot() - 1, TTL: testTTL}) },
			"ends":       func() error { return r.Lease(t.Context(), leaseFor(testTTL/4-1)) },
			"at boot":    func() error { return r.Lease(t.Context(), Lease{Deadline: 0, TTL: testTTL}) },
			"never told": func() error { return os.Remove(filepath.Join(r.Root, leaseFile)) },
		} {
			require.NoError(t, lose(), name)
			_, err := r.Start(t.Context(), spec)
			require.Equal(t, fleet.Stale, fleet.KindOf(err), "%s: %v", name, err)
		}
		require.NoDirExists(t, filepath.Join(r.Root, "line-7"))
		require.NoError(t, r.Lease(t.Context(), NoDeadline()))
		start(t, r, spec)
	})
	t.Run("is refused by the guardian too", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		require.NoError(t, r.Lease(t.Context(), Lease{Deadline: 1, TTL: testTTL}))
		err := startUnasked(r, spec)
		require.Equal(t, fleet.Stale, fleet.KindOf(err), "%v", err)
		require.Zero(t, w.starts())
		require.Empty(t, left(t, r))
		_, listed, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.False(t, listed, "nobody was told of a start")
	})
	t.Run("ends when the lease does before it counts as started", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec, w := witnessed(t, r)
		spec.Run.StartSeconds, spec.Run.StopSeconds = 1000, 0.1
		lease := leaseFor(5 * time.Second)
		require.NoError(t, r.Lease(t.Context(), lease))
		_, err := r.Start(t.Context(), spec)
		require.Equal(t, fleet.Stale, fleet.KindOf(err), "%v", err)
		require.Less(t, w.last(), lease.end(0).Gone)
		require.Empty(t, left(t, r))
	})
	t.Run("a lease that says nothing is refused", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		for _, l := range []Lease{{Deadline: time.Hour}, {Deadline: -1, TTL: 1}, {Deadline: decide.NoDeadline, TTL: -1}, {}} {
			require.Equal(t, fleet.Invalid, fleet.KindOf(r.Lease(t.Context(), l)))
		}
	})
}
