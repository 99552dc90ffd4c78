package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
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

const (
	press     = fleet.InstanceName("press")
	testToken = "the-secret-fetch-token"
	testRun   = `{"command":["press","--serve"]}`
	signalRun = `{"command":["press"],"onChange":"signal","signal":"SIGUSR1"}`
)

func hashOf(data []byte) fleet.Hash {
	sum := sha256.Sum256(data)
	return fleet.Hash(hex.EncodeToString(sum[:]))
}

// fakeRuntime runs instances in memory. It outlives appliers, as guardians do.
type fakeRuntime struct {
	onStart   func(ctx context.Context, spec guardian.Spec) error
	onBegun   func(ctx context.Context, spec guardian.Spec) error // once the command runs
	onStarted func(ctx context.Context, name fleet.InstanceName) error
	onStop    func(name fleet.InstanceName) error
	onSignal  func(name fleet.InstanceName) error

	mu      sync.Mutex
	running map[fleet.InstanceName]guardian.Status
	specs   map[fleet.InstanceName]guardian.Spec
	calls   []string
}

var (
	_ runtime = (*fakeRuntime)(nil)
	_ runtime = (*guardian.Runtime)(nil)
	_ outputs = (*guardian.Runtime)(nil)
)

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{running: map[fleet.InstanceName]guardian.Status{}, specs: map[fleet.InstanceName]guardian.Spec{}}
}

func (f *fakeRuntime) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeRuntime) List(context.Context) ([]guardian.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.running)), nil
}

func (f *fakeRuntime) Status(_ context.Context, name fleet.InstanceName) (guardian.Status, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok := f.running[name]
	return st, ok, nil
}

func (f *fakeRuntime) Start(ctx context.Context, spec guardian.Spec) (guardian.Status, error) {
	if f.onStart != nil {
		if err := f.onStart(ctx, spec); err != nil {
			return guardian.Status{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.running[spec.Instance]; taken {
		return guardian.Status{}, fleet.Errorf(fleet.Conflict, "instance %s has a guardian already", spec.Instance)
	}
	f.note("start %s %d", spec.Instance, spec.Labels.Version.Revision)
	st := guardian.Status{Instance: spec.Instance, Labels: spec.Labels, Running: true, Guardian: guardian.Live, UID: spec.UID}
	f.running[spec.Instance], f.specs[spec.Instance] = st, spec
	if f.onBegun != nil {
		f.mu.Unlock()
		err := f.onBegun(ctx, spec)
		f.mu.Lock()
		return st, err
	}
	return st, nil
}

// starting changes whether the start of a name still waits for its result.
func (f *fakeRuntime) starting(name fleet.InstanceName, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.running[name]
	st.Starting = is
	f.running[name] = st
}

func (f *fakeRuntime) Started(ctx context.Context, name fleet.InstanceName) (guardian.Status, error) {
	if f.onStarted != nil {
		if err := f.onStarted(ctx, name); err != nil {
			return guardian.Status{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.running[name]
	st.Starting = false
	f.running[name] = st
	return st, nil
}

func (f *fakeRuntime) Stop(_ context.Context, name fleet.InstanceName) error {
	if f.onStop != nil {
		if err := f.onStop(name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("stop %s", name)
	delete(f.running, name)
	return nil
}

func (f *fakeRuntime) Remove(_ context.Context, name fleet.InstanceName) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.running[name]; taken {
		return fleet.Errorf(fleet.Conflict, "instance %s has a guardian", name)
	}
	f.note("remove %s", name)
	return nil
}

func (f *fakeRuntime) Signal(_ context.Context, name fleet.InstanceName, sig string, labels guardian.Labels) error {
	if f.onSignal != nil {
		if err := f.onSignal(name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("signal %s %s %d", name, sig, labels.Version.Revision)
	st := f.running[name]
	st.Labels = labels
	f.running[name] = st
	return nil
}

// said gives the calls since it was last asked.
func (f *fakeRuntime) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// fakeRegion serves bodies by deployment id, with ranges and ETags.
type fakeRegion struct {
	*httptest.Server
	mu       sync.Mutex
	bodies   map[string][]byte
	runs     map[string]string
	requests []string
	before   func(w http.ResponseWriter, r *http.Request) bool // true when it answered
}

func newFakeRegion(t testing.TB) *fakeRegion {
	t.Helper()
	r := &fakeRegion{bodies: map[string][]byte{}, runs: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *fakeRegion) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.URL.Path+" "+req.Header.Get("Range"))
	parts := strings.Split(req.URL.Path, "/")
	id, before := parts[4], r.before
	data, ok := r.bodies[id]
	run := r.runs[id]
	r.mu.Unlock()
	switch {
	case before != nil && before(w, req):
	case req.Header.Get("Authorization") != "Bearer "+testToken:
		w.WriteHeader(http.StatusUnauthorized)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case strings.HasSuffix(req.URL.Path, "/run"):
		_, _ = w.Write([]byte(run))
	default:
		w.Header().Set("ETag", `"`+string(hashOf(data))+`"`)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	}
}

// asked gives the requests since it was last asked.
func (r *fakeRegion) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.requests
	r.requests = nil
	return all
}

// bench is a node that is active at epoch 1, with its runtime and its region.
type bench struct {
	*Applier
	t       testing.TB
	dir     string
	store   *sqlite.Store
	rt      *fakeRuntime
	region  *fakeRegion
	key     identity.Key
	sealed  string
	logs    *safeBuffer
	dieAt   string
	mayRun  bool
	counted *Counters
	listing sync.Mutex
	refused []audit.Refusal

	collectEvery time.Duration
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func setup(t testing.TB) *bench {
	t.Helper()
	key, err := identity.Generate("plant-1-a")
	require.NoError(t, err)
	pub, err := key.SealingPublic()
	require.NoError(t, err)
	sealed, err := identity.Seal(pub, testToken)
	require.NoError(t, err)
	b := &bench{
		t: t, dir: t.TempDir(), rt: newFakeRuntime(), region: newFakeRegion(t), key: key, sealed: sealed,
		logs: &safeBuffer{}, mayRun: true, counted: &Counters{},
	}
	b.open()
	t.Cleanup(func() { _ = b.store.Close() })
	_, _, err = b.store.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 1}, "")
	require.NoError(t, err)
	return b
}

func (b *bench) open() {
	var err error
	b.store, err = sqlite.Open(b.t.Context(), filepath.Join(b.dir, "node.db"))
	require.NoError(b.t, err)
	log := slog.New(slog.NewTextHandler(b.logs, nil))
	b.Applier = NewApplier(ApplierOptions{
		Site: "plant-1", Node: "plant-1-a", Dir: b.dir, Store: b.store, Keys: b.key, Runtime: b.rt, Log: log,
		Fetcher: &Fetcher{
			Client: NewHTTPClient(nil), Counters: b.counted, Log: log, Backoff: time.Millisecond, Attempts: 3,
		},
		BaseEnv: []string{"PATH=/bin"}, MayRun: func() bool { return b.mayRun }, Failpoint: b.failpoint,
		CollectEvery: b.collectEvery, Refused: b.refuses,
	})
}

func (b *bench) refuses(r audit.Refusal) {
	b.listing.Lock()
	defer b.listing.Unlock()
	b.refused = append(b.refused, r)
}

// listed gives the reasons of what was refused as stale so far.
func (b *bench) listed() []string {
	b.listing.Lock()
	defer b.listing.Unlock()
	var reasons []string
	for _, r := range b.refused {
		reasons = append(reasons, r.Reason)
	}
	return reasons
}

// killed is what a failpoint throws: nothing of the process survives it but its files and
// what the runtime runs.
type killed struct{ at string }

func (b *bench) failpoint(name string) {
	if name == b.dieAt {
		panic(killed{name}) //nolint:forbidigo // stands in for kill -9
	}
}

// restart is a new agent process on the same files.
func (b *bench) restart() {
	require.NoError(b.t, b.store.Close())
	b.dieAt = ""
	b.open()
	require.NoError(b.t, b.Recover(b.t.Context()))
}

// killedAt applies a command with a process that dies at a failpoint.
func (b *bench) killedAt(point string, cmd fleet.RefreshDeploymentCommand) (died bool) {
	b.dieAt = point
	defer func() {
		if r := recover(); r != nil {
			k, ok := r.(killed)
			require.True(b.t, ok, "%v", r)
			died = k.at == point
		}
	}()
	_, _ = b.apply(cmd)
	return false
}

func (b *bench) apply(cmd fleet.RefreshDeploymentCommand) (fleet.DeploymentStatusResponse, error) {
	return b.Apply(b.t.Context(), cmd, nil)
}

func (b *bench) must(cmd fleet.RefreshDeploymentCommand) fleet.DeploymentStatusResponse {
	resp, err := b.apply(cmd)
	require.NoError(b.t, err)
	return resp
}

type with func(b *bench, c *fleet.RefreshDeploymentCommand)

// cmd is a deploy of a config with a command; the region offers its body.
func (b *bench) cmd(n int64, config string, changes ...with) fleet.RefreshDeploymentCommand {
	data := []byte(config)
	c := fleet.RefreshDeploymentCommand{
		Site: "plant-1", Instance: press, Role: fleet.RoleActive, Epoch: 1,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDeploy, Enabled: true,
			Content: fleet.Content{Kind: fleet.ContentJSON, Hash: hashOf(data), Size: int64(len(data))},
		},
		CentralFetchBaseURL: b.region.URL, FetchToken: b.sealed, IdleTimeout: 10 * time.Second,
		DeploymentID: string(hashOf([]byte(fmt.Sprint(n, config))))[:32],
	}
	b.region.mu.Lock()
	b.region.bodies[c.DeploymentID] = data
	b.region.mu.Unlock()
	withRun(testRun)(b, &c)
	for _, change := range changes {
		change(b, &c)
	}
	return c
}

func withRun(run string) with {
	return func(b *bench, c *fleet.RefreshDeploymentCommand) {
		c.Revision.RunHash = hashOf([]byte(run))
		b.region.mu.Lock()
		b.region.runs[c.DeploymentID] = run
		b.region.mu.Unlock()
	}
}

func noRun(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.RunHash = "" }

func named(name fleet.InstanceName) with {
	return func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Instance = name }
}

func under(role fleet.Role, epoch int64) with {
	return func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Role, c.Epoch = role, epoch }
}

func disabled(_ *bench, c *fleet.RefreshDeploymentCommand) {
	c.Revision.Action, c.Revision.Enabled = fleet.ActionDisable, false
}

func enabled(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.Action = fleet.ActionEnable }

func artifact(_ *bench, c *fleet.RefreshDeploymentCommand) {
	c.Revision.Content.Kind = fleet.ContentArtifact
}

func (b *bench) deletion(n int64, changes ...with) fleet.RefreshDeploymentCommand {
	c := b.cmd(n, "", changes...)
	c.Revision.Action, c.Revision.Enabled = fleet.ActionDelete, false
	c.Revision.Content, c.Revision.RunHash, c.FetchToken = fleet.Content{}, "", ""
	return c
}

// runsNow is the revision that a name runs, 0 for none.
func (b *bench) runsNow(name fleet.InstanceName) int64 {
	st, ok, err := b.rt.Status(b.t.Context(), name)
	require.NoError(b.t, err)
	if !ok || !st.Running {
		return 0
	}
	return st.Labels.Version.Revision
}

// file is the projected config, "" for none.
func (b *bench) file(name fleet.InstanceName) string {
	data, err := os.ReadFile(filepath.Join(b.dir, "instances", string(name), "config.json"))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(b.t, err)
	return string(data)
}

func (b *bench) held(name fleet.InstanceName) fleet.Held {
	h, err := b.Held(b.t.Context(), name)
	require.NoError(b.t, err)
	return h
}

// is checks everything about the instance press at once: what it runs (0: nothing), its
// file, its current number and its high-water mark.
func (b *bench) is(running int64, file string, current, high int64) {
	b.t.Helper()
	h := b.held(press)
	require.Equal(b.t, fmt.Sprint(running, file, current, high),
		fmt.Sprint(b.runsNow(press), b.file(press), h.Version.Revision, h.HighWater.Revision),
		"(running, file, current, high-water)")
	in, err := b.store.Instance(b.t.Context(), press)
	require.NoError(b.t, err)
	require.Nil(b.t, in.Staged)
}

var startFails = func(config string) func(context.Context, guardian.Spec) error {
	bad := hashOf([]byte(config))
	return func(_ context.Context, spec guardian.Spec) error {
		if spec.Labels.Hash == bad {
			return fleet.Errorf(fleet.ApplyFailed, "the command ended with exit code 3")
		}
		return nil
	}
}
