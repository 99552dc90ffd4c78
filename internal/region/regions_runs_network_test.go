package region

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// network is how regions reach each other without one: the clock of a test stands still while a goroutine waits for one. It delays
// lines, cuts links, and brings old lines again.
type network struct {
	*mesh
	seed    uint64
	servers map[fleet.RegionName]*runServer // nil: the region is down
	past    map[[2]fleet.RegionName][]api.WatchLine
	random  *rand.Rand
	beat    time.Duration
}

// runServer is what a region serves while it is up.
type runServer struct {
	store  *store.Store
	reader *watch.Reader
	parts  http.Handler
	ctx    context.Context //nolint:containedctx // of all that it serves
	cancel context.CancelFunc
	serves sync.WaitGroup
}

// runPast is how many lines of a link may come again, and runAgain one in how many sendings has some of them.
const (
	runPast  = 30
	runAgain = 4
)

func newNetwork(m *mesh, seed uint64) *network {
	return &network{
		mesh: m, seed: seed, servers: map[fleet.RegionName]*runServer{}, past: map[[2]fleet.RegionName][]api.WatchLine{}, random: rand.New(rand.NewPCG(seed, 1)),
		beat: 5 * time.Second,
	}
}

// partsOf is what a region serves its peers besides the stream.
func partsOf(t *testing.T, name fleet.RegionName, s *store.Store) http.Handler {
	t.Helper()
	h, err := httpapi.New(httpapi.Deps{
		Store: s, Waker: noWaker{}, NodeStarted: func(context.Context, fleet.NodeName) error { return nil },
		Flatten: compose.NewBudget(1 << 20), Region: string(name), PendingTTL: time.Minute, OperationLimit: time.Minute,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	shareParts(h, mux, func(r *http.Request) fleet.RegionName { return fleet.RegionName(r.Header.Get("Peer")) })
	return mux
}

// up has a region serve the others.
func (n *network) up(name fleet.RegionName, s *store.Store, parts http.Handler) {
	up := &runServer{store: s, reader: watch.NewReader(s, time.Second), parts: parts}
	up.ctx, up.cancel = context.WithCancel(n.t.Context())
	s.OnCommit(func([]string) { up.reader.Wake() })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[name] = up
}

// down ends all that a region serves. What it sent, or was sent, is not on its way any more.
func (n *network) down(name fleet.RegionName) {
	n.mu.Lock()
	up := n.servers[name]
	delete(n.servers, name)
	for _, other := range others(name) {
		delete(n.past, [2]fleet.RegionName{other, name})
		delete(n.past, [2]fleet.RegionName{name, other})
	}
	n.mu.Unlock()
	if up != nil {
		up.cancel()
		up.serves.Wait()
	}
}

// reach is the server of a peer, until done.
func (n *network) reach(self, peer fleet.RegionName) (up *runServer, done func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if up = n.servers[peer]; up == nil || n.cut[[2]fleet.RegionName{self, peer}] {
		return nil, nil, fleet.Errorf(fleet.Unavailable, "the link is cut")
	}
	up.serves.Add(1)
	return up, up.serves.Done, nil
}

// again are lines that come once more, late: all that were sent count by their versions (M31, M40).
func (n *network) again(link [2]fleet.RegionName, sent []api.WatchLine) (old []api.WatchLine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	past := n.past[link]
	if len(past) > 0 && n.random.IntN(runAgain) == 0 {
		for range 1 + n.random.IntN(3) {
			old = append(old, past[n.random.IntN(len(past))])
		}
	}
	for _, l := range sent {
		if l.Type == api.WatchObject || l.Type == api.WatchGone {
			past = append(past, l)
		}
	}
	n.past[link] = past[max(0, len(past)-runPast):]
	return old
}

func (n *network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(n.random.Int64N(int64(runDelay)))
}

// parts is how a region gets what templates are composed of.
func (n *network) parts(self fleet.RegionName) peerParts {
	return peerParts{func(ctx context.Context, peer fleet.RegionName, path string, header http.Header) (*http.Response, error) {
		up, done, err := n.reach(self, peer)
		if err != nil {
			return nil, err
		}
		defer done()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if header != nil {
			req.Header = header.Clone()
		}
		req.Header.Set("Peer", string(self))
		answer := httptest.NewRecorder()
		up.parts.ServeHTTP(answer, req)
		return answer.Result(), nil
	}}
}

// pipes are the streams that one region follows.
type pipes struct {
	*network
	self fleet.RegionName
}

func (pipes) Allowed(context.Context, fleet.RegionName) error { return nil }

func (p pipes) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	up, done, err := p.reach(p.self, peer)
	if err != nil {
		return nil, err
	}
	link := [2]fleet.RegionName{p.self, peer}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(up.ctx, cancel)
	p.mu.Lock()
	p.cuts[link] = cancel
	p.mu.Unlock()
	in, out := io.Pipe()
	lines := json.NewEncoder(out)
	delay, more := p.delay(), int64(0)
	s := &watch.Stream{
		Source: up.store, Reader: up.reader, Filter: watch.Filter{Owner: peer, Region: p.self}, Self: peer,
		Snapshots: make(chan struct{}, 1), View: httpapi.ViewOf, Beat: p.beat,
		Send: func(all []api.WatchLine) error {
			if err := pause.For(ctx, delay); err != nil {
				return err
			}
			old := p.again(link, all)
			for _, l := range append(old, all...) {
				switch l.Type {
				case api.WatchHardReset:
					more, old = 0, nil
				case api.WatchSnapshotSize:
					l.Count += more + int64(len(old))
				}
				if err := lines.Encode(l); err != nil {
					return err
				}
			}
			more += int64(len(old))
			return nil
		},
	}
	go func() { // as a connection that ends
		defer done()
		defer cancel()
		_ = out.CloseWithError(s.Run(ctx, at.Position, at.Began))
	}()
	return &ended{in, cancel}, nil
}

// runDelay is the longest that lines are under way.
const runDelay = 80 * time.Millisecond

var runNames = []fleet.RegionName{"ap", "eu", "us"}

// others are the regions but one.
func others(self fleet.RegionName) []fleet.RegionName {
	return slices.DeleteFunc(slices.Clone(runNames), func(n fleet.RegionName) bool { return n == self })
}
