//go:build slow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
	"github.com/holdfast-io/holdfast/provider"
)

// secured is a region over TLS with certificates on both sides, and its operator.
type secured struct {
	*stack
	operator cli
	ca       *authority
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{stack: startWith(t, 1, "--tls")}
	s.operator = newCLI(t, s.stack)
	s.ca = &authority{dir: filepath.Join(s.data, tlsFolder)}
	require.NoError(t, s.ca.load())
	return s
}

// shown are the flags of files.
func shown(f certs.ClientFiles) []string {
	return []string{"--ca", f.CA, "--client-cert", f.Cert, "--client-key", f.Key}
}

// C87, N32, N38, N60, X21: a whole region over TLS with certificates on both sides.
func TestE2ETLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	const site, a, b = "plant-1", "plant-1-a", "plant-1-b"
	st := newStory(t, s.stack, site, "press-7")

	t.Run("the command line has its certificates from flags, and from a saved context", func(t *testing.T) {
		s.operator.call(t, cliOK, append([]string{"get", "sites"}, shown(s.files())...)...)
		s.operator.call(t, cliOK, append([]string{"context", "set", "lab", "--address", s.doc.API, "--token", s.doc.Token}, shown(s.files())...)...)
		for _, args := range [][]string{
			{"get", "instances"},
			{"get", "nodes"},
			{"get", "providers"},
			{"get", "modules"},
			{"get", "refusals"},
			{"operations", "list"},
			{"events"},
			{"describe", "instance", site + "/press-7"},
			{"deliveries", site + "/press-7"},
			{"deploy", site + "/press-7"},
			{"disable", site + "/press-7"},
			{"enable", site + "/press-7"},
			{"reconcile", "node", a},
			{"cordon", b},
			{"uncordon", b},
			{"orphans", "list", b},
			{"logs", site + "/press-7"},
			{"join-token", "list"},
			{"token", "list"},
		} {
			s.operator.call(t, cliOK, append(args, "--context", "lab")...)
		}
	})
	t.Run("an instance is delivered to both nodes", func(t *testing.T) {
		op, hash := st.release(t)
		requireSucceeded(t, s.ended(t, op.ID))
		st.witness.runs(t, hash)
	})
	t.Run("a function of a provider is executed", func(t *testing.T) { s.executes(t) })
	t.Run("the pair votes without its region, and no vote is refused while keys change", func(t *testing.T) {
		before := s.site(t)
		s.order(t, "stop", serverName)
		away := time.Now()
		ran := s.pid(t, a)
		eventually(t, "the lease ran out more than once without the region", func() bool {
			return time.Since(away) > 3*e2eLease
		})
		s.order(t, "start", serverName)
		waitFor(t, "the site is seen again", func(ctx context.Context) error {
			got, err := s.site1(ctx)
			if err == nil && (got.Holder != before.Holder || got.Epoch != before.Epoch) {
				err = fmt.Errorf("%s holds it at epoch %d", got.Holder, got.Epoch)
			}
			return err
		})
		require.Equal(t, ran, s.pid(t, a))
		st.witness.alone(t)
		refused := s.refusedVotes(t)
		for _, node := range []string{a, b} {
			s.operator.call(t, cliOK, "node", "rotate-key", node, "--timeout", "2m", "--context", "lab")
		}
		s.failover(t, site, b)
		s.failover(t, site, a)
		require.Equal(t, refused, s.refusedVotes(t))
	})
	t.Run("who has the wrong certificates is refused, and told what to do", func(t *testing.T) { s.refuses(t) })
	t.Run("a peer in the clear is refused, and both are told what to do", func(t *testing.T) {
		s.order(t, "stop", b)
		plain := s.node(t, b, func(c *region.NodeConfig) {
			c.PeerTLS = certs.ServerFiles{}
			c.Data = filepath.Join(s.data, "nodes", b)
		})
		waitFor(t, "the node says so", func(context.Context) error { return s.logSays(a, "the caller does not use TLS") })
		plain.says(t, "if it uses TLS, start this node with --tls-cert")
		waitFor(t, "the node says so", func(context.Context) error { return s.logSays(a, "the peer does not use TLS") })
		plain.end(t)
		s.order(t, "start", b)
	})
	t.Run("the other node takes over", func(t *testing.T) {
		s.kill9(t, a)
		waitFor(t, "it is active", func(ctx context.Context) error {
			got, err := s.site1(ctx)
			if err == nil && got.Holder != b {
				err = errNotYet
			}
			return err
		})
		op, hash := st.release(t)
		s.order(t, "start", a)
		t.Logf("ended as %s", s.ended(t, op.ID).State)
		s.held(t, st.key, hash)
		st.witness.alone(t)
	})
}

// kill9 ends a node for good: the supervisor is told first, so that it starts no other.
func (s *secured) kill9(t *testing.T, node string) {
	t.Helper()
	pid := s.pid(t, node)
	kill9(t, pid)
	s.order(t, "stop", node)
}

// refusedVotes counts what the nodes refused each other. When the site is new a node may hear
// of its peer's key only after the first vote.
func (s *secured) refusedVotes(t *testing.T) (n int) {
	t.Helper()
	for _, node := range pair("plant-1") {
		text, err := os.ReadFile(filepath.Join(s.data, "logs", node+".log"))
		require.NoError(t, err)
		n += strings.Count(string(text), "door=peer")
	}
	return n
}

// site1 is the site's status.
func (s *secured) site1(ctx context.Context) (api.SiteStatus, error) {
	var status api.SiteStatus
	o, _, err := s.api.Object(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-1"})
	if err == nil {
		err = json.Unmarshal(o.Status, &status)
	}
	return status, err
}

func (s *secured) site(t *testing.T) api.SiteStatus {
	t.Helper()
	status, err := s.site1(t.Context())
	require.NoError(t, err)
	return status
}

// executes has a provider in this process register, over TLS in both directions.
func (s *secured) executes(t *testing.T) {
	var token api.Token
	s.operator.json(t, &token, cliOK, "token", "create", "--role", "provider", "--module-namespace", "acme", "--context", "lab")
	pair, err := s.ca.pair("provider")
	require.NoError(t, err)
	served, err := certs.Server(s.ca.serves(pair), time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	echo := func(_ context.Context, input []byte) ([]byte, error) { return input, nil }
	executor, err := provider.NewExecutor(provider.ExecutorOptions{
		Modules: []provider.Module{{Name: "echo", Handle: echo}}, TLS: served, Shutdown: time.Second,
	})
	require.NoError(t, err)
	l, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	link, err := provider.New(provider.Options{
		Address: s.doc.Link, TLS: s.security(t), Name: "echo-1", ModuleNamespace: "acme.text", ExecutorAddress: l.Addr().String(), Executor: executor,
		Token: func(context.Context) (string, error) { return token.Token, nil },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- executor.Serve(ctx, l) }()
	go func() { done <- link.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	eventually(t, "it is active", func() bool { return link.Status().State == provider.Active })
	for _, durable := range [][]string{nil, {"--durable"}} {
		out, _ := s.operator.call(t, cliOK, append([]string{"exec", "acme.text.echo", "--input", `{"a":1}`, "--context", "lab"}, durable...)...)
		require.Contains(t, strings.ReplaceAll(out, " ", ""), `"a":1`)
	}
}

// refuses has callers come with a wrong authority, without a certificate and with another's.
func (s *secured) refuses(t *testing.T) {
	stranger := &authority{dir: t.TempDir()}
	require.NoError(t, stranger.make())
	foreign, err := stranger.pair("stranger")
	require.NoError(t, err)
	own := s.files()
	nobody := cli{s.operator.path, append(s.operator.env, "XDG_CONFIG_HOME="+t.TempDir())} // with nothing saved
	for hint, files := range map[string]certs.ClientFiles{
		"give the authority that signed the region's certificate": {CA: stranger.ca(), Pair: own.Pair},
		"the region requires a client certificate":                {CA: own.CA, Pair: foreign},
	} {
		_, said := nobody.call(t, cliAway, append([]string{"get", "nodes"}, shown(files)...)...)
		require.Contains(t, said, hint)
		n := s.node(t, "stranger", func(c *region.NodeConfig) { c.TLS = files })
		n.says(t, hint)
		n.end(t)
	}
	_, said := nobody.call(t, cliAway, "get", "nodes", "--ca", own.CA)
	require.Contains(t, said, "give --client-cert and --client-key")
	n := s.node(t, "stranger", func(c *region.NodeConfig) { c.TLS.Pair = certs.Pair{} })
	n.says(t, "give --client-cert and --client-key")
	n.end(t)
	plain := strings.Replace(s.doc.API, "https:", "http:", 1)
	_, said = nobody.call(t, cliUsage, "get", "nodes", "--address", plain)
	require.Contains(t, said, "that port uses TLS")
}

// foreignNode is a node in this process, started by other settings than the region's own.
type foreignNode struct {
	said *transcript
	end  func(t *testing.T)
}

func (s *secured) node(t *testing.T, name string, change func(*region.NodeConfig)) *foreignNode {
	t.Helper()
	chosen, err := choose([]listener{{name: "peer", want: loopback + ":0"}}, nil)
	require.NoError(t, err)
	pair, err := s.ca.pair(name)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cfg := region.NodeConfig{
		Node: name, Site: "plant-1", API: s.doc.API, Link: s.doc.Link, Peer: chosen.dial("peer"), Data: t.TempDir(), JoinToken: "none",
		Executable: self, LifetimePID: os.Getpid(), StopInstances: true, Timing: e2eTiming(),
		TLS: s.ca.calls(pair), PeerTLS: s.ca.serves(pair),
	}
	change(&cfg)
	n := &foreignNode{said: &transcript{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- region.RunNode(ctx, cfg, slog.New(slog.NewTextHandler(io.MultiWriter(n.said, t.Output()), &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail})))
	}()
	ended := false
	n.end = func(t *testing.T) {
		if !ended {
			ended = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(func() { n.end(t) })
	return n
}

func (n *foreignNode) says(t *testing.T, words string) {
	t.Helper()
	eventually(t, "the node says: "+words, func() bool { return strings.Contains(n.said.String(), words) })
}
