package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const (
	// e2ePatience is for what the region does by itself: a heartbeat timeout, a sweep and a
	// restart may lie in between, on a machine that is busy.
	e2ePatience = 2 * time.Minute
	// keepVariable names a folder in which the data of failed runs stays.
	keepVariable = "HOLDFAST_E2E_KEEP"
)

// stack is a whole region in processes of its own, steered as an operator would.
type stack struct {
	data, failpoints string
	doc              devDoc
	said             *transcript
	supervisor       *exec.Cmd
	api              *api.Client
	pg               *pgxpool.Pool
	temporal         workflowservice.WorkflowServiceClient
	stores           *nodeStores
	database         string // its URL
	otherLink        string // where another server's link is
}

// e2eLease is how long a lease lasts. A machine that runs tests may stand still for longer than
// the 3 s of --fast, and most tests are about what happens while nobody loses a lease.
const e2eLease = 9 * time.Second

// e2ePace is that of the regions that startStack starts, and of what tests start beside them.
var e2ePace = pace{Fast: true, HeartbeatTimeout: e2eLease}

func e2eTiming() region.Timing { return e2ePace.timing() }

func lasting(lease time.Duration) string { return fmt.Sprintf("--%s=%v", heartbeatFlag, lease) }

// startStack starts an empty region of some sites, each with a node whose lease its peer knows; it ends with the test.
func startStack(t *testing.T, sites int) *stack {
	t.Helper()
	return startWith(t, sites)
}

// startWith has more in its environment, and what begins with -- on its command line.
func startWith(t *testing.T, sites int, env ...string) *stack {
	t.Helper()
	realOnly(t)
	s := launchStack(t, sites, env...)
	require.True(t, s.up(), "%s", s.said)
	s.connect(t)
	t.Cleanup(func() { s.dump(t) })
	for _, site := range siteNames(sites) {
		s.agreed(t, string(site)) // what is delivered before may be started again at the raised epoch
	}
	return s
}

func (s *stack) up() bool {
	said := s.said.String()
	return strings.Contains(said, "the region is up") || strings.Contains(said, "the regions are up")
}

// launchStack starts a supervisor and returns when its region is up, or has given up.
func launchStack(t *testing.T, sites int, env ...string) *stack {
	t.Helper()
	return launchAt(t, e2eData(t), sites, append([]string{lasting(e2eLease)}, env...)...)
}

// isolated has nodes run each project's programs under its own uid, as they do for users.
const isolated = "--isolation=uid"

func launchAt(t *testing.T, data string, sites int, env ...string) *stack {
	t.Helper()
	return launchBehind(t, nil, data, sites, env...)
}

// launchBehind has another command start the supervisor.
func launchBehind(t *testing.T, before []string, data string, sites int, env ...string) *stack {
	t.Helper()
	s := &stack{data: filepath.Join(data, "region"), failpoints: filepath.Join(data, "failpoints"), said: &transcript{}}
	require.NoError(t, os.MkdirAll(s.failpoints, 0o700))
	args := append([]string{os.Args[0], asProgram, "--data", s.data, "--empty", "--sites", strconv.Itoa(sites), "--isolation=none"}, freeFlags...) // those that run programs of users isolate them
	for len(env) > 0 && strings.HasPrefix(env[0], "--") {
		args, env = append(args, env[0]), env[1:]
	}
	args = append(before, args...)
	s.supervisor = exec.Command(args[0], args[1:]...)
	chosen, err := choose([]listener{{name: "link", want: loopback + ":0"}}, nil)
	require.NoError(t, err)
	s.otherLink = chosen.dial("link")
	s.supervisor.Env = append(os.Environ(), failpointsVariable+"="+s.failpoints, linksVariable+"=,"+s.otherLink)
	s.supervisor.Env = append(s.supervisor.Env, env...)
	s.supervisor.Stdout, s.supervisor.Stderr = s.said, s.said
	require.NoError(t, spawn(s.supervisor, syscall.SIGKILL))
	ended := make(chan struct{})
	go func() {
		_ = s.supervisor.Wait() // how it ended is in what it said
		close(ended)
	}()
	t.Cleanup(func() { s.end(t, ended) })
	waitFor(t, "the region is up", func(context.Context) error {
		select {
		case <-ended:
			return nil
		default:
		}
		if !s.up() {
			return errNotYet
		}
		return nil
	})
	return s
}

// dump shows what the region was at when a test failed.
func (s *stack) dump(t *testing.T) {
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	for _, table := range []string{"site_leases", "operations", "deliveries", "delivery_nodes", "owed", "pending", "outbox", "node_held", "snapshots", "batches", "fleet_runs", "fleet_targets", "deployments", "replicas", "node_sets", "node_digests", "deployment_history"} {
		rows, err := s.pg.Query(ctx, `SELECT t::text FROM `+table+` t ORDER BY 1 DESC LIMIT 50`)
		if err != nil {
			t.Logf("%s: %v", table, err)
			continue
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		t.Logf("%s: %v\n%s", table, err, strings.Join(all, "\n"))
	}
	logs, _ := filepath.Glob(filepath.Join(s.data, "logs", "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		t.Logf("%s: %v\n%s", path, err, text[max(0, len(text)-16<<10):])
	}
	s.stacks(t)
}

// stacks ends the server of a test that failed, and shows what each goroutine of it waited for.
func (s *stack) stacks(t *testing.T) {
	t.Helper()
	doc := s.dev(t)
	at := slices.IndexFunc(doc.Processes, func(p devProcess) bool { return p.Name == serverName && p.Running })
	if at < 0 {
		return
	}
	pid := doc.Processes[at].PID
	_ = syscall.Kill(pid, syscall.SIGQUIT)
	_ = pollErr(context.Background(), testPatience, func(context.Context) error { return unless(!alive(pid)) })
	text, err := os.ReadFile(filepath.Join(s.data, "logs", serverName+".log"))
	_, last, found := strings.Cut(string(text), "SIGQUIT: quit")
	t.Logf("the goroutines of the server: %t, %v\n%s", found, err, last[:min(len(last), 256<<10)])
}

// e2eData is a folder that goes with the test, unless a person wants to look at it.
func e2eData(t *testing.T) string {
	t.Helper()
	keep := os.Getenv(keepVariable)
	if keep == "" {
		return testkit.Dir(t)
	}
	dir, err := os.MkdirTemp(keep, strings.ReplaceAll(t.Name(), "/", "-")+"-*")
	require.NoError(t, err)
	t.Logf("data in %s", dir)
	return dir
}

func (s *stack) connect(t *testing.T) {
	t.Helper()
	s.doc = s.dev(t)
	var err error
	s.api, err = api.NewClient(s.doc.API, s.doc.Token, api.WithTLS(s.security(t)))
	require.NoError(t, err)
	s.database = s.databaseURL(t)
	s.pg, err = pgxpool.New(t.Context(), s.database)
	require.NoError(t, err)
	t.Cleanup(s.pg.Close)
	conn, err := grpc.NewClient(s.doc.Temporal, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s.temporal = workflowservice.NewWorkflowServiceClient(conn)
	s.stores = &nodeStores{root: filepath.Join(s.data, "nodes")}
	t.Cleanup(s.stores.close)
}

func (s *stack) databaseURL(t *testing.T) string {
	t.Helper()
	var known state
	require.NoError(t, readJSON(filepath.Join(s.data, stateFile), &known))
	password, err := os.ReadFile(filepath.Join(s.data, passwordFile))
	require.NoError(t, err)
	db := database{
		listen:   &net.TCPAddr{IP: net.ParseIP(loopback), Port: known.Ports[addrPostgres]},
		password: strings.TrimSpace(string(password)),
	}
	return db.url(postgresDatabase)
}

// files are those by which people call the region; none in the clear.
func (s *stack) files() certs.ClientFiles {
	if s.doc.TLS == nil {
		return certs.ClientFiles{}
	}
	return certs.ClientFiles{CA: s.doc.TLS.CA, Pair: certs.Pair{Cert: s.doc.TLS.Cert, Key: s.doc.TLS.Key}}
}

func (s *stack) security(t *testing.T) *tls.Config {
	t.Helper()
	conf, err := certs.For(s.doc.API, s.files())
	require.NoError(t, err)
	return conf
}

// end stops the region as Ctrl-C does. What it said is shown when the test failed.
func (s *stack) end(t *testing.T, ended <-chan struct{}) {
	_ = s.supervisor.Process.Signal(syscall.SIGTERM)
	patience := time.NewTimer(e2ePatience)
	defer patience.Stop()
	select {
	case err := <-ended:
		t.Logf("the region ended: %v", err)
	case <-patience.C:
		_ = s.supervisor.Process.Kill()
		t.Errorf("the region did not stop within %v: %v", e2ePatience, <-ended)
	}
	if t.Failed() {
		t.Logf("the region said:\n%s", s.said)
	}
}

func (s *stack) dev(t *testing.T) devDoc {
	t.Helper()
	var doc devDoc
	require.NoError(t, readJSON(filepath.Join(s.data, devFile), &doc))
	return doc
}

// pid gives the process id of a running child.
func (s *stack) pid(t *testing.T, name string) int {
	t.Helper()
	pid := 0
	waitFor(t, name+" runs", func(context.Context) error {
		for _, p := range s.dev(t).Processes {
			if p.Name == name && p.Running {
				pid = p.PID
				return nil
			}
		}
		return errNotYet
	})
	return pid
}

// order is temporal-dev stop NAME and start NAME.
func (s *stack) order(t *testing.T, verb, name string) {
	t.Helper()
	_, err := callControl(t.Context(), s.data, http.MethodPost, "/processes/"+name+"/"+verb)
	require.NoError(t, err)
}

// kill is kill -9 of a child; it returns when the supervisor has started another.
func (s *stack) kill(t *testing.T, name string) {
	t.Helper()
	s.killThen(t, name, func() {})
}

// killThen does something as soon as the child is killed.
func (s *stack) killThen(t *testing.T, name string, then func()) {
	t.Helper()
	before := s.pid(t, name)
	kill9(t, before)
	then()
	waitFor(t, name+" is started again", func(context.Context) error {
		if s.pid(t, name) == before {
			return errNotYet
		}
		return nil
	})
}

// signal sends a signal to a child. A child that was paused goes on at the end of the test,
// so that the region can stop.
func (s *stack) signal(t *testing.T, name string, sig syscall.Signal) {
	t.Helper()
	pid := s.pid(t, name)
	if sig == syscall.SIGSTOP {
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		standStill(t, pid)
		return
	}
	require.NoError(t, syscall.Kill(pid, sig))
}

// arm has a child die at a step; the file is gone when it did.
func (s *stack) arm(t *testing.T, process, step string) (fired func() bool) {
	t.Helper()
	return s.armWith(t, process, step, "")
}

// armWith does so, or has it stand still there with region.FailpointPause.
func (s *stack) armWith(t *testing.T, process, step, word string) (fired func() bool) {
	t.Helper()
	path := filepath.Join(s.failpoints, process+"."+step)
	require.NoError(t, os.WriteFile(path+".new", []byte(word), 0o600))
	require.NoError(t, os.Rename(path+".new", path)) // whole, or not there
	return func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	}
}

// part is one of several subtests.
type part struct {
	name string
	run  func(*testing.T)
}

// together runs subtests at once, more than there are cores: most of what they do is wait.
func together(t *testing.T, parts []part) {
	t.Helper()
	var group sync.WaitGroup
	places := make(chan struct{}, partsAtOnce)
	for _, p := range parts {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			t.Run(p.name, p.run)
		})
	}
	group.Wait()
}

// partsAtOnce bounds the parts that one region plays at a time: more would miss their deadlines on a slow machine.
const partsAtOnce = 8

// unless is nil when something is so.
func unless(so bool) error {
	if so {
		return nil
	}
	return errNotYet
}

// waitFor asks until there is no error.
func waitFor(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	require.NoError(t, pollErr(t.Context(), e2ePatience, try), what)
}

// insist repeats a call while the region is not there; every other error is an answer.
func insist(t *testing.T, what string, call func(context.Context) error) error {
	t.Helper()
	var answer error
	waitFor(t, what, func(ctx context.Context) error {
		answer = call(ctx)
		if answer != nil && fleet.KindOf(answer).Retryable() {
			return answer
		}
		return nil
	})
	return answer
}

func instanceKey(site, name string) fleet.ObjectKey {
	return fleet.InstanceKey(fleet.SiteName(site), fleet.InstanceName(name))
}

// put declares an instance once, however often the call has to be made.
func (s *stack) put(t *testing.T, key fleet.ObjectKey, in api.InstancePut) api.Operation {
	t.Helper()
	return s.change(t, "put "+key.String(), func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return s.api.PutInstance(ctx, key, in, m)
	})
}

func (s *stack) change(t *testing.T, what string, call func(context.Context, api.Mutation) (api.Accepted, error)) api.Operation {
	t.Helper()
	m := api.Mutation{IdempotencyKey: rand.Text()}
	var out api.Accepted
	require.NoError(t, insist(t, what, func(ctx context.Context) (err error) {
		out, err = call(ctx, m)
		return err
	}), what)
	require.NotNil(t, out.Operation, what)
	return *out.Operation
}

// ended waits for the end of an operation.
func (s *stack) ended(t *testing.T, id string) api.Operation {
	t.Helper()
	var op api.Operation
	waitFor(t, "operation "+id+" ends", func(ctx context.Context) (err error) {
		op, err = s.api.Operation(ctx, id, 5*time.Second)
		if err == nil && !op.State.Ended() {
			err = fmt.Errorf("%s: %+v", op.State, op.Progress)
		}
		return err
	})
	return op
}

func (s *stack) status(t *testing.T, key fleet.ObjectKey) api.InstanceStatus {
	t.Helper()
	var status api.InstanceStatus
	require.NoError(t, insist(t, "read "+key.String(), func(ctx context.Context) error {
		o, _, err := s.api.Object(ctx, key)
		if err != nil {
			return err
		}
		return json.Unmarshal(o.Status, &status)
	}))
	return status
}

// count is the number that a query of Postgres gives.
func (s *stack) count(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = s.pg.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// settled waits until nothing is under way any more, and nothing is owed.
func (s *stack) settled(t *testing.T) {
	t.Helper()
	for what, query := range map[string]string{
		"running operations": `SELECT count(*) FROM operations WHERE state = 'running'`,
		"open deliveries":    `SELECT count(*) FROM deliveries WHERE state = 'open'`,
		"pending rows":       `SELECT count(*) FROM pending`,
		"owed rows":          `SELECT count(*) FROM owed`,
		"outbox rows":        `SELECT count(*) FROM outbox`,
	} {
		waitFor(t, "no "+what, func(ctx context.Context) error {
			n, err := s.count(ctx, query)
			if err == nil && n > 0 {
				err = fmt.Errorf("%d %s", n, what)
			}
			return err
		})
	}
}

func requireSucceeded(t *testing.T, op api.Operation) {
	t.Helper()
	require.Equal(t, fleet.OperationSucceeded, op.State, "%+v", op)
}

var freeFlags = []string{"--api", "127.0.0.1:0", "--temporal", "127.0.0.1:0", "--web", "127.0.0.1:0", "--fast"}
