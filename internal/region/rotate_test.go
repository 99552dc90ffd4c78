package region

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const rotated = fleet.NodeName("plant-1-a")

// keyWorld is the real API on a real database, and one node's directory.
type keyWorld struct {
	t       *testing.T
	store   *store.Store
	api     *httptest.Server
	client  *api.Client
	dir     string
	refused chan string
}

func newKeyWorld(t *testing.T) *keyWorld {
	t.Helper()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `INSERT INTO nodes (name, site, role) VALUES ('plant-1-a', 'plant-1', 'worker')`)
	require.NoError(t, err)
	require.NoError(t, db.Close(t.Context()))
	w := &keyWorld{t: t, store: store, dir: t.TempDir(), refused: make(chan string, 100)}
	limits := compose.DefaultLimits()
	handler, err := httpapi.New(httpapi.Deps{
		Store: store, Waker: noWaker{}, NodeStarted: func(context.Context, fleet.NodeName) error { return nil }, Flatten: compose.NewBudget(int64(limits.MaxBytes)), Limits: limits,
		Region: testkit.Region, PendingTTL: time.Minute, OperationLimit: time.Minute, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Refused: func(r audit.Refusal) { w.refused <- r.Reason },
	})
	require.NoError(t, err)
	w.api = httptest.NewServer(handler)
	t.Cleanup(w.api.Close)
	admin, hash, err := identity.NewToken(32)
	require.NoError(t, err)
	_, err = store.AddAPIToken(t.Context(), keyring.APIToken{Hash: hash[:], Role: "admin", CreatedBy: "test"})
	require.NoError(t, err)
	w.client, err = api.NewClient(w.api.URL, admin, api.WithPauses(), api.WithTransport(&http.Transport{DisableKeepAlives: true}))
	require.NoError(t, err)
	return w
}

// keyNode is one life of the node. Its death is by the key file that it left at that instant.
type keyNode struct {
	*node.Agent
	w    *keyWorld
	dead chan struct{}
	die  func()
	end  func()
	left []byte
}

func (w *keyWorld) keyPath() string { return filepath.Join(w.dir, "node.key") }

func (w *keyWorld) start(hooks *keyHooks) *keyNode {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &keyNode{w: w, dead: make(chan struct{})}
	n.die = sync.OnceFunc(func() {
		n.left, _ = os.ReadFile(w.keyPath())
		cancel()
		close(n.dead)
	})
	hooks.die = n.die
	token, hash, err := identity.NewToken(32)
	require.NoError(w.t, err)
	_, err = w.store.AddJoinToken(w.t.Context(), keyring.JoinToken{Hash: hash[:], Site: "plant-1", Node: rotated, CreatedBy: "test"}, time.Hour)
	require.NoError(w.t, err)
	transport := &http.Transport{}
	n.Agent, err = node.Open(ctx, node.AgentOptions{
		Node: rotated, Site: "plant-1", Dir: w.dir, API: w.api.URL, Runtime: noRuntime{}, Now: time.Now, JoinToken: token,
		Log: slog.New(slog.DiscardHandler), Retry: time.Millisecond, ReportEvery: 5 * time.Millisecond,
		HTTP:      &http.Client{Transport: &keyTransport{next: transport, hooks: hooks}},
		Failpoint: hooks.failpoint,
	})
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.end = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
		require.NoError(w.t, n.Close())
		transport.CloseIdleConnections()
		if n.left != nil { // what it wrote after its death it did not write
			require.NoError(w.t, os.WriteFile(w.keyPath(), n.left, 0o600))
		}
	})
	w.t.Cleanup(n.end)
	return n
}

// keyHooks say what goes wrong, each once.
type keyHooks struct {
	dieAt string // a failpoint
	// The call by which a key is offered or used that is lost, counted from 1: the request, or
	// its answer; the node dies there when it is told so.
	request, answer int
	dies            bool

	die   func()
	mu    sync.Mutex
	calls int
}

func (h *keyHooks) failpoint(name string) {
	if h.dieAt == name {
		h.die()
	}
}

type keyTransport struct {
	next  http.RoundTripper
	hooks *keyHooks
}

var errLost = errors.New("lost on the way")

func (k *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/key") {
		return k.next.RoundTrip(r)
	}
	h := k.hooks
	h.mu.Lock()
	h.calls++
	call := h.calls
	h.mu.Unlock()
	if call == h.request {
		return nil, h.lost()
	}
	resp, err := k.next.RoundTrip(r)
	if err == nil && call == h.answer {
		_ = resp.Body.Close() // nobody reads it
		return nil, h.lost()
	}
	return resp, err
}

func (h *keyHooks) lost() error {
	if h.dies {
		h.die()
	}
	return errLost
}

// noWaker has nobody to wake.
type noWaker struct{}

func (noWaker) Wake(context.Context, string) error { return nil }

// noRuntime runs nothing: only the key is of interest.
type noRuntime struct{}

func (noRuntime) List(context.Context) ([]guardian.Status, error) { return nil, nil }
func (noRuntime) Status(context.Context, fleet.InstanceName) (guardian.Status, bool, error) {
	return guardian.Status{}, false, nil
}

func (noRuntime) Start(context.Context, guardian.Spec) (guardian.Status, error) {
	return guardian.Status{}, errLost
}

func (noRuntime) Started(context.Context, fleet.InstanceName) (guardian.Status, error) {
	return guardian.Status{}, errLost
}
func (noRuntime) Stop(context.Context, fleet.InstanceName) error   { return nil }
func (noRuntime) Remove(context.Context, fleet.InstanceName) error { return nil }
func (noRuntime) Signal(context.Context, fleet.InstanceName, string, guardian.Labels) error {
	return nil
}

func (w *keyWorld) node() api.Node {
	w.t.Helper()
	n, err := w.client.Node(context.Background(), string(rotated))
	require.NoError(w.t, err)
	return n
}

func (w *keyWorld) until(what string, so func() bool) {
	w.t.Helper()
	require.Eventually(w.t, so, time.Minute, 5*time.Millisecond, what)
}

func (w *keyWorld) ready() { w.until("the node is ready", func() bool { return w.node().Ready }) }

func (w *keyWorld) ask() time.Time {
	w.t.Helper()
	n, err := w.client.RotateNodeKey(w.t.Context(), string(rotated), api.Mutation{})
	require.NoError(w.t, err)
	require.Contains(w.t, []string{api.RotationAsked, api.RotationOffered}, n.Key.Rotation, "the node may be quick")
	return *n.Key.AskedAt
}

func (w *keyWorld) changed(since time.Time) {
	w.t.Helper()
	w.until("the key is changed", func() bool {
		k := w.node().Key
		return k.Rotation == "" && k.Since.After(since)
	})
}

// by calls the region as the node does, with a key of the test's choice.
func (w *keyWorld) by(key identity.Key) *node.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	return &node.Client{API: w.api.URL, HTTP: &http.Client{Transport: transport}, Key: func() identity.Key { return key }, Now: time.Now}
}

func (w *keyWorld) report(key identity.Key) error {
	_, err := w.by(key).Report(w.t.Context(), node.Report{Instances: []fleet.NodeInstance{}, Progress: []node.DeliveryProgress{}})
	return err
}

func (w *keyWorld) signs() ed25519.PublicKey {
	keys, err := w.store.NodeKeys(w.t.Context(), rotated)
	require.NoError(w.t, err)
	require.Len(w.t, keys, 1, "there is one key, and no other opens anything")
	return keys[0]
}

// settled asks that file and region know the same key, and only it; the old one is void.
func (w *keyWorld) settled(n *keyNode, old identity.Key) {
	w.t.Helper()
	w.until("the file is settled", func() bool {
		key, err := identity.Load(w.keyPath())
		return err == nil && !key.Changing() && key.SigningPublic().Equal(w.signs())
	})
	require.False(w.t, n.Key().Same(old))
	require.NoError(w.t, w.report(n.Key()))
	require.Equal(w.t, fleet.Unauthenticated, fleet.KindOf(w.report(old)))
}

// C87, N104: killed or cut off at any step, the node ends with one key, which is new and
// the region's.
func TestRotateKeySurvives(t *testing.T) {
	t.Parallel()
	faults := map[string]*keyHooks{"without a fault": {}}
	for _, at := range []string{"rotate.saved", "rotate.offered", "rotate.used", "rotate.confirmed"} {
		faults["killed at "+at] = &keyHooks{dieAt: at}
	}
	faults["the offer is lost"] = &keyHooks{request: 1}
	faults["the answer to the offer is lost"] = &keyHooks{answer: 1}
	faults["the use is lost"] = &keyHooks{request: 2}
	faults["the answer to the use is lost"] = &keyHooks{answer: 2}
	faults["killed, the offer is lost"] = &keyHooks{request: 1, dies: true}
	faults["killed, the answer to the offer is lost"] = &keyHooks{answer: 1, dies: true}
	faults["killed, the use is lost"] = &keyHooks{request: 2, dies: true}
	faults["killed, the answer to the use is lost"] = &keyHooks{answer: 2, dies: true}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKeyWorld(t)
			n := w.start(&keyHooks{dieAt: f.dieAt, request: f.request, answer: f.answer, dies: f.dies})
			w.ready()
			old := n.Key()
			sealedBefore := w.seal(old)
			asked := w.ask()
			if f.dieAt != "" || f.dies {
				select {
				case <-n.dead:
				case <-time.After(time.Minute):
					require.Fail(t, "the node did not get there")
				}
				n.end()
				n = w.start(&keyHooks{})
			}
			w.changed(asked)
			w.settled(n, old)
			again, err := identity.Load(w.keyPath())
			require.NoError(t, err)
			opened, err := again.Open(sealedBefore)
			require.NoError(t, err, "what was sealed before is still on its way")
			require.Equal(t, "a token", opened)

			second := n.Key()
			asked = w.ask() // and once more, from what is left
			w.changed(asked)
			w.settled(n, second)
		})
	}
}

func (w *keyWorld) seal(to identity.Key) string {
	w.t.Helper()
	pub, err := to.SealingPublic()
	require.NoError(w.t, err)
	sealed, err := identity.Seal(pub, "a token")
	require.NoError(w.t, err)
	return sealed
}

// C87: what a thief of the key may do about the change of it.
func TestRotateKeyRefuses(t *testing.T) {
	t.Parallel()
	other := func(t *testing.T) identity.Key {
		t.Helper()
		k, err := identity.Generate(rotated)
		require.NoError(t, err)
		return k
	}
	enrolled := func(t *testing.T) (*keyWorld, identity.Key) {
		t.Helper()
		w := newKeyWorld(t)
		n := w.start(&keyHooks{})
		w.ready()
		key := n.Key()
		n.end() // only the thief speaks
		return w, key
	}
	offer := func(w *keyWorld, offered, signer identity.Key) (bool, error) {
		return w.by(signer).OfferKey(w.t.Context(), offered, signer)
	}
	t.Run("an offer that nobody asked for", func(t *testing.T) {
		t.Parallel()
		w, key := enrolled(t)
		_, err := offer(w, other(t), key)
		require.Equal(t, fleet.Denied, fleet.KindOf(err))
		require.Equal(t, "denied", <-w.refused)
		require.True(t, w.signs().Equal(key.SigningPublic()))
	})
	t.Run("another offer than the first, until an administrator asks again", func(t *testing.T) {
		t.Parallel()
		w, key := enrolled(t)
		w.ask()
		stolen, own := other(t), other(t)
		_, err := offer(w, stolen, key)
		require.NoError(t, err)
		require.Equal(t, api.RotationOffered, w.node().Key.Rotation)
		_, err = offer(w, stolen, key)
		require.NoError(t, err, "the same is the same")
		_, err = offer(w, own, key)
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		require.Equal(t, "other_key_offered", <-w.refused)
		w.ask()
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(w.report(stolen)), "it was taken back")
		_, err = offer(w, own, key)
		require.NoError(t, err)
		require.NoError(t, w.report(key), "either is good before the first use")
		require.NoError(t, w.report(own), "any call is the use")
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(w.report(key)))
	})
	t.Run("the old key after the change", func(t *testing.T) {
		t.Parallel()
		w, key := enrolled(t)
		w.ask()
		own := other(t)
		_, err := offer(w, own, key)
		require.NoError(t, err)
		confirmed, err := offer(w, own, own)
		require.NoError(t, err)
		require.True(t, confirmed)
		w.ask()
		_, err = offer(w, other(t), key)
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
		require.True(t, w.signs().Equal(own.SigningPublic()))
	})
	t.Run("a revoked node, at any step", func(t *testing.T) {
		t.Parallel()
		w, key := enrolled(t)
		w.ask()
		own := other(t)
		_, err := offer(w, own, key)
		require.NoError(t, err)
		_, err = w.client.RevokeNode(t.Context(), string(rotated), api.Mutation{})
		require.NoError(t, err)
		for _, by := range []identity.Key{key, own} {
			_, err = offer(w, own, by)
			require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
		}
		_, err = w.client.RotateNodeKey(t.Context(), string(rotated), api.Mutation{})
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
		require.Nil(t, w.node().Key)
	})
}

// C87: a node that was set back to before its change needs only to be asked once more; one
// that finds its change taken back goes on by its old key.
func TestRotateKeyOfNodeSetBack(t *testing.T) {
	t.Parallel()
	w := newKeyWorld(t)
	n := w.start(&keyHooks{answer: 1, dies: true})
	w.ready()
	old := n.Key()
	before, err := os.ReadFile(w.keyPath())
	require.NoError(t, err)
	w.ask()
	<-n.dead
	n.left = before
	n.end()
	n = w.start(&keyHooks{})
	require.Equal(t, "other_key_offered", <-w.refused)
	require.True(t, n.Key().Same(old))
	n.end()
	asked := w.ask()
	n = w.start(&keyHooks{})
	w.changed(asked)
	w.settled(n, old)
}
