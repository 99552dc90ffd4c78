package watch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// now is the clock of a bubble.
var now = time.Now //nolint:forbidigo // synctest makes it a clock of the test's own

// kept is a store of copies that keeps what a follower does to it.
type kept struct {
	mu      sync.Mutex
	place   fleet.StreamPlace
	lag     time.Duration // the last one shown
	applied []fleet.CopySet
	full    chan struct{} // set: nothing is applied until it is closed
}

func (k *kept) ClaimStream(context.Context, fleet.RegionName, string) (fleet.StreamClaim, error) {
	return fleet.StreamClaim{Peer: "eu", Number: 1}, nil
}

func (k *kept) Lags(context.Context) (map[fleet.RegionName]time.Duration, error) { return nil, nil }

func (k *kept) SeeStream(_ context.Context, _ fleet.StreamClaim, lag time.Duration) (fleet.StreamPlace, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lag = lag
	return k.place, nil
}

func (k *kept) ApplyCopies(ctx context.Context, s fleet.CopySet) (fleet.CopiesApplied, error) {
	if k.full != nil {
		select {
		case <-k.full:
		case <-ctx.Done():
			return fleet.CopiesApplied{}, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied = append(k.applied, s)
	if s.Place != nil {
		k.place = *s.Place
	}
	return fleet.CopiesApplied{Written: len(s.Changes)}, nil
}

// peer is a region whose streams a test opens.
type peer func(ctx context.Context, at fleet.StreamPlace) (io.ReadCloser, error)

func (peer) Allowed(context.Context, fleet.RegionName) error { return nil }

func (p peer) Watch(ctx context.Context, _ fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	return p(ctx, at)
}

// follows follows a peer as a region does, for one turn in a bubble.
func follows(t *testing.T, store *kept, p peer) (end func()) {
	t.Helper()
	f := &Follower{
		Store: store, Peers: p, Log: slog.New(slog.DiscardHandler), Now: now,
		Turn: time.Hour, Beat: 2 * time.Second, Silence: 15 * time.Second, Retry: 15 * time.Second,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Follow(ctx, "eu", "run", func(fleet.Followed) {})
		done <- err
	}()
	return func() { cancel(); require.ErrorIs(t, <-done, context.Canceled) }
}

func lineOf(t *testing.T, l api.WatchLine) string {
	t.Helper()
	text, err := json.Marshal(l)
	require.NoError(t, err)
	return string(text) + "\n"
}

func project(name string) api.WatchLine {
	return api.WatchLine{Type: api.WatchObject, OwnerEpoch: 1, Number: 1, Object: &api.Object{Kind: "project", Name: name}}
}

// M48, M32, M35: a peer that is lost is tried again after pauses that double up to 15 s. However long that takes, the copies stay as
// they are: the stream resumes at its place, and nothing but the lag says that it broke.
func TestLostPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lost, followsOn = 6 * time.Minute, 17 * time.Second
		began := now()
		var tries []time.Duration
		var places []string
		store := &kept{}
		end := follows(t, store, func(ctx context.Context, at fleet.StreamPlace) (io.ReadCloser, error) {
			store.mu.Lock()
			defer store.mu.Unlock()
			tries, places = append(tries, now().Sub(began)), append(places, at.Position)
			switch {
			case len(tries) == 1:
				from, to := io.Pipe()
				go func() {
					_, err := io.WriteString(to, lineOf(t, project("one"))+lineOf(t, api.WatchLine{Type: api.WatchCurrent, Token: "at-1"}))
					_ = to.CloseWithError(errors.Join(err, pause.For(ctx, time.Second/2)))
				}()
				return from, nil
			case now().Sub(began) < lost:
				return nil, fleet.Errorf(fleet.Unavailable, "the link is cut")
			}
			from, to := io.Pipe()
			go func() { _, _ = io.WriteString(to, lineOf(t, api.WatchLine{Type: api.WatchCurrent, Token: "at-2"})) }()
			return from, nil
		})
		require.NoError(t, pause.For(t.Context(), lost-time.Second))
		synctest.Wait()
		store.mu.Lock()
		pauses := []time.Duration{}
		for i := range tries[1:] {
			pauses = append(pauses, tries[i+1]-tries[i])
		}
		// The first stream lasted half a second.
		double := []time.Duration{500 + 200, 400, 800, 1600, 3200, 6400, 12800}
		for i := range double {
			double[i] *= time.Millisecond
		}
		require.Equal(t, double, pauses[:len(double)])
		require.Greater(t, len(pauses), len(double))
		for _, p := range pauses[len(double):] {
			require.Equal(t, 15*time.Second, p)
		}
		require.Len(t, store.applied, 1, "nothing is done to the copies")
		require.Greater(t, store.lag, 5*time.Minute)
		store.mu.Unlock()

		require.NoError(t, pause.For(t.Context(), followsOn))
		end()
		require.Equal(t, "at-2", store.place.Position)
		require.Less(t, store.lag, followsOn)
		for _, set := range store.applied {
			require.False(t, set.Reset)
		}
		require.Empty(t, places[0])
		for _, at := range places[1:] {
			require.Equal(t, "at-1", at, "it resumes where it was")
		}
	})
}

// M48: while the store is slow, at most 1,000 changes wait in memory: the rest stays with the peer.
func TestFollowerHoldsFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 1000
		store := &kept{full: make(chan struct{})}
		from, to := io.Pipe()
		end := follows(t, store, func(context.Context, fleet.StreamPlace) (io.ReadCloser, error) { return from, nil })
		one := []byte(lineOf(t, project("one")))
		var sent atomic.Int64
		go func() {
			for range most + 1 {
				if _, err := to.Write(one); err != nil {
					return
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		require.Positive(t, sent.Load())
		require.LessOrEqual(t, sent.Load(), int64(most))
		require.Empty(t, store.applied)
		close(store.full)
		synctest.Wait()
		require.EqualValues(t, most+1, sent.Load(), "it goes on with the store")
		end()
	})
}
