package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	_ "github.com/holdfast-io/holdfast/internal/guardian/entry" // the test binary is a guardian too
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// patience is for conditions that hold within milliseconds on an idle machine.
const patience = 30 * time.Second

// TestMain makes the test binary an agent too, and the program of replicas.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "program":
			os.Exit(program())
		case "agent":
			os.Exit(agent(os.Args[2]))
		}
	}
	goleak.VerifyTestMain(m)
}

// program is a web service as people deploy them. It is sick while a file "sick" is in its
// directory, is not ready while there is a file "busy", waits with listening while there is a file "wait", and ends on
// GET /exit.
func program() int {
	fmt.Println("up at", env("PORT"), "as", os.Getpid())
	if env("STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("sleep", "1000")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 1
		}
	}
	if len(os.Args) > 2 && os.Args[2] == "heals" {
		_ = os.Remove("sick")
	}
	for there("wait") {
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // a program of its own
	}
	http.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if there("sick") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if there("busy") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("GET /exit", func(http.ResponseWriter, *http.Request) { syscall.Exit(3) }) //nolint:revive // a program of its own
	fmt.Println(http.ListenAndServe("127.0.0.1:"+env("PORT"), nil))
	return 1
}

func env(name string) string {
	value, _ := os.LookupEnv(name) //nolint:forbidigo // handed to programs, and read by them
	return value
}

func there(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// fakeRegion is what a node asks of its region, in memory.
type fakeRegion struct {
	mu          sync.Mutex
	away        bool
	refuse      bool // definitions
	noLogs      bool
	set         fleet.NodeReplicas
	definitions map[fleet.Hash][]byte
	logs        map[fleet.ReplicaID]string
	samples     map[fleet.ReplicaID]Sample
	fetched     int
	ends        []fleet.NodeReplica // that are named until the node says that they have ended
}

var _ region = (*fakeRegion)(nil)

func (f *fakeRegion) call() (func(), error) {
	f.mu.Lock()
	if f.away {
		f.mu.Unlock()
		return nil, fleet.Errorf(fleet.Communication, "the region is away")
	}
	return f.mu.Unlock, nil
}

func (f *fakeRegion) NodeReplicas(_ context.Context, have fleet.SetVersion) (fleet.NodeReplicas, bool, error) {
	f.mu.Lock()
	f.fetched++
	f.mu.Unlock()
	done, err := f.call()
	if err != nil {
		return fleet.NodeReplicas{}, false, err
	}
	defer done()
	return f.answer(), have == fleet.SetVersion{Era: f.set.Era, Number: f.set.Version}, nil
}

func (f *fakeRegion) ReplicaDefinition(_ context.Context, hash fleet.Hash) ([]byte, error) {
	done, err := f.call()
	if err != nil {
		return nil, err
	}
	defer done()
	if f.refuse {
		return nil, fleet.Errorf(fleet.Unavailable, "not now")
	}
	body, has := f.definitions[hash]
	if !has {
		return nil, fleet.Errorf(fleet.NotFound, "no such definition")
	}
	return body, nil
}

func (f *fakeRegion) ReplicaLog(_ context.Context, l LogPiece) error {
	done, err := f.call()
	if err != nil {
		return err
	}
	defer done()
	if f.noLogs {
		return fleet.Errorf(fleet.Unavailable, "not now")
	}
	have := f.logs[l.Replica]
	if l.Offset <= int64(len(have)) {
		f.logs[l.Replica] = have[:l.Offset] + string(l.Data)
	}
	return nil
}

func (f *fakeRegion) ReplicaSamples(_ context.Context, all []Sample) error {
	done, err := f.call()
	if err != nil {
		return err
	}
	defer done()
	for _, s := range all {
		f.samples[s.ID] = s
	}
	return nil
}

// bench is a node with its region.
type bench struct {
	t      *testing.T
	dir    string
	region *fakeRegion
	store  *sqlite.Store
	keeper *Keeper
	change func(*Options)
	stop   func()

	mu       sync.Mutex
	statuses map[fleet.ReplicaID]*nodev1.ReplicaStatus
	seen     map[fleet.ReplicaID][]string // "phase health restarts reason", without repeats
	reports  int
	found    corrected
}

func setup(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{
		t: t, dir: t.TempDir(), region: &fakeRegion{
			set: fleet.NodeReplicas{Era: 1}, definitions: map[fleet.Hash][]byte{},
			logs: map[fleet.ReplicaID]string{}, samples: map[fleet.ReplicaID]Sample{},
		},
		statuses: map[fleet.ReplicaID]*nodev1.ReplicaStatus{}, seen: map[fleet.ReplicaID][]string{},
		change: func(o *Options) {
			for _, c := range change {
				c(o)
			}
		},
	}
	b.open(true)
	t.Cleanup(func() {
		b.stop()
		runtime := b.runtime()
		left, err := runtime.List(context.Background())
		require.NoError(t, err)
		for _, st := range left {
			require.NoError(t, runtime.Stop(context.Background(), st.Instance))
		}
	})
	return b
}

func (b *bench) runtime() *guardian.Runtime {
	self, err := os.Executable()
	require.NoError(b.t, err)
	return &guardian.Runtime{
		Root: filepath.Join(b.dir, "replicas", "run"), Executable: self, LifetimePID: os.Getpid(), Unleased: true,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	}
}

// options are those of an agent on a directory.
func options(dir string, runtime *guardian.Runtime) Options {
	return Options{
		Node: "plant-1-a", Site: "plant-1", Dir: filepath.Join(dir, "replicas"), Address: "127.0.0.1",
		Drivers: map[fleet.Driver]Driver{fleet.DriverProcess: NewProcess(runtime, nil, nil)}, Now: guardian.SinceBoot, Boot: "this boot",
		Log: runtime.Log, BaseEnv: []string{"PATH=" + env("PATH")},
		LogEvery: 20 * time.Millisecond, SampleEvery: 50 * time.Millisecond,
	}
}

// open begins with a new agent on the same files; streamed says whether it has its region's ear.
func (b *bench) open(streamed bool) {
	b.t.Helper()
	var err error
	b.store, err = sqlite.Open(b.t.Context(), filepath.Join(b.dir, "node.db"))
	require.NoError(b.t, err)
	opt := options(b.dir, b.runtime())
	opt.Region, opt.Store = b.region, b.store
	b.change(&opt)
	k := New(opt)
	b.keeper = k
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- k.Run(ctx) }()
	go func() { ended <- b.stream(ctx, k) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		for range 2 {
			require.NoError(b.t, <-ended)
		}
		require.NoError(b.t, b.store.Close())
	})
	if streamed {
		k.Heard()
	}
}

// stream is the region's end of the node's reports.
func (b *bench) stream(ctx context.Context, k *Keeper) error {
	for complete := true; ; complete = false {
		report, err := k.Next(ctx, complete)
		if err != nil {
			return nil //nolint:nilerr // its context ended
		}
		b.mu.Lock()
		b.reports++
		b.found.missing += report.GetDigest().GetMissing()
		b.found.stray += report.GetDigest().GetStray()
		for _, st := range report.GetReplicas() {
			id := fleet.ReplicaID(st.GetId())
			b.statuses[id] = st
			if (known{Phase: fleet.ReplicaPhase(st.GetPhase()), Health: fleet.ReplicaHealth(st.GetHealth())}).passing() {
				continue
			}
			line := strings.TrimSpace(fmt.Sprintf("%s %s %d %s", st.GetPhase(), st.GetHealth(), st.GetRestarts(), st.GetReason()))
			if all := b.seen[id]; len(all) == 0 || all[len(all)-1] != line {
				b.seen[id] = append(all, line)
			}
		}
		b.mu.Unlock()
		for _, st := range report.GetReplicas() {
			if st.GetPhase() == string(fleet.PhaseStopped) {
				b.confirm(fleet.ReplicaID(st.GetId()))
			}
		}
		k.Acked(report.GetSequence())
	}
}

func (b *bench) status(id fleet.ReplicaID) *nodev1.ReplicaStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.statuses[id]
}

// told are the states of a replica that were reported, but for those that the next one may have caught up with.
func (b *bench) told(id fleet.ReplicaID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.seen[id]...)
}

// web is a definition of the program above.
func web(change ...func(*fleet.Definition)) fleet.Definition {
	self, _ := os.Executable()
	def := fleet.Definition{Process: fleet.Process{
		Driver: fleet.DriverProcess, Command: []string{self, "program"}, Env: map[string]string{"ADDRESS": "http://localhost:${PORT}/$$"},
		Ports:   []fleet.ProcessPort{{Name: "http"}},
		Health:  &fleet.HealthCheck{Type: fleet.HealthHTTP, Path: "/health", Interval: 0.05, Timeout: 20, HealthyThreshold: 1, UnhealthyThreshold: 1000},
		Startup: &fleet.Startup{Deadline: 60}, StopSeconds: 10,
	}}
	for _, c := range change {
		c(&def)
	}
	return def
}

// frail has a definition's probes fail soon.
func frail(d *fleet.Definition) { d.Health.UnhealthyThreshold = 2 }

// defined makes a definition known to the region.
func (b *bench) defined(def fleet.Definition) fleet.Hash {
	body, err := json.Marshal(def)
	require.NoError(b.t, err)
	b.region.mu.Lock()
	defer b.region.mu.Unlock()
	b.region.definitions[hashOf(body)] = body
	return hashOf(body)
}

func line(id fleet.ReplicaID, definition fleet.Hash) fleet.NodeReplica {
	return fleet.NodeReplica{ID: id, Deployment: "web", Revision: 3, ProcessVersion: 7, Definition: definition, Run: true, StopSeconds: 10}
}

// ask makes a set the newest and says so. As a region does, it names what it listed before until the node
// says that nothing of it runs.
func (b *bench) ask(lines ...fleet.NodeReplica) {
	b.region.mu.Lock()
	for _, was := range b.region.set.Replicas {
		if was.Run && !slices.ContainsFunc(lines, func(l fleet.NodeReplica) bool { return l.ID == was.ID }) {
			was.Run = false
			b.region.ends = append(b.region.ends, was)
		}
	}
	b.region.ends = slices.DeleteFunc(b.region.ends, func(was fleet.NodeReplica) bool {
		return slices.ContainsFunc(lines, func(l fleet.NodeReplica) bool { return l.ID == was.ID })
	})
	b.region.mu.Unlock()
	b.says(lines...)
}

// says is ask by a region that knows nothing of what it listed before.
func (b *bench) says(lines ...fleet.NodeReplica) {
	b.region.mu.Lock()
	b.region.list(lines)
	at := b.region.set
	b.region.mu.Unlock()
	b.keeper.OnReplicaSet(at.Era, at.Version)
}

// list makes the next set; mu is held.
func (f *fakeRegion) list(lines []fleet.NodeReplica) {
	f.set.Version++
	f.set.Replicas = slices.Clone(lines)
}

// answer is the set with the tombstones; mu is held.
func (f *fakeRegion) answer() fleet.NodeReplicas {
	set := f.set
	set.Replicas = slices.Concat(set.Replicas, f.ends)
	if set.Count == 0 {
		set.Count = len(set.Replicas)
	}
	return set
}

// confirm takes the node's word that nothing of a replica runs.
func (b *bench) confirm(id fleet.ReplicaID) {
	b.region.mu.Lock()
	had := len(b.region.ends)
	b.region.ends = slices.DeleteFunc(b.region.ends, func(l fleet.NodeReplica) bool { return l.ID == id })
	ended := len(b.region.ends) < had
	if ended {
		b.region.set.Version++
	}
	at := b.region.set
	b.region.mu.Unlock()
	if ended {
		b.keeper.OnReplicaSet(at.Era, at.Version)
	}
}

func (b *bench) eventually(holds func() bool, otherwise string) {
	b.t.Helper()
	require.Eventually(b.t, holds, patience, 5*time.Millisecond, otherwise)
}

// is waits until the node said that of a replica.
func (b *bench) is(id fleet.ReplicaID, phase fleet.ReplicaPhase, health fleet.ReplicaHealth) *nodev1.ReplicaStatus {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.t.Log(b.told(id), b.status(id))
		}
	}()
	b.eventually(func() bool {
		st := b.status(id)
		return st.GetPhase() == string(phase) && st.GetHealth() == string(health)
	}, fmt.Sprintf("never %s %s", phase, health))
	return b.status(id)
}

func (b *bench) in(id fleet.ReplicaID, name string) string {
	return filepath.Join(b.dir, "replicas", string(id), name)
}

// gone waits until nothing of a replica is left on the machine.
func (b *bench) gone(id fleet.ReplicaID) {
	b.t.Helper()
	b.eventually(func() bool {
		rows, err := b.store.Replicas(context.Background())
		require.NoError(b.t, err)
		for _, r := range rows {
			if r.ID == id {
				return false
			}
		}
		return true
	}, "it is remembered for ever")
	require.NoDirExists(b.t, b.in(id, ""))
	require.NoDirExists(b.t, filepath.Join(b.dir, "replicas", "run", string(id)))
}

// alive says whether a process runs; one that has ended may wait for its parent to ask.
func alive[T uint32 | string](pid T) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%v/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

func get(t *testing.T, url string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + url) //nolint:noctx // a test
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}
