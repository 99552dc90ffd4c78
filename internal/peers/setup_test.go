package peers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/peers"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// world is regions that reach each other over real TLS, and cuts between them.
type world struct {
	mu   sync.Mutex
	cuts map[string]bool // from an address of a region to that of another
}

// region is one, with its store.
type region struct {
	*peers.Network
	t       *testing.T
	name    fleet.RegionName
	address string
	id      peers.Identity
	store   *store.Store
	url     string // of the database

	mu       sync.Mutex
	refusals []audit.Refusal
	log      lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newWorld() *world { return &world{cuts: map[string]bool{}} }

func (w *world) cut(from, to *region) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[string(from.name)+">"+to.address] = true
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
}

// region begins one; it serves until the test ends.
func (w *world) region(t *testing.T, name fleet.RegionName) *region {
	t.Helper()
	return w.regionWith(t, name, 1)
}

// regionWith has one of several keys.
func (w *world) regionWith(t *testing.T, name fleet.RegionName, key int) *region {
	t.Helper()
	url := testkit.DatabaseURL(t)
	s, err := store.Open(t.Context(), url, string(name))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, key))
	id, err := peers.NewIdentity(name, seed[:])
	require.NoError(t, err)
	r := &region{t: t, url: url, name: name, address: "https://" + l.Addr().String(), id: id, store: s}
	r.Network, err = peers.Open(t.Context(), peers.Options{
		Identity: id, Address: r.address, Store: s, Every: 20 * time.Millisecond, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Refuse: func(f audit.Refusal) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refusals = append(r.refusals, f)
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.mu.Lock()
			cut := w.cuts[string(name)+">https://"+address]
			w.mu.Unlock()
			if cut {
				return nil, fmt.Errorf("%s is cut off", address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	require.NoError(t, err)
	h := &http.Server{Handler: r.Network, TLSConfig: r.TLS(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), ReadHeaderTimeout: patience}
	served := make(chan struct{})
	go func() { defer close(served); _ = h.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = h.Close(); <-served; r.Close() })
	return r
}

// run has a region call its peers until the test ends.
func (r *region) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-ended })
}

func (r *region) invite(name fleet.RegionName) string {
	r.t.Helper()
	token, _, err := r.Invite(r.t.Context(), name, "test", time.Minute)
	require.NoError(r.t, err)
	return token
}

// join makes a region a member through another one.
func (r *region) join(through *region) {
	r.t.Helper()
	name, err := r.Join(r.t.Context(), through.address, through.invite(r.name))
	require.NoError(r.t, err)
	require.Equal(r.t, through.name, name)
}

// peer gives an enabled peer.
func (r *region) peer(name fleet.RegionName) peers.Peer {
	r.t.Helper()
	all, err := r.Peers(r.t.Context())
	require.NoError(r.t, err)
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	require.Fail(r.t, "no peer "+string(name))
	return peers.Peer{}
}

// get calls a path of a peer.
func (r *region) get(name fleet.RegionName, path string) (int, string) {
	r.t.Helper()
	p := r.peer(name)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, p.URL(path), nil)
	require.NoError(r.t, err)
	res, err := p.Client.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.StatusCode, string(body)
}

// knows waits until a region has exactly these peers, and reaches all of them.
func (r *region) knows(names ...fleet.RegionName) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		all, err := r.Peers(context.Background())
		if err != nil || len(all) != len(names) {
			return false
		}
		for i, p := range all {
			if p.Name != names[i] || !p.Reachable {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "%s knows %v", r.name, names)
}

// refused waits for a refusal.
func (r *region) refused(reason, identity string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.refusals {
			if f.Reason == reason && f.Identity == identity {
				return true
			}
		}
		return false
	}, patience, 10*time.Millisecond, "%s refuses %s with %s", r.name, identity, reason)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
