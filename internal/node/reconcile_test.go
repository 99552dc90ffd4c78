package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

const passToken = "the-reconcile-token"

// expecting is a region that expects things of a site, with a node that is compared.
type expecting struct {
	*bench
	agent *Agent
	site  *httptest.Server

	mu       sync.Mutex
	version  fleet.SetVersion
	deployed map[fleet.InstanceName]fleet.RefreshDeploymentCommand
	flying   map[fleet.InstanceName]bool
	absence  func(extras []fleet.Extra) fleet.Absence
	spoil    func(w http.ResponseWriter, r *http.Request) bool // true when it answered
	asked    []string
	reports  []fleet.ReconcileReport
	told     []fleet.NodeInstance
}

func expect(t *testing.T) *expecting {
	t.Helper()
	e := &expecting{
		bench: setup(t), version: fleet.SetVersion{Era: 1, Number: 1},
		deployed: map[fleet.InstanceName]fleet.RefreshDeploymentCommand{}, flying: map[fleet.InstanceName]bool{},
	}
	e.site = httptest.NewServer(e)
	t.Cleanup(e.site.Close)
	e.agent = &Agent{
		refusals: refusals{Window: audit.NewWindow(time.Now), now: time.Now, wake: make(chan struct{}, 1)},
		Applier:  e.Applier, Store: e.store, counters: e.counted, news: newNews(), key: e.key, signing: e.key,
		opt: AgentOptions{Site: "plant-1", Node: "plant-1-a"},
	}
	e.agent.client = &Client{API: e.site.URL, HTTP: NewHTTPClient(nil), Key: e.agent.Key, Now: time.Now}
	return e
}

// deploys makes a revision of press what the site expects, under other names too.
func (e *expecting) deploys(name fleet.InstanceName, n int64, config string) fleet.RefreshDeploymentCommand {
	cmd := e.cmd(n, config, named(name), noRun)
	cmd.DeploymentID = string(hashOf([]byte(fmt.Sprint(name, n, config))))[:32]
	e.region.mu.Lock()
	e.region.bodies[cmd.DeploymentID] = []byte(config)
	e.region.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deployed[name] = cmd
	e.version.Number++
	return cmd
}

func (e *expecting) reconcile() (fleet.ReconcileReport, error) { return e.compared(false) }

func (e *expecting) compared(files bool) (fleet.ReconcileReport, error) {
	pub, err := e.key.SealingPublic()
	require.NoError(e.t, err)
	sealed, err := identity.Seal(pub, passToken)
	require.NoError(e.t, err)
	return e.agent.Reconcile(e.t.Context(), fleet.ReconcileCommand{
		ID: "1", Site: "plant-1", Role: fleet.RoleActive, Epoch: 1, BaseURL: e.site.URL, Token: sealed, Files: files,
	})
}

func (e *expecting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tail := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if tail == "config" || tail == "run" {
		e.region.ServeHTTP(w, r)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, tail)
	if e.spoil != nil && e.spoil(w, r) {
		return
	}
	switch tail {
	case "deployments":
		e.set(w, r)
	case "tickets":
		e.tickets(w, r)
	case "bodies":
		e.bodies(w, r)
	case "confirm-absent":
		var in struct{ Instances []fleet.Extra }
		_ = json.NewDecoder(r.Body).Decode(&in)
		_ = json.NewEncoder(w).Encode(e.absence(in.Instances))
	case "reconciled":
		var in fleet.ReconcileReport
		_ = json.NewDecoder(r.Body).Decode(&in)
		e.reports = append(e.reports, in)
	case "reports":
		var in Report
		_ = json.NewDecoder(r.Body).Decode(&in)
		e.told = append(e.told, in.Instances...)
		_ = json.NewEncoder(w).Encode(Placement{})
	}
}

func (e *expecting) set(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+passToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Holdfast-Set-Version", e.version.String())
	if r.Header.Get("If-None-Match") == "W/"+strconv.Quote(e.version.String()) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	list := []fleet.ExpectedInstance{}
	for name, cmd := range e.deployed {
		list = append(list, fleet.ExpectedInstance{
			Instance: name, RevisionHash: cmd.Revision.Content.Hash, Era: cmd.Revision.Era, Revision: cmd.Revision.Version.Revision,
			RunHash: cmd.Revision.RunHash, Enabled: cmd.Revision.Enabled, InFlight: e.flying[name],
		})
	}
	w.Header().Set("Holdfast-Set-Count", strconv.Itoa(len(list)))
	_ = json.NewEncoder(w).Encode(list)
}

func (e *expecting) tickets(w http.ResponseWriter, r *http.Request) {
	var in struct{ Instances []fleet.InstanceName }
	_ = json.NewDecoder(r.Body).Decode(&in)
	if len(in.Instances) > fleet.MaxComparedNames {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var out struct {
		Commands []fleet.RefreshDeploymentCommand `json:"commands"`
	}
	for _, name := range in.Instances {
		if cmd, is := e.deployed[name]; is && !e.flying[name] {
			out.Commands = append(out.Commands, cmd)
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// bodies serves what is deployed in one stream, each noted as one request of the region.
func (e *expecting) bodies(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+passToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	e.region.mu.Lock()
	defer e.region.mu.Unlock()
	if e.region.before != nil && e.region.before(w, r) {
		return
	}
	w.Header().Set("Content-Type", bodiesType)
	for _, h := range asked(r) {
		for _, cmd := range e.deployed {
			if data, is := e.region.bodies[cmd.DeploymentID]; is && cmd.Revision.Content.Hash == h {
				e.region.requests = append(e.region.requests, string(h))
				_, _ = w.Write(record(h, data))
				break
			}
		}
	}
}

// drops lets go of everything, by tombstones of a number.
func drops(n int64) func([]fleet.Extra) fleet.Absence {
	return func(extras []fleet.Extra) fleet.Absence {
		var a fleet.Absence
		for _, e := range extras {
			a.Drop = append(a.Drop, fleet.RefreshDeploymentCommand{
				DeploymentID: string(hashOf([]byte(e.Instance)))[:32], Site: "plant-1", Instance: e.Instance, Role: fleet.RoleActive, Epoch: 1,
				Revision: fleet.Revision{Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDelete},
			})
		}
		return a
	}
}

// N54, N55, N56, N57, N93
func TestReconcileConverges(t *testing.T) {
	t.Parallel()
	e := expect(t)
	for i := range 5 {
		e.must(e.deploys(fleet.InstanceName(fmt.Sprintf("level-%d", i)), 1, "same"))
	}
	e.must(e.deploys("stale", 1, "old"))
	e.deploys("stale", 2, "new")
	e.deploys("missing", 3, "there")
	e.deploys("flying", 1, "soon")
	e.flying["flying"] = true
	e.must(e.cmd(1, "stray", named("stray"), noRun))
	e.absence = drops(2)
	e.region.asked()

	report, err := e.reconcile()
	require.NoError(t, err)
	want := fleet.ReconcileReport{
		Set: e.version, Expected: 8, Equal: 5, Fetched: 2, Left: 1, Dropped: 1,
		Differs: []fleet.Differs{{Instance: "flying", Why: "in_flight"}},
	}
	require.Equal(t, want, report)
	require.Equal(t, []fleet.ReconcileReport{want}, e.reports)
	require.Equal(t, "new", e.file("stale"))
	require.Equal(t, "there", e.file("missing"))
	require.Empty(t, e.file("stray"))
	require.Equal(t, fleet.ActionDelete, e.held("stray").Action)
	require.Len(t, e.region.asked(), 2, "nothing is fetched that is equal")
	told := map[fleet.InstanceName]bool{}
	for _, in := range e.told {
		told[in.Instance] = true
	}
	require.Equal(t, map[fleet.InstanceName]bool{"stale": true, "missing": true, "stray": true}, told)
	require.Equal(t, []string{"reports", "reconciled"}, e.asked[len(e.asked)-2:], "the region knows what is held before it hears of the end")
}

// N86, X11: a node that was found equal asks with the version of that set, and one answer
// without a body is all.
func TestReconcileUnchanged(t *testing.T) {
	t.Parallel()
	e := expect(t)
	e.must(e.deploys("level", 1, "same"))
	_, err := e.reconcile()
	require.NoError(t, err)
	e.asked = nil
	report, err := e.reconcile()
	require.NoError(t, err)
	require.True(t, report.Unchanged)
	require.Equal(t, []string{"deployments", "reconciled"}, e.asked)

	e.must(e.deploys("level", 2, "newer")) // a delivery came meanwhile
	report, err = e.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, report.Equal)

	e.deploys("level", 3, "newest")
	e.flying["level"] = true
	report, err = e.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, report.Left)
	e.flying["level"] = false // its delivery came to nothing: the set is at the same version
	report, err = e.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, report.Fetched, "a comparison that left something alone is not remembered as clean")
}

// N86, X3, X28: an empty, truncated, erroring, unauthenticated or older set takes nothing away.
func TestReconcileRefuses(t *testing.T) {
	t.Parallel()
	answer := func(status int, version, count, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/deployments") {
				return false
			}
			w.Header().Set("Holdfast-Set-Version", version)
			w.Header().Set("Holdfast-Set-Count", count)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	line := `{"instanceUniqueName":"other","revisionHash":"` + string(hashOf([]byte("x"))) + `","era":1,"revision":1,"enabled":true}`
	for _, c := range []struct {
		name    string
		spoil   func(http.ResponseWriter, *http.Request) bool
		refused string
		kind    fleet.Kind
	}{
		{"empty", answer(200, "1.9", "0", "[]"), decide.SetEmpty, ""},
		{"truncated", answer(200, "1.9", "2", "["+line+"]"), decide.SetTruncated, ""},
		{"longer than counted", answer(200, "1.9", "0", "["+line+"]"), decide.SetTruncated, ""},
		{"older", answer(200, "1.1", "1", "["+line+"]"), decide.SetOlder, ""},
		{"cut in the middle", answer(200, "1.9", "1", "["+line), "", fleet.Communication},
		{"no JSON", answer(200, "1.9", "1", "<html>"), "", fleet.Communication},
		{"without version", answer(200, "", "1", "["+line+"]"), "", fleet.Communication},
		{"without count", answer(200, "1.9", "", "["+line+"]"), "", fleet.Communication},
		{"an error", answer(500, "1.9", "0", "[]"), "", fleet.Unavailable},
		{"unauthenticated", answer(401, "1.9", "0", "[]"), "", fleet.Unauthenticated},
		{"not modified, though nothing was said to be clean", answer(304, "1.9", "0", ""), "", fleet.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := expect(t)
			e.must(e.deploys("level", 1, "same"))
			require.NoError(t, e.store.SeeSet(t.Context(), fleet.SetVersion{Era: 1, Number: 5}))
			e.absence = func([]fleet.Extra) fleet.Absence { t.Error("absence was asked for"); return fleet.Absence{} }
			e.spoil = c.spoil
			report, err := e.reconcile()
			if c.kind != "" {
				require.Equal(t, c.kind, fleet.KindOf(err), "%v", err)
			} else {
				require.NoError(t, err)
				require.Len(t, e.reports, 1, "the region hears why")
			}
			require.Equal(t, c.refused, report.Refused)
			require.Equal(t, "same", e.file("level"))
			require.Zero(t, report.Fetched+report.Dropped)
		})
	}
}

// X3: the node drops nothing that it did not ask about, nor by what is no newer delete.
func TestReconcileDropsOnlyWhatItAsked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*fleet.RefreshDeploymentCommand){
		"another name": func(c *fleet.RefreshDeploymentCommand) { c.Instance = "level" },
		"no delete":    func(c *fleet.RefreshDeploymentCommand) { c.Revision.Action = fleet.ActionDeploy },
		"its own number": func(c *fleet.RefreshDeploymentCommand) {
			c.Revision.Version = fleet.Version{Era: 1, Revision: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := expect(t)
			e.must(e.deploys("level", 1, "same"))
			e.must(e.cmd(1, "stray", named("stray"), noRun))
			e.absence = func(extras []fleet.Extra) fleet.Absence {
				a := drops(2)(extras)
				spoil(&a.Drop[0])
				return a
			}
			_, err := e.reconcile()
			require.Equal(t, fleet.Communication, fleet.KindOf(err))
			require.Equal(t, "same", e.file("level"))
			require.Equal(t, "stray", e.file("stray"))
		})
	}
}

// N86, X28: what waits for an operator or is kept stays, and is named.
func TestReconcileKeeps(t *testing.T) {
	t.Parallel()
	e := expect(t)
	e.must(e.deploys("level", 1, "same"))
	e.must(e.cmd(1, "stray", named("stray"), noRun))
	e.must(e.cmd(1, "owed", named("owed"), noRun))
	e.absence = func([]fleet.Extra) fleet.Absence {
		return fleet.Absence{
			Wait: []fleet.Differs{{Instance: "stray", Why: fleet.OrphanNeverKnown}}, Keep: []fleet.Differs{{Instance: "owed", Why: "owed"}},
		}
	}
	report, err := e.reconcile()
	require.NoError(t, err)
	require.Equal(t, 1, report.Waiting)
	require.Equal(t, 1, report.Left)
	require.Equal(t, []fleet.Differs{{Instance: "stray", Why: "never_known"}, {Instance: "owed", Why: "owed"}}, report.Differs)
	require.Equal(t, "stray", e.file("stray"))
	e.asked = nil
	_, err = e.reconcile()
	require.NoError(t, err)
	require.Contains(t, e.asked, "confirm-absent", "it is not clean")
}

// N59: one that cannot be fetched stops no other, and a region that is gone ends it.
func TestReconcileGoesOn(t *testing.T) {
	t.Parallel()
	t.Run("past one that fails", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		bad := e.deploys("bad", 1, "what it says")
		e.region.bodies[bad.DeploymentID] = []byte("another thing")
		e.deploys("good", 1, "fine")
		report, err := e.reconcile()
		require.NoError(t, err)
		require.Equal(t, 1, report.Fetched)
		require.Equal(t, 1, report.Failed)
		require.Equal(t, []fleet.Differs{{Instance: "bad", Why: string(fleet.HashMismatch)}}, report.Differs)
		require.Equal(t, "fine", e.file("good"))
	})
	t.Run("not without a region", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		e.deploys("one", 1, "fine")
		e.region.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		_, err := e.reconcile()
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
		seen, err := e.store.SeenSet(t.Context())
		require.NoError(t, err)
		require.Equal(t, sqlite.SeenSet{Newest: e.version}, seen)
	})
}

// N84, N98: what is missing comes by one stream and one transaction for 500 names.
func TestReconcileStreams(t *testing.T) {
	t.Parallel()
	t.Run("in pages", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		const missing = fleet.MaxComparedNames + 100
		for i := range missing {
			e.deploys(numbered(i), 1, fmt.Sprint("config ", i))
		}
		streams := 0
		e.spoil = func(_ http.ResponseWriter, r *http.Request) bool {
			if tail(r) == "bodies" {
				streams++
			}
			return false
		}
		report, err := e.reconcile()
		require.NoError(t, err)
		require.Equal(t, missing, report.Fetched)
		require.True(t, report.Clean())
		require.Equal(t, 2, streams)
		require.Len(t, e.told, missing)
		for i := range missing {
			require.Equal(t, fmt.Sprint("config ", i), e.file(numbered(i)))
		}
	})
	t.Run("with what has a command, and what is too large, by itself", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		large := strings.Repeat("x", fleet.MaxBatchBody+1)
		e.deploys("large", 1, large)
		e.deploys("small", 1, "small")
		runs := e.deploys("runs", 1, "runs")
		withRun(testRun)(e.bench, &runs)
		e.deployed["runs"] = runs
		e.region.asked()
		report, err := e.reconcile()
		require.NoError(t, err)
		require.Equal(t, 3, report.Fetched)
		require.EqualValues(t, 1, e.runsNow("runs"))
		require.Equal(t, large, e.file("large"))
		var single []string
		for _, path := range e.region.asked() {
			if strings.HasPrefix(path, "/") {
				single = append(single, path)
			}
		}
		require.Len(t, single, 2, "the large body and the run section")
	})
	t.Run("one by one from a region that no longer offers a stream", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		for i := range 20 {
			e.deploys(numbered(i), 1, fmt.Sprint("config ", i))
		}
		e.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			if tail(r) == "bodies" {
				w.WriteHeader(http.StatusNotFound)
			}
			return tail(r) == "bodies"
		}
		report, err := e.reconcile()
		require.NoError(t, err)
		require.Equal(t, 20, report.Fetched)
		require.True(t, report.Clean())
	})
}

// N98: what the region heard otherwise is not reported once more, and no report competes with
// a comparison for long.
func TestReportLeavesOut(t *testing.T) {
	t.Parallel()
	e := expect(t)
	for i := range 3 {
		e.deploys(numbered(i), 1, fmt.Sprint("config ", i))
	}
	_, err := e.reconcile()
	require.NoError(t, err)
	require.Len(t, e.told, 3)
	told, alive := map[fleet.InstanceName]fleet.NodeInstance{}, false
	require.NoError(t, e.agent.sendReport(t.Context(), told, &alive))
	require.Len(t, e.told, 3)
	e.must(e.deploys(numbered(1), 2, "newer"))
	require.NoError(t, e.agent.sendReport(t.Context(), told, &alive))
	require.Len(t, e.told, 4)

	done, err := e.agent.comparing.lock(t.Context(), "")
	require.NoError(t, err)
	begun := time.Now()
	e.agent.letCompare(t.Context(), 20*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 20*time.Millisecond)
	done()
	e.agent.letCompare(t.Context(), time.Hour)
}
