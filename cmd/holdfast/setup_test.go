package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	op1   = "11111111111111111111111111111111"
	op2   = "22222222222222222222222222222222"
	hash1 = fleet.Hash("aaaaaaaaaaaabbbbbbbbbbbbccccccccccccddddddddddddeeeeeeeeeeee0000")
)

// shell runs command lines as a person or a script would.
type shell struct {
	t          *testing.T
	env        map[string]string
	stdin      string
	registered fleet.KindTable // beside those of Holdfast
	width      int             // of stdout and stderr, 0 for a pipe
}

// result is what a command line left.
type result struct {
	code           int
	stdout, stderr string
}

func newShell(t *testing.T, r *fakeRegion) *shell {
	t.Helper()
	s := &shell{t: t, env: map[string]string{envConfigFile: filepath.Join(t.TempDir(), "holdfast", "contexts.json")}}
	if r != nil {
		s.env[envAddress], s.env[envToken] = r.server.URL, regionToken
	}
	return s
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, s.process(&stdout, &stderr, args))
	require.NoError(s.t, ctx.Err(), "the command hung; stderr: %s", stderr.String())
	return result{code, stdout.String(), stderr.String()}
}

func (s *shell) process(stdout, stderr io.Writer, args []string) process {
	return process{
		args: args, env: func(name string) string { return s.env[name] }, stdin: strings.NewReader(s.stdin),
		stdout: stdout, stderr: stderr, width: func(io.Writer) int { return s.width },
		now: time.Now, poll: 2 * time.Millisecond, declared: append(fleet.DeclaredKinds(), s.registered...),
	}
}

// ok runs a command line that has to succeed.
func (s *shell) ok(args ...string) result {
	s.t.Helper()
	got := s.run(args...)
	require.Equal(s.t, exitOK, got.code, "stdout: %s\nstderr: %s", got.stdout, got.stderr)
	return got
}

// follow runs a command line in the background until stop.
func (s *shell) follow(args ...string) (out *growing, stop func() int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	out = &growing{grew: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() { code <- run(ctx, s.process(out, io.Discard, args)) }()
	return out, func() int { cancel(); return <-code }
}

// growing is an output that a test waits on.
type growing struct {
	mu   sync.Mutex
	text strings.Builder
	grew chan struct{}
}

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case g.grew <- struct{}{}:
	default:
	}
	return g.text.Write(p)
}

func (g *growing) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

func (g *growing) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !strings.Contains(g.String(), text) {
		select {
		case <-g.grew:
		case <-deadline:
			require.Contains(t, g.String(), text)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// plant1 declares a site with an instance that both nodes hold.
func (r *fakeRegion) plant1() *fakeRegion {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.declare("sites/plant-1", `{"nodes":[{"name":"plant-1-a","role":"active"},{"name":"plant-1-b","role":"standby"}]}`)
	o := r.declare("sites/plant-1/instances/press-7", `{"enabled":true,"durability":"sync"}`)
	o.Status, _ = json.Marshal(api.InstanceStatus{
		Phase: "running", ObservedGeneration: 1, Revision: 4, DesiredRevision: 4, RevisionHash: hash1, Replicated: "2/2",
		Nodes: []api.InstanceOnNode{
			{Node: "plant-1-a", Role: fleet.RoleActive, Epoch: 3, Revision: 4, RevisionHash: hash1, Running: true},
			{Node: "plant-1-b", Role: fleet.RoleStandby, Epoch: 3, Revision: 4, RevisionHash: hash1},
		},
		Conditions: []api.Condition{{Type: "synced", Status: fleet.ConditionTrue, Reason: "as_declared", Revision: 4, Since: testNow}},
	})
	r.objects["sites/plant-1/instances/press-7"] = o
	return r
}

// operation is one moment of a delivery of press-7.
func operation(id string, state fleet.OperationState, nodes ...api.NodeProgress) api.Operation {
	return api.Operation{
		ID: id, Kind: "deploy", Site: "plant-1", Instance: "press-7", Revision: 4, State: state,
		Deadline: testNow.Add(time.Hour), CreatedAt: testNow, Progress: nodes,
	}
}

func nodeAt(name, state string, fetched int64) api.NodeProgress {
	role := fleet.RoleActive
	if strings.HasSuffix(name, "-b") {
		role = fleet.RoleStandby
	}
	return api.NodeProgress{Node: name, Role: role, State: state, Fetched: fetched, Total: 10 << 20}
}

// story has the next change of an instance start an operation that goes so.
func (r *fakeRegion) story(moments ...api.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = append(r.next, moments)
}

// write makes a file in a fresh directory and gives its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
