//go:build slow

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// intruderProgram is the program of testdata/intruder.
var intruderProgram = sync.OnceValues(func() (string, error) { return build("./testdata/intruder", "CGO_ENABLED=0") })

const intruderImage = "local/intruder:1"

// boxes is a region whose nodes run containers of two projects.
type boxes struct {
	*stack        // as an administrator
	red    *stack // with a token of project red
	engine *testkit.Engine
	victim *service // of blue
}

// The region and its engine are not those of TestE2EContainers, which kills and stops its own.
//
// X3, X10, X19: what a token of one project, a program in a container and a container of another program can do to an
// engine, to the machine and to others on it.
func TestAttackContainers(t *testing.T) {
	t.Parallel()
	e := testkit.StartEngine(t, "")
	program, err := intruderProgram()
	require.NoError(t, err)
	e.Image(t, "local/intruder", "1", program)
	e.Image(t, "local/labels", "1", program, manyLabels()...)
	s := startWith(t, 1, isolated, "DOCKER_HOST="+e.Host)
	a := &intruded{stack: s}
	for _, project := range []string{"red", "blue"} {
		s.declareProject(t, project)
	}
	red := *s
	red.api = a.client(t, "red")
	b := &boxes{stack: s, red: &red, engine: e}
	b.victim = b.box(t, s, "victim", func(p *api.DeploymentPut) {
		p.Project, p.Args, p.Env, p.SecretEnv = "blue", []string{"say", "hush"}, map[string]string{"SECRET": "hush"}, []string{"SECRET"}
	})
	was := b.victim.deploy(t)[0]
	together(t, []part{
		{"an image is a name", b.images},
		{"an image's id is no name of it", b.imageIDs},
		{"what is too long to describe is not run", b.long},
		{"a container reaches nothing of its machine", b.within},
		{"a process does not reach the engine", b.process},
		{"a link in its directory leads the node nowhere", b.links},
		{"a fork bomb ends at a limit, and can be stopped", b.bomb},
		{"output of any form is only output", b.shout},
		{"another project's container is not there", b.foreign},
	})
	now := b.victim.healthy(t, 1)[0]
	require.Equal(t, []any{was.ID, was.PID, 0}, []any{now.ID, now.PID, now.Restarts}, "the victim is unharmed")
	t.Run("a container of a replica's name is not the replica", b.taken)
	t.Run("labels make no replica", b.forged)
}

// manyLabels have more bytes than a node reads of an image. Engines parse long lines slowly.
func manyLabels() (lines []string) {
	const line = 2 << 10
	for i := range fleet.MaxCommandBytes/line + 1 {
		lines = append(lines, fmt.Sprintf("LABEL l%d=%s", i, strings.Repeat("x", line)))
	}
	return lines
}

// box is a deployment of one container that serves nothing.
func (b *boxes) box(t *testing.T, by *stack, name string, change func(*api.DeploymentPut)) *service {
	t.Helper()
	d := newService(t, by, name, 1, func(p *api.DeploymentPut) {
		p.Image, p.Command, p.Env, p.Ports, p.Startup = intruderImage, nil, nil, nil, nil
		p.Health, p.StopSeconds = &fleet.HealthCheck{Type: fleet.HealthNone}, 1
		change(p)
	})
	d.ledger = ""
	return d
}

// prints waits for what a replica printed up to a text.
func (d *service) prints(t *testing.T, of fleet.ReplicaID, until string) string {
	t.Helper()
	var said strings.Builder
	waitFor(t, "the last word of "+d.name, func(ctx context.Context) error {
		logs, err := d.api.DeploymentLogs(ctx, d.name, api.ReplicaLogQuery{Replica: of, Limit: 1000})
		if err != nil {
			return err
		}
		said.Reset()
		for _, chunk := range logs.Items {
			text, err := chunk.Bytes()
			if err != nil {
				return err
			}
			said.Write(text)
		}
		return unless(strings.HasSuffix(said.String(), until))
	})
	return said.String()
}

// refused declares what no node can run, waits until a node says why, and deletes it.
func (b *boxes) refused(t *testing.T, d *service, why string) {
	t.Helper()
	d.declare(t)
	waitFor(t, d.name+" is refused: "+why, func(ctx context.Context) error {
		all, err := d.api.Replicas(ctx, api.ReplicaQuery{Deployment: d.name, Ended: true})
		if err != nil {
			return err
		}
		for _, r := range all.Items {
			require.NotEqual(t, fleet.PhaseRunning, r.Phase)
			if strings.Contains(r.Message, why) {
				return nil
			}
		}
		return errNotYet
	})
	b.deleted(t, d)
}

func (b *boxes) deleted(t *testing.T, d *service) {
	t.Helper()
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
}

func (b *boxes) images(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, image := range []string{
		"--privileged", "-v=/:/host", "../containers/json", "a/../../containers/json", "/etc/passwd", "file:///etc/passwd", "http://a.example/b", "a..b/c",
		"a?tag=b", "a#b", "a%2e%2e/b", "a\nb", "a\x1b[2J", "a:b:c", "A", "a b", "user:secret@a.example/b", "localhost:5000/../a", "a@sha256:0a", "a" + strings.ToUpper(digest),
		"a" + digest + digest, "sha256:" + strings.Repeat("0a", 32), strings.Repeat("a", 513),
	} {
		d := b.box(t, b.red, "pointed", func(p *api.DeploymentPut) { p.Image = image })
		_, err := d.api.PutDeployment(t.Context(), d.name, d.manifest(), api.Mutation{})
		var refused *fleet.Error
		require.ErrorAs(t, err, &refused, image)
		require.Equal(t, []any{fleet.Invalid, "/image"}, []any{refused.Kind, refused.Field}, "%s: %v", image, err)
		require.NotEmpty(t, refused.Hint, image)
		d.gone(t)
	}
}

// imageIDs names an image as its machine knows it: the project may not even see its name.
func (b *boxes) imageIDs(t *testing.T) {
	var image struct{ ID string }
	b.engine.Read(t, "/images/"+intruderImage+"/json", &image)
	_, digits, _ := strings.Cut(image.ID, ":")
	for name, id := range map[string]string{"by-id": digits[:12], "by-a-digit": digits[:1]} {
		d := b.box(t, b.red, name, func(p *api.DeploymentPut) { p.Image, p.Args = id, []string{"say", "BROKE"} })
		b.refused(t, d, "proxyconnect") // it is pulled as any other name, and the engine of a test reaches no registry
	}
}

// long makes the engine's descriptions longer than a node reads, in what names are replaced by and in an image.
func (b *boxes) long(t *testing.T) {
	most := strings.Repeat("x", fleet.MaxCommandBytes)
	d := b.box(t, b.red, "long", func(p *api.DeploymentPut) { p.Args = []string{"say", most} })
	_, err := d.api.PutDeployment(t.Context(), d.name, d.manifest(), api.Mutation{})
	require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "the limit is 262144")
	d.put.Files = []api.DeploymentFile{{Path: strings.Repeat("x", 190)}}
	d.put.Args = append([]string{"say"}, strings.Split(strings.Repeat("${HOLDFAST_CONFIG} ", 2000), " ")...)
	b.refused(t, d, "the limit is 262144")

	b.refused(t, b.box(t, b.red, "labelled", func(p *api.DeploymentPut) { p.Image, p.Args = "local/labels:1", []string{"say", "BROKE"} }), "more than 262144 bytes")
}

// socket is that of the engine, in a directory that all may pass: its own mode is what protects it.
func (b *boxes) socket(t *testing.T) string {
	t.Helper()
	path := strings.TrimPrefix(b.engine.Host, "unix://")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o711))
	return path
}

func (b *boxes) within(t *testing.T) {
	victim := b.victim.healthy(t, 1)[0]
	node := filepath.Join(b.data, "nodes", victim.Node)
	at, err := url.Parse(b.doc.API)
	require.NoError(t, err)
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	d := b.box(t, b.red, "intruder", func(p *api.DeploymentPut) {
		p.Args, p.Files = []string{"attack"}, []api.DeploymentFile{{Path: "conf/mine.conf", Content: "mine"}}
		p.Env = map[string]string{
			"FILES":   strings.Join([]string{node, filepath.Join(node, "node.key"), filepath.Join(node, "replicas", string(victim.ID)), b.socket(t), "/etc/passwd", "/var/lib/docker"}, ":"),
			"SOCKETS": strings.Join([]string{b.socket(t), "/var/run/docker.sock", "/run/containerd/containerd.sock"}, ":"),
			"PORTS":   port(at.Host) + ":" + port(b.doc.Link),
		}
	})
	said := d.prints(t, d.deploy(t)[0].ID, "end\n")
	require.NotContains(t, said, "BROKE")
	require.Greater(t, strings.Count(said, "held "), 60, said)
	for _, allowed := range []string{"has its config\n", "has its directory\n", "user 0\n", "gateway 10."} {
		require.Contains(t, said, allowed)
	}
	b.deleted(t, d)
}

func (b *boxes) process(t *testing.T) {
	program, err := intruderProgram()
	require.NoError(t, err)
	d := b.box(t, b.red, "outside", func(p *api.DeploymentPut) { p.Image, p.Command = "", []string{program, "dial", b.socket(t)} })
	require.Equal(t, "held dial "+b.socket(t)+"\nend\n", d.prints(t, d.deploy(t)[0].ID, "end\n"))
	b.deleted(t, d)
}

// links has a command before the start replace a directory by a link: the node writes the files once more then, as root.
func (b *boxes) links(t *testing.T) {
	outside := t.TempDir()
	d := b.box(t, b.red, "linked", func(p *api.DeploymentPut) {
		p.Args, p.Files = []string{"say", "BROKE"}, []api.DeploymentFile{{Path: "conf/mine.conf", Content: "mine"}}
		p.PreStart = [][]string{{"/program", "link", "/holdfast/conf", outside}}
	})
	b.refused(t, d, "conf/mine.conf")
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
}

func (b *boxes) bomb(t *testing.T) {
	d := b.box(t, b.red, "bomb", func(p *api.DeploymentPut) { p.Args = []string{"bomb"} })
	r := d.deploy(t)[0]
	require.Contains(t, d.prints(t, r.ID, "end\n"), "held a fork bomb")
	b.deleted(t, d)
	require.False(t, alive(r.PID))
}

func (b *boxes) shout(t *testing.T) {
	d := b.box(t, b.red, "shout", func(p *api.DeploymentPut) { p.Args = []string{"shout"} })
	require.Contains(t, d.prints(t, d.deploy(t)[0].ID, "end\n"), "###\x00")
	b.deleted(t, d)
}

func (b *boxes) foreign(t *testing.T) {
	ctx, red := t.Context(), b.red.api
	_, err := red.DeploymentLogs(ctx, "victim", api.ReplicaLogQuery{Replica: b.victim.healthy(t, 1)[0].ID})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "%v", err)
	_, err = red.RestartDeployment(ctx, "victim", api.RestartRequest{}, api.Mutation{})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "%v", err)
	_, err = red.Top(ctx, "victim")
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "%v", err)
	all, err := red.Replicas(ctx, api.ReplicaQuery{Ended: true})
	require.NoError(t, err)
	for _, r := range all.Items {
		require.NotEqual(t, "victim", r.Deployment)
	}
	o, _, err := b.api.Object(ctx, fleet.DeploymentKey("victim"))
	require.NoError(t, err)
	require.NotContains(t, string(o.Spec), "SECRET=hush")
}

// runs says whether a container does.
func (b *boxes) runs(t *testing.T, name string) bool {
	t.Helper()
	var is struct{ State struct{ Running bool } }
	b.engine.Read(t, "/containers/"+name+"/json", &is)
	return is.State.Running
}

// taken puts another program's container in the place of a replica's, under its name, before the node looks.
func (b *boxes) taken(t *testing.T) {
	d := b.box(t, b.red, "named", func(p *api.DeploymentPut) { p.Args = []string{"say", "mine"} })
	r := d.deploy(t)[0]
	d.prints(t, r.ID, "end\n")
	b.signal(t, r.Node, syscall.SIGSTOP)
	b.engine.Discard(t, containerOf(r))
	b.engine.Run(t, containerOf(r), intruderImage, nil, "say", "hush")
	b.signal(t, r.Node, syscall.SIGCONT)
	next := d.until(t, "it is replaced", func(all []api.Replica) error {
		return unless(len(all) == 1 && all[0].ID != r.ID && allHealthy(all))
	})[0]
	waitFor(t, "its output is sent, and all of it removed", func(context.Context) error {
		_, err := os.Stat(filepath.Join(b.data, "nodes", r.Node, "replicas", string(r.ID)))
		return unless(os.IsNotExist(err))
	})
	require.Equal(t, "mine\nend\n", d.prints(t, r.ID, "end\n"))
	require.Equal(t, "mine\nend\n", d.prints(t, next.ID, "end\n"))
	b.deleted(t, d)
	require.True(t, b.runs(t, containerOf(r)))
}

// forged runs images that have labels of replicas, as a person or another program on the machine may.
func (b *boxes) forged(t *testing.T) {
	r := b.victim.healthy(t, 1)[0]
	program, err := intruderProgram()
	require.NoError(t, err)
	b.engine.Image(t, "local/twin", "1", program, "LABEL holdfast.replica="+string(r.ID)+" holdfast.node="+r.Node)
	b.engine.Image(t, "local/stray", "1", program, "LABEL holdfast.replica=0123456789ab holdfast.node="+r.Node)
	b.engine.Run(t, "twin", "local/twin:1", nil, "say", "hush")
	b.engine.Run(t, "stray", "local/stray:1", nil, "say", "hush")
	const named = "fedcba987654" // only who may use the engine gives names
	b.engine.Run(t, "holdfast-"+named, "local/stray:1", map[string]string{"holdfast.replica": named}, "say", "hush")
	b.kill(t, r.Node) // the next agent looks at all containers
	waitFor(t, "the named one waits for an operator", func(ctx context.Context) error {
		list, err := b.api.Orphans(ctx, r.Node, api.Page{})
		if err != nil || len(list.Items) == 0 {
			return unless(err != nil)
		}
		require.Len(t, list.Items, 1)
		require.Equal(t, named, list.Items[0].Replica)
		return nil
	})
	_, err = b.api.ApproveOrphans(t.Context(), r.Node, api.OrphanApproval{All: true}, api.Mutation{})
	require.NoError(t, err)
	waitFor(t, "the named one is removed", func(context.Context) error {
		return unless(len(b.engine.Containers(t, "holdfast.replica="+named)) == 0)
	})
	require.Equal(t, r.ID, b.victim.healthy(t, 1)[0].ID)
	b.deleted(t, b.victim)
	waitFor(t, "all else is removed", func(context.Context) error {
		return unless(len(b.engine.Containers(t, "holdfast.node")) == 2)
	})
	require.True(t, b.runs(t, "twin") && b.runs(t, "stray"))
}
