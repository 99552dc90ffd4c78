package node

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// control is a region's machine endpoints as a node sees them.
type control struct {
	*httptest.Server
	t     *testing.T
	calls chan call
	mu    sync.Mutex
	fails map[string][]int // statuses to answer first, by the path's tail
	role  Placement
	seen  map[string]int
}

type call struct {
	tail string
	auth string
	body []byte
}

func newControl(t *testing.T) *control {
	t.Helper()
	c := &control{
		t: t, calls: make(chan call, 1000), fails: map[string][]int{}, seen: map[string]int{},
		role: Placement{Region: "eu-1", Role: fleet.RoleActive, Epoch: 4},
	}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	tail := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.fails[tail]; len(f) > 0 {
		c.fails[tail] = f[1:]
		w.WriteHeader(f[0])
		return
	}
	c.seen[tail]++
	c.calls <- call{tail, r.Header.Get("Authorization"), body}
	if tail != "logs" {
		_ = json.NewEncoder(w).Encode(c.role)
	}
}

// patience is how long a test waits for what has to come.
const patience = time.Minute

// next waits for the next call to an endpoint and reads it.
func (c *control) next(tail string, into any) call {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case got := <-c.calls:
			if got.tail != tail {
				continue
			}
			require.NoError(c.t, json.Unmarshal(got.body, into))
			return got
		case <-deadline:
			require.Fail(c.t, "no call of "+tail)
		}
	}
}

type fakeOutputs func(name fleet.InstanceName, offset int64) (guardian.Output, error)

var _ outputs = fakeOutputs(nil)

func (f fakeOutputs) Names() ([]fleet.InstanceName, error) {
	return []fleet.InstanceName{"keeps", press}, nil
}

func (f fakeOutputs) ReadOutput(name fleet.InstanceName, offset int64) (guardian.Output, error) {
	return f(name, offset)
}

// running is an agent in the background.
type running struct {
	*Agent
	stop func() error
}

func launch(t *testing.T, dir, api string, changes ...func(*AgentOptions)) (*running, *fakeRuntime) {
	t.Helper()
	rt := newFakeRuntime()
	opt := AgentOptions{
		Node: "plant-1-a", Site: "plant-1", Dir: dir, API: api, Runtime: rt, Now: time.Now,
		Log: slog.New(slog.DiscardHandler), JoinToken: "join-me",
		Retry: 5 * time.Millisecond, ReportEvery: 10 * time.Millisecond, LogEvery: 10 * time.Millisecond,
	}
	for _, change := range changes {
		change(&opt)
	}
	a, err := Open(t.Context(), opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	var ended error
	stop := func() error {
		once.Do(func() {
			cancel()
			ended = <-done
			require.NoError(t, a.Close())
			a.opt.HTTP.CloseIdleConnections()
		})
		return ended
	}
	t.Cleanup(func() { _ = stop() })
	<-a.Ready()
	return &running{a, stop}, opt.Runtime.(*fakeRuntime)
}

func using(rt *fakeRuntime) func(*AgentOptions) { return func(o *AgentOptions) { o.Runtime = rt } }

func TestAgentJoins(t *testing.T) {
	t.Parallel()
	t.Run("enrols once, repeats until it is answered, and takes its role", func(t *testing.T) {
		t.Parallel()
		c, dir := newControl(t), t.TempDir()
		c.fails["enrol"], c.fails["started"] = []int{503, 502}, []int{500}
		a, _ := launch(t, dir, c.URL)
		var enrol EnrolRequest
		c.next("enrol", &enrol)
		require.Equal(t, "join-me", enrol.JoinToken)
		require.Equal(t, fleet.SiteName("plant-1"), enrol.Site)
		sealing, err := a.Key().SealingPublic()
		require.NoError(t, err)
		require.Equal(t, base64.StdEncoding.EncodeToString(sealing[:]), enrol.SealingKey)
		require.Equal(t, base64.StdEncoding.EncodeToString(a.Key().SigningPublic()), enrol.SigningKey)

		var page StartedPage
		got := c.next("started", &page)
		require.True(t, page.Last)
		require.NotEmpty(t, page.StartID)
		claims, err := identity.Verify(strings.TrimPrefix(got.auth, "Bearer "),
			func(fleet.NodeName) (ed25519.PublicKey, error) { return a.Key().SigningPublic(), nil }, time.Now())
		require.NoError(t, err)
		require.Equal(t, fleet.NodeName("plant-1-a"), claims.Node)
		meta, err := a.Store.Meta(t.Context())
		require.NoError(t, err)
		require.Equal(t, sqlite.Right{Role: fleet.RoleActive, Epoch: 4}, meta.Right)
		require.Equal(t, "eu-1", meta.Region)
		require.NoError(t, a.stop())

		// A lost store, or none of the join token, does not make it enrol again.
		require.NoError(t, os.Remove(filepath.Join(dir, "node.db")))
		_, _ = launch(t, dir, c.URL, func(o *AgentOptions) { o.JoinToken = "" })
		first := page.StartID
		c.next("started", &page)
		require.NotEqual(t, first, page.StartID)
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Equal(t, 1, c.seen["enrol"])
	})
	t.Run("says what to do when it is refused", func(t *testing.T) {
		t.Parallel()
		for status, hint := range map[int]string{401: "join token", 409: "revoke"} {
			c := newControl(t)
			c.fails["enrol"] = []int{status}
			a, _ := launch(t, t.TempDir(), c.URL)
			require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.fails["enrol"]) == 0 },
				patience, time.Millisecond)
			err := a.client.enrolAgain(t, c, status)
			require.ErrorContains(t, err, hint)
			require.NotContains(t, err.Error(), "join-me")
		}
	})
	t.Run("does not take the key of another node, nor start without a join token", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		key, err := identity.Generate("plant-1-b")
		require.NoError(t, err)
		require.NoError(t, key.Save(filepath.Join(dir, "node.key")))
		_, err = Open(t.Context(), AgentOptions{Node: "plant-1-a", Dir: dir})
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))

		a, _ := launch(t, t.TempDir(), "http://127.0.0.1:1", func(o *AgentOptions) { o.JoinToken = "" })
		require.ErrorContains(t, a.enrol(t.Context()), "not enrolled")
	})
	t.Run("is reported as started only when it takes deliveries", func(t *testing.T) {
		t.Parallel()
		c, serving := newControl(t), make(chan struct{})
		a, _ := launch(t, t.TempDir(), c.URL, func(o *AgentOptions) { o.Serving = serving })
		c.next("enrol", &EnrolRequest{})
		require.Eventually(t, func() bool { return a.Key().Region() != "" }, patience, time.Millisecond)
		require.Empty(t, c.calls)
		close(serving)
		c.next("started", &StartedPage{})
	})
	t.Run("has its directory for itself, and leaves it to the next one", func(t *testing.T) {
		t.Parallel()
		c, dir := newControl(t), t.TempDir()
		a, _ := launch(t, dir, c.URL)
		for _, name := range []fleet.NodeName{"plant-1-a", "plant-1-b"} {
			_, err := Open(t.Context(), AgentOptions{Node: name, Dir: dir})
			require.Equal(t, fleet.Conflict, fleet.KindOf(err))
			require.ErrorContains(t, err, fmt.Sprintf("a node is already running on %s (process %d)", dir, os.Getpid()))
		}
		require.NoError(t, a.stop())
		_, err := Open(t.Context(), AgentOptions{Node: "plant-1-b", Dir: dir})
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "a refused one lets go of it")
		_, _ = launch(t, dir, c.URL)
	})
	t.Run("sends what it holds in pages of 500", func(t *testing.T) {
		t.Parallel()
		c, rt := newControl(t), newFakeRuntime()
		for i := range 501 {
			name := fleet.InstanceName(fmt.Sprintf("i%03d", i))
			rt.running[name] = guardian.Status{Instance: name, Running: true, Guardian: guardian.Live}
		}
		launch(t, t.TempDir(), c.URL, using(rt))
		var one, two StartedPage
		c.next("started", &one)
		c.next("started", &two)
		require.Equal(t, []int{500, 1}, []int{len(one.Instances), len(two.Instances)})
		require.Equal(t, []bool{false, true}, []bool{one.Last, two.Last})
		require.Equal(t, one.StartID, two.StartID)
	})
}

// enrolAgain asks once more against a region that refuses with a status.
func (c *Client) enrolAgain(t *testing.T, region *control, status int) error {
	t.Helper()
	region.mu.Lock()
	region.fails["enrol"] = []int{status}
	region.mu.Unlock()
	_, err := c.Enrol(t.Context(), "join-me", "plant-1")
	return err
}

// N7
func TestAgentAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.cmd(1, "one"))
	require.NoError(t, b.store.Close())
	require.NoError(t, b.key.Enrolled("eu-1").Save(filepath.Join(b.dir, "node.key")))
	clear(b.rt.running)
	require.NoError(t, os.RemoveAll(filepath.Join(b.dir, "instances")))
	a, rt := launch(t, b.dir, "http://127.0.0.1:1", using(b.rt))
	st, ok, err := rt.Status(t.Context(), press)
	require.NoError(t, err)
	require.True(t, ok && st.Running, "it runs before any answer of the region")
	require.Equal(t, "one", b.file(press))
	require.NoError(t, a.stop())
}

// The answer to a notify says what was fetched, so nobody is told of it again.
func TestNewsOfAnsweredDelivery(t *testing.T) {
	t.Parallel()
	n := newNews()
	n.fetched("one", 2, 3)
	n.fetched("two", 3, 3)
	n.answered("two")
	require.Equal(t, []DeliveryProgress{{DeploymentID: "one", Bytes: 2, Total: 3}}, n.take())
	require.Empty(t, n.take())
}

// A report leaves to a batch what its results tell, and tells the rest.
func TestAgentReportsLeaveBatches(t *testing.T) {
	t.Parallel()
	c, b := newControl(t), setup(t)
	require.NoError(t, b.store.Close())
	a, _ := launch(t, b.dir, c.URL, using(b.rt))
	var page StartedPage
	c.next("started", &page)
	pub, err := a.Key().SealingPublic()
	require.NoError(t, err)
	b.sealed, err = identity.Seal(pub, testToken)
	require.NoError(t, err)
	b.Applier = a.Applier
	one, two := a.news.tells([]fleet.InstanceName{press}), a.news.tells([]fleet.InstanceName{press, "other"})
	one()
	b.must(b.cmd(1, "one", under(fleet.RoleActive, 4)))
	for n := range 3 {
		a.news.fetched("some", int64(n), 3)
		var r Report
		c.next("reports", &r)
		require.Empty(t, r.Instances)
	}
	two()
	require.Empty(t, a.news.left())
	a.news.changed("")
	var r Report
	for len(r.Instances) == 0 {
		c.next("reports", &r)
	}
	require.Equal(t, press, r.Instances[0].Instance)
}

// X4, X21: a node asks by itself whether what it holds back may start after all.
func TestAgentAsksAgain(t *testing.T) {
	t.Parallel()
	c, b := newControl(t), setup(t)
	b.must(b.cmd(1, "one"))
	require.NoError(t, b.store.HoldBack(t.Context(), map[fleet.InstanceName]fleet.Version{press: {Era: 1, Revision: 2}}))
	require.NoError(t, b.store.Close())
	require.NoError(t, b.rt.Stop(t.Context(), press))
	b.rt.said()
	c.fails["owed"] = []int{503}
	_, rt := launch(t, b.dir, c.URL, using(b.rt))
	var asked struct{ Instances []fleet.Extra }
	c.next("owed", &asked)
	require.Equal(t, press, asked.Instances[0].Instance)
	require.Eventually(t, func() bool { st, is, _ := rt.Status(t.Context(), press); return is && st.Running }, patience, time.Millisecond)
}

// X21, X5: what a node refused reaches the region, however often that is away; what it said once
// it does not say again.
func TestAgentTellsOfRefusals(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	c.fails["reports"] = []int{503, 503}
	a, _ := launch(t, t.TempDir(), c.URL)
	var page StartedPage
	c.next("started", &page)
	_, err := a.Applier.ApplyBatch(t.Context(), fleet.BatchCommand{
		BatchID: fleet.BatchID(strings.Repeat("b", 32)), Site: "plant-1", Role: fleet.RoleActive, Epoch: 3, Count: 7,
	}, nil)
	require.Equal(t, fleet.Stale, fleet.KindOf(err))
	var r Report
	for len(r.Refusals) == 0 {
		c.next("reports", &r)
	}
	require.Len(t, r.Refusals, 1)
	said := r.Refusals[0]
	require.Equal(t, audit.Refusal{
		Door: audit.DoorNode, Identity: "region", Reason: audit.StaleEpoch, Times: 1,
		What: "batch " + strings.Repeat("b", 32) + " of 7 as active at epoch 3: the node is active at epoch 4",
	}, said.Refusal)
	require.GreaterOrEqual(t, said.AgeMS, int64(0))
	for range 3 {
		a.news.changed("")
		a.news.fetched("d", 1, 2)
		r = Report{}
		c.next("reports", &r)
		require.Empty(t, r.Refusals)
	}
	require.EqualValues(t, 1, a.Counters().StaleRefused.Load())
}

func TestAgentReports(t *testing.T) {
	t.Parallel()
	c, b := newControl(t), setup(t)
	require.NoError(t, b.store.Close())
	c.fails["reports"] = []int{503}
	a, rt := launch(t, b.dir, c.URL, using(b.rt))
	var page StartedPage
	c.next("started", &page)
	pub, err := a.Key().SealingPublic()
	require.NoError(t, err)
	b.sealed, err = identity.Seal(pub, testToken)
	require.NoError(t, err)
	b.Applier = a.Applier
	cmd := b.cmd(1, "one", under(fleet.RoleActive, 4))
	b.must(cmd)
	a.news.fetched(cmd.DeploymentID, 2, 3)

	bytes, held := false, false
	for !bytes || !held {
		var r Report
		c.next("reports", &r)
		for _, p := range r.Progress {
			bytes = bytes || p == DeliveryProgress{DeploymentID: cmd.DeploymentID, Bytes: 2, Total: 3}
		}
		for _, in := range r.Instances {
			held = held || in.Instance == press && in.Held.Running && in.Held.Version == cmd.Revision.Version
		}
	}
	// A crash announces itself to nobody, and is told all the same.
	rt.mu.Lock()
	st := rt.running[press]
	st.Running, st.LastExit = false, "exit code 3"
	rt.running[press] = st
	rt.mu.Unlock()
	var r Report
	for len(r.Instances) == 0 || r.Instances[0].Reason == "" {
		c.next("reports", &r)
	}
	require.Equal(t, ReasonNotRunning+": exit code 3", r.Instances[0].Reason)

	// A role that moved reaches a node by the answer, also when nothing is delivered to it.
	c.mu.Lock()
	c.role = Placement{Region: "eu-1", Role: fleet.RoleStandby, Epoch: 5}
	c.mu.Unlock()
	require.Eventually(t, func() bool {
		m, err := a.Store.Meta(t.Context())
		return err == nil && m.Right == sqlite.Right{Role: fleet.RoleStandby, Epoch: 5}
	}, patience, time.Millisecond)
	require.Eventually(t, func() bool { _, ok, _ := rt.Status(t.Context(), press); return !ok }, patience, time.Millisecond)
}

// X27
func TestAgentShipsLogs(t *testing.T) {
	t.Parallel()
	c, b := newControl(t), setup(t)
	b.must(b.cmd(1, "one", under(fleet.RoleActive, 4)))
	require.NoError(t, b.store.Close())
	text := strings.Repeat("0123456789", 20_000)
	source := fakeOutputs(func(_ fleet.InstanceName, offset int64) (guardian.Output, error) {
		from := max(offset, 1000) // what came before was rotated away
		data := []byte(text[from:min(from+256<<10, int64(len(text)))])
		return guardian.Output{Data: data, Offset: from, Next: from + int64(len(data)), Skipped: from - offset}, nil
	})
	c.fails["logs"] = []int{503}
	a, _ := launch(t, b.dir, c.URL, using(b.rt), func(o *AgentOptions) { o.Outputs = source })
	var got strings.Builder
	for got.Len() < len(text)-1000 {
		var piece LogPiece
		c.next("logs", &piece)
		require.LessOrEqual(t, len(piece.Data), 64<<10)
		require.Equal(t, int64(1000+got.Len()), piece.Offset)
		require.Equal(t, got.Len() == 0, piece.Skipped == 1000)
		got.Write(piece.Data)
	}
	require.Equal(t, text[1000:], got.String())
	require.Eventually(t, func() bool {
		at, err := a.Store.LogOffset(t.Context(), press)
		return err == nil && at == int64(len(text))
	}, patience, time.Millisecond, "it goes on there after a restart")
}

// X27, N88: what a deleted instance printed last reaches the region, and nothing of it stays.
func TestAgentClearsWhatWasDeleted(t *testing.T) {
	t.Parallel()
	c, b := newControl(t), setup(t)
	active := under(fleet.RoleActive, 4)
	b.must(b.cmd(1, "one", active))
	b.must(b.cmd(1, "two", active, named("keeps")))
	b.must(b.deletion(2, active))
	require.NoError(t, b.store.Close())
	b.rt.said()
	const words = "last words"
	removed := func() bool {
		b.rt.mu.Lock()
		defer b.rt.mu.Unlock()
		return slices.Contains(b.rt.calls, "remove press")
	}
	source := fakeOutputs(func(name fleet.InstanceName, offset int64) (guardian.Output, error) {
		if name == press && offset == 0 && removed() {
			t.Error("output was removed before it was sent")
		}
		data := []byte(words)[min(offset, int64(len(words))):]
		return guardian.Output{Data: data, Offset: offset, Next: offset + int64(len(data))}, nil
	})
	c.fails["logs"] = []int{503}
	a, _ := launch(t, b.dir, c.URL, using(b.rt), func(o *AgentOptions) { o.Outputs = source })
	require.Eventually(t, removed, patience, time.Millisecond)
	sent, err := a.Store.LogOffset(t.Context(), press)
	require.NoError(t, err)
	require.EqualValues(t, len(words), sent)
	var piece LogPiece
	for piece.Instance != press {
		c.next("logs", &piece)
	}
	require.Equal(t, words, string(piece.Data))
	require.NotContains(t, b.rt.said(), "remove keeps")
}
