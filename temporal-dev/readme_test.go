//go:build slow

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// readmeStep is a command of the README: its exit code, and words that the README says it shows.
type readmeStep struct {
	command string
	exit    int
	shows   []string
	// play is how it is played if it is more than typed and waited for.
	play func(s *stranger, t *testing.T, step readmeStep)
}

const (
	oven210 = `echo '{"kind":"Instance","site":"plant-1","name":"oven-1","spec":{"config":{"temperature":210}}}' | holdfast apply -f -`
	oven220 = `echo '{"kind":"Instance","site":"plant-1","name":"oven-1","spec":{"config":{"temperature":220}}}' | holdfast plan -f -`
	byDoor  = `temporal workflow start --namespace holdfast --task-queue holdfast --type DeployInstance ` +
		`--input '{"site":"plant-1","instance":"oven-1"}'`
)

// readmeSteps are all commands of the README, in its order.
var readmeSteps = []readmeStep{
	{command: "go run ./temporal-dev", play: (*stranger).startRegion},
	{command: "go test ./... ./temporal-dev/...", play: (*stranger).leaveToCI},
	{command: "go install ./cmd/holdfast"},
	{command: `export PATH="$PATH:$(go env GOPATH)/bin"`, play: (*stranger).remember},
	{command: "holdfast get instances --site plant-1"},
	{command: oven210},
	{command: "holdfast deliveries plant-1/oven-1"},
	{command: oven220, exit: 3, shows: []string{"1 to change"}},
	{command: "go run ./temporal-dev stop plant-1-b"},
	{command: "holdfast deploy plant-1/oven-1", exit: cliFailed, shows: []string{"failed", "not_replicated"}},
	{command: "go run ./temporal-dev start plant-1-b"},
	{command: "holdfast get instance plant-1/oven-1", shows: []string{"2/2"}, play: (*stranger).repeat},
	{command: "go run ./temporal-dev stop plant-1-a"},
	{command: "holdfast get sites", shows: []string{"plant-1-b"}, play: (*stranger).takenOver},
	{command: "go run ./temporal-dev start plant-1-a"},
	{command: "holdfast failover plant-1", shows: []string{"node plant-1-a holds the lease"}},
	{command: "holdfast try -f examples/deployments/web.yaml", shows: []string{"proven"}},
	{command: "holdfast apply -f examples/deployments/web.yaml", shows: []string{"2 of 2 replicas are healthy"}},
	{command: "holdfast get replicas --deployment web"},
	{command: "holdfast scale web --replicas 4"},
	{command: "holdfast logs deployment/web --follow", play: (*stranger).interrupt},
	{command: "holdfast delete replica web/ID", play: (*stranger).firstReplica},
	{command: "holdfast explain deployment web"},
	{command: "holdfast delete deployment web"},
	{command: byDoor, play: (*stranger).startDoor},
}

// X4, X20, N101, N102: the README's commands, in their order and as they are typed, do what it says: in a copy of the tree, with
// nothing in PATH but Go, as the user of the test, and as another user where that is root.
func TestReadme(t *testing.T) { // the only one that uses the default ports
	t.Parallel()
	realOnly(t)
	typed, table := readmeCommands(t)
	require.Len(t, typed, len(readmeSteps))
	for i, step := range readmeSteps {
		require.Equal(t, step.command, typed[i].command)
		for _, word := range step.shows {
			require.Contains(t, typed[i].comment, word, step.command)
		}
	}
	s := newStranger(t, table)
	t.Run("as the user of the test", s.tour)
	if os.Getuid() == 0 {
		s.becomeAnother(t)
		t.Run("as another user", s.tour)
	}
}

// typedCommand is a command with what the README says of it.
type typedCommand struct{ command, comment string }

var (
	fenced  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	remarks = regexp.MustCompile(` +# `)
)

// readmeCommands are the README's commands, and the lines of the table that it shows.
func readmeCommands(t *testing.T) (typed []typedCommand, table []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSpace(line)
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case block[1] == "console":
				require.True(t, is, "a line of the README is no command: %s", line)
				parts := append(remarks.Split(command, 2), "")
				typed = append(typed, typedCommand{parts[0], parts[1]})
			case block[1] == "" && line != "…":
				table = append(table, line)
			}
		}
	}
	require.NotEmpty(t, table)
	return typed, table
}

// stranger follows the README: in a folder, with a home, as a user.
type stranger struct {
	dir, home string
	table     []string
	env       []string
	before    []string // lines that each shell begins with
	needs     []string // folders that it has to see
	enter     []string // what gets a shell as another user
	unshare   uintptr  // its namespaces
	region    *exec.Cmd
	said      *transcript
}

func newStranger(t *testing.T, table []string) *stranger {
	t.Helper()
	top := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(top), 0o755))
	s := &stranger{dir: filepath.Join(top, "holdfast"), home: filepath.Join(top, "home"), table: table}
	for _, folder := range []string{s.dir, s.home} {
		require.NoError(t, os.Mkdir(folder, 0o755))
	}
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	for _, e := range entries {
		from, to := filepath.Join("..", e.Name()), filepath.Join(s.dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), ".") || e.Name() == "bin": // tools, and what runs left
		case e.IsDir():
			require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		default:
			content, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, content, 0o644))
		}
	}
	s.env = []string{"HOME=" + s.home, "PATH=" + onlyGo(t, filepath.Join(top, "cc"))}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN"} {
		s.env = append(s.env, name+"="+goEnv(t, name))
	}
	s.needs = []string{goEnv(t, "GOROOT"), goEnv(t, "GOCACHE"), goEnv(t, "GOMODCACHE"), top}
	return s
}

// becomeAnother is one who may only read what was built, and to whom the tree and the home belong.
func (s *stranger) becomeAnother(t *testing.T) {
	t.Helper()
	uid, gid, err := standIn()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.home))
	require.NoError(t, os.Mkdir(s.home, 0o755))
	for _, folder := range []string{s.dir, s.home} {
		require.NoError(t, identity{uid: uid, gid: gid}.own(folder))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	s.enter = slices.Concat([]string{self, asUser, strconv.Itoa(uid), strconv.Itoa(gid)}, s.needs, []string{"--"})
	if slices.ContainsFunc(s.needs, func(folder string) bool { return closedAbove(folder) != "" }) {
		s.unshare = syscall.CLONE_NEWNS
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// onlyGo is a PATH with nothing but Go. Where Go builds with a C compiler, it has that too: Go asks it for its version before it uses
// what its cache holds.
func onlyGo(t *testing.T, cc string) string {
	t.Helper()
	path := filepath.Join(goEnv(t, "GOROOT"), "bin")
	compiler, err := exec.LookPath(goEnv(t, "CC"))
	if err != nil || goEnv(t, "CGO_ENABLED") != "1" {
		return path
	}
	require.NoError(t, os.MkdirAll(cc, 0o755))
	require.NoError(t, os.Symlink(compiler, filepath.Join(cc, filepath.Base(compiler))))
	return path + ":" + cc
}

// tour plays all commands.
func (s *stranger) tour(t *testing.T) {
	s.before = nil
	t.Cleanup(func() { s.endRegion(t) })
	for _, step := range readmeSteps {
		began := time.Now()
		play := step.play
		if play == nil {
			play = (*stranger).typeIt
		}
		play(s, t, step)
		t.Logf("%5.1f s  %s", time.Since(began).Seconds(), step.command)
	}
}

// shell is what a person types into a terminal.
func (s *stranger) shell(ctx context.Context, command string) *exec.Cmd {
	script := strings.Join(append(slices.Clone(s.before), command), "\n")
	args := append(slices.Clone(s.enter), "/bin/sh", "-c", script)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: s.unshare}
	cmd.WaitDelay = time.Second
	return cmd
}

// runs types a command and gives what it printed, which has to exit and show as the README says.
func (s *stranger) runs(t *testing.T, step readmeStep) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2ePatience)
	defer cancel()
	var out bytes.Buffer
	cmd := s.shell(ctx, step.command)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w", step.command, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != step.exit {
		return "", fmt.Errorf("%s: exit code %d, want %d\n%s", step.command, code, step.exit, out.String())
	}
	for _, word := range step.shows {
		if !strings.Contains(out.String(), word) {
			return "", fmt.Errorf("%s: does not show %q\n%s", step.command, word, out.String())
		}
	}
	return out.String(), nil
}

func (s *stranger) typeIt(t *testing.T, step readmeStep) {
	t.Helper()
	out, err := s.runs(t, step)
	require.NoError(t, err)
	t.Log(out)
}

// repeat types it until it shows what the README says: the region works on.
func (s *stranger) repeat(t *testing.T, step readmeStep) {
	t.Helper()
	waitFor(t, step.command, func(context.Context) error {
		_, err := s.runs(t, step)
		return err
	})
}

var heldByB = regexp.MustCompile(`(?m)^plant-1 .* plant-1-b +([3-9]|\d\d+) +held`)

// takenOver types it until it shows the new active, by a higher epoch than the first.
func (s *stranger) takenOver(t *testing.T, step readmeStep) {
	t.Helper()
	waitFor(t, step.command, func(context.Context) error {
		out, err := s.runs(t, step)
		if err == nil && !heldByB.MatchString(out) {
			err = fmt.Errorf("%w: %s", errNotYet, out)
		}
		return err
	})
}

// remember types a command that changes the shell for those after it.
func (s *stranger) remember(t *testing.T, step readmeStep) {
	t.Helper()
	s.before = append(s.before, step.command)
}

// leaveToCI: .ci/run plays this command as it is typed.
func (s *stranger) leaveToCI(t *testing.T, step readmeStep) {
	t.Helper()
	tasks, err := os.ReadFile(filepath.Join("..", "Taskfile.yml"))
	require.NoError(t, err)
	require.Contains(t, string(tasks), ".ci/beside test "+step.command)
}

var shellLine = regexp.MustCompile(`(?m)^  (?:export|read) .*$`)

// quickly are flags that the README names: with them failures show up within seconds, though the machine is busy.
const quickly = " --fast --link-heartbeat-timeout 15s"

// startRegion starts it in a terminal of its own, and takes over the lines that it prints for the other one.
func (s *stranger) startRegion(t *testing.T, step readmeStep) {
	t.Helper()
	s.said = &transcript{}
	s.region = s.shell(context.Background(), "exec "+step.command+quickly)
	s.region.Stdout, s.region.Stderr = s.said, s.said
	s.region.SysProcAttr.Setpgid = true
	require.NoError(t, s.region.Start())
	waitFor(t, "the region prints what to do", func(context.Context) error {
		if !strings.Contains(s.said.String(), "temporal workflow start") {
			return fmt.Errorf("%w: %s", errNotYet, s.said)
		}
		return nil
	})
	require.Contains(t, s.said.String(), "the region is up")
	require.NotContains(t, s.said.String(), "! ", "nothing went wrong")
	for _, line := range s.table {
		require.Contains(t, s.said.String(), line, "the README shows it")
	}
	s.before = shellLine.FindAllString(s.said.String(), -1)
	require.Len(t, s.before, 2, "the README says so")
}

// endRegion presses Ctrl-C in the region's terminal.
func (s *stranger) endRegion(t *testing.T) {
	t.Helper()
	if s.region == nil || s.region.Process == nil {
		return
	}
	var doc devDoc
	_ = readJSON(filepath.Join(s.dir, defaultData, devFile), &doc) // what failed to start has none
	require.NoError(t, syscall.Kill(-s.region.Process.Pid, syscall.SIGINT))
	_ = s.region.Wait() // after Ctrl-C, go run exits with 1 whatever its program does
	s.region = nil
	require.Contains(t, s.said.String(), "\nstopped in ")
	for _, p := range doc.Processes {
		require.False(t, alive(p.PID), p.Name)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, defaultData)))
}

// interrupt presses Ctrl-C once it has printed something.
func (s *stranger) interrupt(t *testing.T, step readmeStep) {
	t.Helper()
	said := &transcript{}
	cmd := s.shell(t.Context(), "exec "+step.command)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	waitFor(t, step.command+" prints", func(context.Context) error {
		if !strings.Contains(said.String(), "\n") {
			return errNotYet
		}
		return nil
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), said)
	t.Log(said)
}

var replicaName = regexp.MustCompile(`(?m)^web/\S+`)

// firstReplica puts the id of a replica in place of ID.
func (s *stranger) firstReplica(t *testing.T, step readmeStep) {
	t.Helper()
	out, err := s.runs(t, readmeStep{command: "holdfast get replicas --deployment web"})
	require.NoError(t, err)
	step.command = strings.Replace(step.command, "web/ID", replicaName.FindString(out), 1)
	s.typeIt(t, step)
}

var flagged = regexp.MustCompile(`--([\w-]+) ('[^']*'|\S+)`)

// startDoor does what the command of Temporal's own client does, which is not part of Go.
func (s *stranger) startDoor(t *testing.T, step readmeStep) {
	t.Helper()
	flags := map[string]string{}
	for _, f := range flagged.FindAllStringSubmatch(step.command, -1) {
		flags[f[1]] = strings.Trim(f[2], "'")
	}
	var doc devDoc
	require.NoError(t, readJSON(filepath.Join(s.dir, defaultData, devFile), &doc))
	conn, err := grpc.NewClient(doc.Temporal, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	request := doorRequest("readme-"+rand.Text(), flags["type"], flags["input"])
	request.Namespace, request.TaskQueue.Name = flags["namespace"], flags["task-queue"]
	region := &stack{temporal: workflowservice.NewWorkflowServiceClient(conn)}
	started, err := region.temporal.StartWorkflowExecution(t.Context(), request)
	require.NoError(t, err)
	ended := region.result(t, &commonpb.WorkflowExecution{WorkflowId: request.GetWorkflowId(), RunId: started.GetRunId()})
	require.Equal(t, fleet.OperationSucceeded, ended.State, "%+v", ended)
}
