//go:build slow

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
)

// X10, X19, X20, X21, X23, C87, N92: what is taken back at one server of a region is void at the other.
func TestAttackServers(t *testing.T) {
	t.Parallel()
	s := startStack(t, 3)
	r := twoServers{stack: s, other: s.at(s.serve(t, "")), operator: newCLI(t, s)}
	together(t, []part{
		{"a node's key that was changed, and then revoked", r.changedKey},        // plant-1
		{"the key of an active node", r.revokedActive},                           // plant-2
		{"the region's own key", r.signingKeys},                                  // plant-3
		{"a token of the API", r.apiToken},                                       //
		{"a provider's token", r.providerToken},                                  //
		{"a join token that is used at both servers at once", r.joinTokenAtBoth}, // gate-1
		{"a join token that was taken back", r.oldJoinToken},                     // gate-2
	})
}

// twoServers are those of one region: the first in a process of its own, the other in this one.
type twoServers struct {
	*stack
	other    *stack
	operator cli
}

func (r twoServers) each() map[string]*stack {
	return map[string]*stack{"first": r.stack, "other": r.other}
}

// at is the region as callers of another server see it.
func (s *stack) at(a another) *stack {
	over := *s
	over.api, over.doc.API, over.doc.Link = a.api, a.address, s.otherLink
	return &over
}

// unfinished is a request of which the server has checked the token and lacks the end of the body.
type unfinished struct {
	body   *io.PipeWriter
	answer chan int
}

// begin sends a request but for its end; it returns when the server reads the body.
func (s *stack) begin(t *testing.T, method, path, token, body string) *unfinished {
	t.Helper()
	from, to := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), method, s.doc.API+path, from)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Expect", "100-continue") // the server asks for the body when it reads it
	transport := &http.Transport{ExpectContinueTimeout: e2ePatience}
	t.Cleanup(transport.CloseIdleConnections)
	u := &unfinished{to, make(chan int, 1)}
	go func() {
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Logf("%s %s: %v", method, path, err)
			u.answer <- 0
			return
		}
		_ = res.Body.Close()
		u.answer <- res.StatusCode
	}()
	_, err = io.WriteString(to, body)
	require.NoError(t, err)
	return u
}

// end sends the rest, and gives the status of the answer.
func (u *unfinished) end(rest string) int {
	_, _ = io.WriteString(u.body, rest) // the server may have closed it by now
	_ = u.body.Close()
	return <-u.answer
}

// send calls the API with the key.
func (th *thief) send(t *testing.T, s *stack, method, path, body string) int {
	t.Helper()
	code, _ := s.send(t, method, "/api/internal/nodes/"+string(th.key.Node())+path, th.token(t), []byte(body))
	return code
}

func (th *thief) token(t *testing.T) string {
	t.Helper()
	token, err := th.key.Sign(keys.RegionAudience, time.Now())
	require.NoError(t, err)
	return token
}

// forgery is a report that counts what no node counts.
const forgery = `{"instances":[],"progress":[],"counters":{"forged":1}`

func (th *thief) report(t *testing.T, s *stack) *unfinished {
	t.Helper()
	return s.begin(t, http.MethodPost, "/api/internal/nodes/"+string(th.key.Node())+"/reports", th.token(t), forgery)
}

// stream registers at the link and opens the stream; it gives how that ends.
func (th *thief) stream(t *testing.T) <-chan error {
	t.Helper()
	link := nodev1.NewControlPlaneClient(th.link)
	made, err := link.Register(t.Context(), &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: string(th.key.Node())})
	require.NoError(t, err)
	return connect(t.Context(), t, link, made)
}

func connect(ctx context.Context, t *testing.T, link nodev1.ControlPlaneClient, made *nodev1.RegisterResponse) <-chan error {
	t.Helper()
	stream, err := link.Connect(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{
		ConnectionId: made.GetConnectionId(), ProtocolVersion: made.GetProtocolVersion(),
	}}}))
	_, err = stream.Recv() // it is open
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

// void checks that a server takes nothing of a key.
func (th *thief) void(t *testing.T, s *stack) {
	t.Helper()
	node, site := string(th.key.Node()), fleet.SiteName("plant-1")
	for _, path := range []string{"/reports", "/started", "/logs", "/key", "/owed", "/replica-logs", "/replica-samples"} {
		require.Equal(t, http.StatusUnauthorized, th.send(t, s, http.MethodPost, path, forgery+"}"), path)
	}
	require.Equal(t, http.StatusUnauthorized, th.send(t, s, http.MethodGet, "/replicas", ""))
	for name, call := range map[string]func(context.Context) error{
		"poll": func(ctx context.Context) error { _, err := th.poll(ctx, node); return err },
		"vote": func(ctx context.Context) error {
			_, err := nodev1.NewLeasesClient(th.link).Vote(ctx, asks(nodev1.Call_CALL_ASK, string(site), node, 0))
			return err
		},
		"tell": func(ctx context.Context) error {
			_, err := nodev1.NewLeasesClient(th.link).Tell(ctx, &nodev1.TellRequest{Site: string(site), Epoch: 1})
			return err
		},
		"register": func(ctx context.Context) error {
			_, err := nodev1.NewControlPlaneClient(th.link).Register(ctx, &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: node})
			return err
		},
	} {
		err := call(t.Context())
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
	}
}

// open is what a thief has open at a server when the key is taken back.
type open struct {
	poll   chan error
	report *unfinished
}

func (r twoServers) open(t *testing.T, at *stack, th *thief) open {
	t.Helper()
	o, since, node := open{poll: make(chan error, 1), report: th.report(t, at)}, time.Now(), string(th.key.Node())
	go func() {
		_, err := th.poll(t.Context(), node)
		o.poll <- err
	}()
	waitFor(t, "it polls", func(context.Context) error {
		if !r.polled(t, node, since) {
			return errNotYet
		}
		return nil
	})
	return o
}

// within waits for the end of something that is open.
func within(t *testing.T, what string, limit time.Duration, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		t.Logf("%s ended: %v", what, err)
	case <-time.After(limit):
		require.Fail(t, what+" goes on")
	}
}

// forged says whether the region believed a report.
func (r twoServers) forged(t *testing.T, node string) bool {
	t.Helper()
	n, err := r.api.Node(t.Context(), node)
	require.NoError(t, err)
	return n.Counters["forged"] > 0
}

func (r twoServers) changedKey(t *testing.T) {
	const site = "plant-1"
	st := newStory(t, r.stack, site, "press-7")
	node := r.standby(t, site)
	old := map[string]*thief{}
	at := map[string]open{}
	for name, server := range r.each() {
		old[name] = server.steal(t, node, keys.LinkAudience)
		at[name] = r.open(t, server, old[name])
	}
	r.operator.call(t, cliOK, "node", "rotate-key", node, "--timeout", "2m")
	for name, server := range r.each() {
		old[name].void(t, server)
		within(t, "the poll at the "+name, revocationLimit, at[name].poll)
		require.NotEqual(t, http.StatusOK, at[name].report.end("}"), "the report at the %s", name) // which may have stalled
	}
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	st.good(t, hash)

	r.order(t, "stop", node) // it would take the stream's place
	th := r.other.steal(t, node, keys.LinkAudience)
	stream := th.stream(t)
	_, err := r.api.RevokeNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
	for _, server := range r.each() {
		server.steal(t, node, keys.LinkAudience).void(t, server)
	}
	within(t, "the stream", revocationLimit, stream)
	require.False(t, r.forged(t, node))
}

func (r twoServers) revokedActive(t *testing.T) {
	const site = "plant-2"
	st := newStory(t, r.stack, site, "press-7")
	was, err := r.lease(t.Context(), site)
	require.NoError(t, err)
	th := r.other.steal(t, was.holder, keys.LinkAudience)
	left := r.open(t, r.other, th)
	revoked := time.Now()
	_, err = r.api.RevokeNode(t.Context(), was.holder, api.Mutation{})
	require.NoError(t, err)
	th.void(t, r.other)
	r.steal(t, was.holder, keys.LinkAudience).void(t, r.stack)
	r.activeWithin(t, site, peerOf(site, was.holder), was.epoch, revoked)
	st.witness.runs(t, hashOf(fmt.Appendf(nil, `{"instance":%q,"number":%d}`, st.key.Name, st.number)))
	st.witness.alone(t)
	starts := st.witness.starts(t)
	require.Equal(t, peerOf(site, was.holder), starts[len(starts)-1].node)
	require.Less(t, time.Since(revoked), revocationLimit)
	within(t, "the poll", revocationLimit-time.Since(revoked), left.poll)
	require.Equal(t, http.StatusUnauthorized, left.report.end("}"))
	require.False(t, r.forged(t, was.holder))
}

// signingKeys changes the region's key by one server while both sign.
func (r twoServers) signingKeys(t *testing.T) {
	const site = "plant-3"
	st := newStory(t, r.stack, site, "press-7")
	at := []*story{st, {stack: r.other, key: instanceKey(site, "press-8"), witness: newWitness(t)}}
	rotate := func(args ...string) {
		r.operator.call(t, cliOK, append([]string{"admin", "rotate-signing-key", "--database-url", r.database, "--region", regionName}, args...)...)
	}
	delivers := func() {
		t.Helper()
		for _, st := range at {
			op, hash := st.release(t)
			requireSucceeded(t, st.ended(t, op.ID))
			st.good(t, hash)
		}
	}
	refused := func() (n int64) {
		t.Helper()
		n, err := r.count(t.Context(), `SELECT count(*) FROM refusals WHERE refused_by LIKE 'plant-3-%' AND door = 'node' AND reason = 'bad_signature'`)
		require.NoError(t, err)
		return n
	}
	first := r.signingKey(t)
	rotate("--after", "3s")
	for r.signingKey(t).Equal(first) {
		delivers()
	}
	delivers()
	require.Zero(t, refused(), "a good command was refused")
	second := r.signingKey(t)
	delivers() // both servers have just used it
	rotate("--stolen")
	delivers()
	t.Logf("%d commands were refused after the key was void, and sent again", refused())
	a := newTemporalWriter(t, r.stack)
	for _, node := range pair(site) {
		waitFor(t, node+" learned that the old key is void", func(context.Context) error {
			if r.steal(t, node, keys.LinkAudience).key.CommandKeys()[0].Equal(second.Public()) {
				return errNotYet
			}
			return nil
		})
		cmd := a.malicious(t, st, node)
		cmd.Signed = keys.SignCommand(second, fleet.NodeName(node), cmd, time.Now().Add(time.Minute))
		a.refuses(t, node, "RefreshDeployment", "bad_signature", cmd)
	}
	require.Zero(t, a.calls.Load())
}

func (r twoServers) apiToken(t *testing.T) {
	const path = "/api/v1/templates/late"
	made := r.token(t, "operator")
	late := map[string]*unfinished{}
	for name, server := range r.each() {
		code, _ := server.send(t, http.MethodGet, "/api/v1/nodes", made.Token, nil) // the server knows it now
		require.Equal(t, http.StatusOK, code)
		late[name] = server.begin(t, http.MethodPut, path, made.Token, `{"base":`)
	}
	upload := r.other.begin(t, http.MethodPost, "/api/v1/artifacts", made.Token, strings.Repeat("x", 1<<20))
	require.NoError(t, r.api.RevokeToken(t.Context(), made.ID, api.Mutation{}))
	began := time.Now()
	code, _ := r.send(t, http.MethodGet, "/api/v1/nodes", made.Token, nil)
	require.Equal(t, http.StatusUnauthorized, code)
	waitFor(t, "the other server refuses it", func(context.Context) error {
		if code, _ := r.other.send(t, http.MethodGet, "/api/v1/nodes", made.Token, nil); code != http.StatusUnauthorized {
			return errNotYet
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("the other server refuses it after %v", took)
	require.Less(t, took, promptly)
	eventually(t, "what is open has outlasted what a server remembers of a token", func() bool { return time.Since(began) > time.Second })
	for name := range r.each() {
		require.Equal(t, http.StatusUnauthorized, late[name].end(`{}}`), "the change at the %s", name)
	}
	require.Equal(t, http.StatusUnauthorized, upload.end("y"))
	code, _ = r.send(t, http.MethodGet, path, r.doc.Token, nil)
	require.Equal(t, http.StatusNotFound, code, "nothing is stored")
}

func (r twoServers) providerToken(t *testing.T) {
	made, err := r.api.CreateToken(t.Context(), api.TokenRequest{Role: "provider", ModuleNamespaces: []string{"acme.void"}}, api.Mutation{})
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.Token)
	register := func(s *stack) (nodev1.ControlPlaneClient, *nodev1.RegisterResponse, error) {
		conn, err := grpc.NewClient(s.doc.Link, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		link := nodev1.NewControlPlaneClient(conn)
		out, err := link.Register(ctx, &nodev1.RegisterRequest{
			Provider: "void", ModuleNamespace: "acme.void", ExecutorAddress: "127.0.0.1:1", ProtocolVersion: 1, Modules: []*nodev1.Module{{Name: "Reach"}},
		})
		return link, out, err
	}
	link, out, err := register(r.other)
	require.NoError(t, err)
	ended := connect(ctx, t, link, out)
	require.NoError(t, r.api.RevokeToken(t.Context(), made.ID, api.Mutation{}))
	for name, server := range r.each() {
		_, _, err := register(server)
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
	}
	within(t, "the provider's stream", e2ePatience, ended)
}

// gate declares a site with one node, and gives what the region is asked to enrol it.
func (r twoServers) gate(t *testing.T, site string) (token func() api.Token, enrol func(s *stack, token string) int) {
	t.Helper()
	node := site + "-a"
	_, err := r.api.PutSite(t.Context(), site, api.SitePut{Nodes: []api.SiteNode{{Name: node, Role: fleet.RoleActive}}}, api.Mutation{})
	require.NoError(t, err)
	token = func() api.Token {
		made, err := r.api.CreateJoinToken(t.Context(), api.JoinTokenRequest{Site: site, Node: node}, api.Mutation{})
		require.NoError(t, err)
		return made
	}
	return token, func(s *stack, token string) int {
		key, err := keys.Generate(fleet.NodeName(node))
		require.NoError(t, err)
		sealing, err := key.SealingPublic()
		require.NoError(t, err)
		code, _ := s.send(t, http.MethodPost, "/api/internal/nodes/enrol", "", fmt.Appendf(nil, `{"joinToken":%q,"node":%q,"site":%q,"signingKey":%q,"sealingKey":%q}`,
			token, node, site, keys.EncodePublic(key.SigningPublic()), keys.EncodePublic(sealing[:])))
		return code
	}
}

func (r twoServers) joinTokenAtBoth(t *testing.T) {
	token, enrol := r.gate(t, "gate-1")
	for range 10 {
		made := token()
		codes := make(chan int, 4)
		var all sync.WaitGroup
		for range 2 {
			for _, server := range r.each() {
				all.Go(func() { codes <- enrol(server, made.Token) })
			}
		}
		all.Wait()
		close(codes)
		times := map[int]int{}
		for code := range codes {
			times[code]++
		}
		require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusUnauthorized: 3}, times)
	}
}

func (r twoServers) oldJoinToken(t *testing.T) {
	token, enrol := r.gate(t, "gate-2")
	made := token()
	require.NoError(t, r.api.RevokeJoinToken(t.Context(), made.ID, api.Mutation{}))
	require.Equal(t, http.StatusUnauthorized, enrol(r.other, made.Token))
	require.Equal(t, http.StatusUnauthorized, enrol(r.stack, made.Token))
}
