//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/region"
)

// intrusion is what a command tries on its node. It says "held X" of what it could not do, and "BROKE X" of the rest.
const intrusion = `
try() { name="$1"; shift; if "$@" >/dev/null 2>&1; then echo "BROKE $name"; else echo "held $name"; fi; }
for file in node.key votes.json site.json node.db uids.json instances/victim/config.json run/victim/spec.json run/victim/state.json \
	run/victim/output.log run/victim/guardian.sock run/$HOLDFAST_INSTANCE/spec.json replicas/definitions; do
	try "stat $file" test -e "$DATA/$file"
	try "read $file" cat "$DATA/$file"
	for pid in $AGENT $GUARDIAN $VICTIM; do try "read $file by $pid" cat "/proc/$pid/root$DATA/$file"; done
done
for dir in . instances run replicas; do try "list $dir" ls "$DATA/$dir"; done
try "write the data directory" touch "$DATA/x"
for pid in $AGENT $GUARDIAN $VICTIM; do
	try "environment of $pid" cat "/proc/$pid/environ"
	try "descriptors of $pid" ls "/proc/$pid/fd/"
	try "memory of $pid" dd if="/proc/$pid/mem" bs=1 count=1
	try "directory of $pid" ls "/proc/$pid/cwd/"
	try "signal to $pid" kill -9 "$pid"
done
try "gain by a setuid program" test "$("$SETUID/id" -u)" = 0
try "become root" su -c true
try "uncover by a namespace" unshare -Urm umount "$DATA"
try "uncover" umount "$DATA"
# What it may have.
grep -q mine "$HOLDFAST_CONFIG" && echo "has its config"
echo kept >left && echo "has its directory"
echo "user $(id -u) $(id -G)"
echo end
exec sleep 100000`

// intruded is a region with two projects at a shared site.
type intruded struct {
	*stack
	node       string // active at plant-1
	red, green *api.Client
	setuid     string
}

// X10, X19, X21: a token of one project reaches nothing of another, on the machines too.
func TestAttackIsolation(t *testing.T) {
	t.Parallel()
	s := startWith(t, 1, isolated)
	a := &intruded{stack: s, node: s.holder(t, "plant-1")}
	for _, project := range []string{"red", "blue", "green"} {
		s.declareProject(t, project)
	}
	a.red, a.green = a.client(t, "red"), a.client(t, "green")
	t.Run("a node that does not keep projects apart runs no command of another than its site's", a.refusedByOpenNode)
	if os.Geteuid() != 0 {
		t.Skip("only root keeps projects apart")
	}
	a.setuid = setuidPrograms(t)
	victim := a.victim(t)
	t.Run("an instance of one project reaches nothing of another's", func(t *testing.T) { a.intrudes(t, victim) })
	t.Run("nor does a replica", func(t *testing.T) { a.replicaIntrudes(t, victim) })
	unharmed(t, victim)
	t.Run("a uid is not another project's while a file of it is left", a.keepsUID)
}

func (s *stack) declareProject(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, insist(t, "declare project "+name, func(ctx context.Context) error {
		_, err := s.api.PutProject(ctx, name, api.ProjectPut{}, api.Mutation{})
		return err
	}))
}

// client calls with a token that is bound to a project.
func (a *intruded) client(t *testing.T, project string) *api.Client {
	t.Helper()
	token, err := a.api.CreateToken(t.Context(), api.TokenRequest{Role: "operator", Project: project}, api.Mutation{IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	c, err := api.NewClient(a.doc.API, token.Token)
	require.NoError(t, err)
	return c
}

// declare puts an instance of a project, and waits until it runs.
func (a *intruded) declare(t *testing.T, by *api.Client, project, name string, in api.InstancePut) {
	t.Helper()
	in.Project = project
	out, err := by.PutInstance(t.Context(), instanceKey("plant-1", name), in, api.Mutation{})
	require.NoError(t, err)
	require.NotNil(t, out.Operation)
	requireSucceeded(t, a.ended(t, out.Operation.ID))
}

// victim is an instance of blue with secrets, and gives the processes to attack.
func (a *intruded) victim(t *testing.T) map[string]string {
	t.Helper()
	a.declare(t, a.api, "blue", "victim", api.InstancePut{
		Config: json.RawMessage(`{"password":"hush"}`), Secrets: []string{"/password"}, SecretEnv: []string{"SECRET"},
		Run: &fleet.Run{Command: []string{"sleep", "100000"}, Env: map[string]string{"SECRET": "hush"}},
	})
	run := a.running(t, filepath.Join("run", "victim"))
	pids := map[string]string{
		"VICTIM": strconv.Itoa(run.Command.PID), "GUARDIAN": strconv.Itoa(run.Guardian.PID), "AGENT": strconv.Itoa(a.pid(t, a.node)),
		"DATA": a.file(), "SETUID": a.setuid,
	}
	return pids
}

// unharmed says that nothing that was attacked has ended.
func unharmed(t *testing.T, pids map[string]string) {
	t.Helper()
	for _, who := range []string{"VICTIM", "GUARDIAN", "AGENT"} {
		pid, err := strconv.Atoi(pids[who])
		require.NoError(t, err)
		require.True(t, alive(pid), who)
	}
}

func (a *intruded) file(path ...string) string {
	return filepath.Join(append([]string{a.data, "nodes", a.node}, path...)...)
}

// onRecord is what a guardian writes of itself and its command.
type onRecord struct {
	Guardian, Command struct {
		PID int `json:"pid"`
	}
}

func (a *intruded) running(t *testing.T, dir string) onRecord {
	t.Helper()
	var run onRecord
	require.NoError(t, readJSON(a.file(dir, "state.json"), &run))
	require.True(t, alive(run.Command.PID))
	return run
}

// setuidPrograms is a directory that all may read, with programs of root that have the set-user-ID bit.
func setuidPrograms(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "holdfast-setuid-*")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	id, err := exec.LookPath("id")
	require.NoError(t, err)
	program, err := os.ReadFile(id)
	require.NoError(t, err)
	path := filepath.Join(dir, "id")
	require.NoError(t, os.WriteFile(path, program, 0o755))
	require.NoError(t, os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid))
	said, err := (&exec.Cmd{Path: path, Args: []string{"id", "-u"}, SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}}).Output()
	require.NoError(t, err)
	require.Equal(t, "0\n", string(said), "the program gives root to others")
	return dir
}

// all waits for what an intrusion printed, which must have failed in all.
func (a *intruded) all(t *testing.T, output string, uid int) {
	t.Helper()
	var said string
	waitFor(t, "the intrusion ends", func(context.Context) error {
		raw, err := os.ReadFile(output)
		if said = string(raw); err != nil || !strings.Contains(said, "end\n") {
			return fmt.Errorf("%w: %s", errNotYet, said)
		}
		return nil
	})
	require.NotContains(t, said, "BROKE")
	require.NotContains(t, said, "hush")
	require.Greater(t, strings.Count(said, "held "), 70, said)
	require.Contains(t, said, "has its config\n")
	require.Contains(t, said, "has its directory\n")
	require.Contains(t, said, fmt.Sprintf("user %d %d\n", uid, uid))
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func (a *intruded) intrudes(t *testing.T, env map[string]string) {
	a.declare(t, a.red, "red", "intruder", api.InstancePut{
		Config: json.RawMessage(`{"whose":"mine"}`), Run: &fleet.Run{Command: []string{"sh", "-c", intrusion}, Env: env},
	})
	uid := owner(t, a.file("instances", "intruder"))
	require.NotZero(t, uid)
	require.NotEqual(t, owner(t, a.file("instances", "victim")), uid)
	a.all(t, a.file("run", "intruder", "output.log"), uid)
	for path, mode := range map[string]os.FileMode{"instances/intruder": 0o700, "instances/intruder/config.json": 0o600} {
		info, err := os.Stat(a.file(path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
}

func (a *intruded) replicaIntrudes(t *testing.T, env map[string]string) {
	one := 1
	out, err := a.red.PutDeployment(t.Context(), "intruder", api.DeploymentPut{
		Project: "red", Command: []string{"sh", "-c", strings.ReplaceAll(intrusion, "$(", "$$(")}, Env: env,
		Files:    []api.DeploymentFile{{Path: "conf/mine.conf", Content: "mine"}},
		Replicas: api.ReplicaCounts{Min: &one, Max: &one, Initial: &one}, Health: &fleet.HealthCheck{Type: fleet.HealthNone},
		Placement: api.DeploymentPlacement{Sites: []fleet.SiteName{"plant-1"}},
	}, api.Mutation{})
	require.NoError(t, err)
	requireSucceeded(t, a.ended(t, out.Operation.ID))
	all, err := a.api.Replicas(t.Context(), api.ReplicaQuery{Deployment: "intruder"})
	require.NoError(t, err)
	require.Len(t, all.Items, 1)
	r := all.Items[0]
	dir := filepath.Join(a.data, "nodes", r.Node, "replicas")
	uid := owner(t, filepath.Join(dir, string(r.ID)))
	require.NotZero(t, uid)
	a.all(t, filepath.Join(dir, "run", string(r.ID), "output.log"), uid)
}

// keepsUID deletes the intruder, which left a file, and declares an instance of a project that had none.
func (a *intruded) keepsUID(t *testing.T) {
	dir := a.file("instances", "intruder")
	was := owner(t, dir)
	for _, delete := range []fleet.ObjectKey{instanceKey("plant-1", "intruder"), fleet.DeploymentKey("intruder")} {
		out, err := a.red.Delete(t.Context(), delete, api.Mutation{})
		require.NoError(t, err)
		requireSucceeded(t, a.ended(t, out.Operation.ID))
	}
	require.FileExists(t, filepath.Join(dir, "left"))
	require.NoFileExists(t, filepath.Join(dir, "config.json"))
	a.kill(t, a.node) // the next agent knows it too
	a.holder(t, "plant-1")
	a.declare(t, a.green, "green", "late", api.InstancePut{
		Config: json.RawMessage(`{}`), Run: &fleet.Run{Command: []string{"sleep", "100000"}},
	})
	uids := []int{0, was, owner(t, a.file("instances", "victim")), owner(t, a.file("instances", "late"))}
	slices.Sort(uids)
	require.Len(t, slices.Compact(uids), 4, "three projects and root: %v", uids)
}

// refusedByOpenNode declares commands of a project at a shared site whose node runs them as its own user.
func (a *intruded) refusedByOpenNode(t *testing.T) {
	const site, node = "open", "open-a"
	_, err := a.api.PutSite(t.Context(), site, api.SitePut{Nodes: []api.SiteNode{{Name: node, Role: fleet.RoleActive}}}, api.Mutation{})
	require.NoError(t, err)
	a.openNode(t, site, node)
	n, err := a.api.Node(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, string(fleet.SeparationNone), n.Isolation)
	if os.Geteuid() == 0 {
		n, err = a.api.Node(t.Context(), a.node)
		require.NoError(t, err)
		require.Equal(t, string(fleet.SeparationUID), n.Isolation)
	}
	command := &fleet.Run{Command: []string{"sleep", "100000"}}
	put := func(by *api.Client, name string, run *fleet.Run) error {
		out, err := by.PutInstance(t.Context(), instanceKey(site, name), api.InstancePut{Config: json.RawMessage(`{}`), Run: run}, api.Mutation{})
		if err == nil {
			requireSucceeded(t, a.ended(t, out.Operation.ID))
		}
		return err
	}
	err = put(a.red, "command", command)
	require.Equal(t, fleet.IsolationMissing, fleet.KindOf(err), "%v", err)
	require.NoError(t, put(a.red, "config", nil), "a config runs nothing")
	require.NoError(t, put(a.api, "shared", command), "the site's own project runs what it wants")

	one := 1
	_, err = a.red.PutDeployment(t.Context(), "nowhere", api.DeploymentPut{
		Command: command.Command, Replicas: api.ReplicaCounts{Min: &one, Max: &one, Initial: &one}, Health: &fleet.HealthCheck{Type: fleet.HealthNone},
		Placement: api.DeploymentPlacement{Sites: []fleet.SiteName{site}},
	}, api.Mutation{})
	require.NoError(t, err)
	waitFor(t, "explain says why it runs nowhere", func(ctx context.Context) error {
		why, err := a.red.Explain(ctx, "nowhere")
		if err == nil && (len(why.Causes) == 0 || why.Causes[0].Reason != string(fleet.IsolationMissing)) {
			err = fmt.Errorf("%w: %+v", errNotYet, why.Causes)
		}
		return err
	})
}

// openNode is a node in this process that runs commands as its own user.
func (a *intruded) openNode(t *testing.T, site, node string) {
	t.Helper()
	join, err := a.api.CreateJoinToken(t.Context(), api.JoinTokenRequest{Site: site, Node: node}, api.Mutation{IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cfg := region.NodeConfig{
		Node: node, Site: site, API: a.doc.API, Link: a.doc.Link, Data: t.TempDir(), JoinToken: join.Token, Executable: self,
		LifetimePID: os.Getpid(), StopInstances: true, Timing: e2eTiming(), NoIsolation: true, UIDs: isolation.DefaultRange(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- region.RunNode(ctx, cfg, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	waitFor(t, node+" is on the link", func(ctx context.Context) error {
		n, err := a.api.Node(ctx, node)
		if err == nil && (!n.Ready || n.Connection.State != fleet.ConnectionActive) {
			err = errNotYet
		}
		return err
	})
}
