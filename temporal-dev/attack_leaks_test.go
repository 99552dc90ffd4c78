//go:build slow

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// intruder has a token of one project, and what else the part says.
type intruder struct {
	*stack
	web   *http.Client
	token string
	id    string
}

// heard is what the region said, byte for byte.
type heard struct {
	status int
	body   string
}

func (i intruder) call(t *testing.T, method, path, body string, headers ...string) heard {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, i.doc.API+path, strings.NewReader(body))
	require.NoError(t, err)
	if i.token != "" {
		req.Header.Set("Authorization", "Bearer "+i.token)
	}
	for n := 0; n+1 < len(headers); n += 2 {
		req.Header.Set(headers[n], headers[n+1])
	}
	res, err := i.web.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return heard{res.StatusCode, string(text)}
}

// taken is call, and wants it to be taken.
func (i intruder) taken(t *testing.T, method, path, body string, headers ...string) string {
	t.Helper()
	a := i.call(t, method, path, body, headers...)
	require.Less(t, a.status, 300, "%s %s: %s", method, path, a.body)
	return a.body
}

// as makes a token.
func (i intruder) as(t *testing.T, request string) intruder {
	t.Helper()
	var made api.Token
	require.NoError(t, json.Unmarshal([]byte(i.taken(t, http.MethodPost, "/api/v1/tokens", request)), &made))
	i.token, i.id = made.Token, made.ID
	return i
}

// leaks is a region over TLS with two projects, red and blue, on it. All that blue has is called hidden.
type leaks struct {
	admin, red, blue intruder
}

const (
	hidden = "hidden-thing"
	absent = "absent-thing"
)

func startLeaks(t *testing.T) leaks {
	t.Helper()
	s := startWith(t, 1, "--tls")
	admin := intruder{stack: s, token: s.doc.Token, web: &http.Client{Transport: &http.Transport{TLSClientConfig: s.security(t)}}}
	t.Cleanup(admin.web.CloseIdleConnections)
	for _, project := range []string{"red", "blue"} {
		admin.taken(t, http.MethodPut, "/api/v1/projects/"+project, `{}`)
	}
	l := leaks{
		admin: admin,
		red:   admin.as(t, `{"role":"admin","project":"red","note":"ci"}`),
		blue:  admin.as(t, `{"role":"admin","project":"blue","note":"ci"}`),
	}
	admin.taken(t, http.MethodPut, "/api/v1/sites/"+hidden, `{"project":"blue","nodes":[{"name":"hidden-thing","role":"active"},{"name":"plant-0-hidden","role":"worker"}]}`)
	l.blue.taken(t, http.MethodPut, "/api/v1/templates/"+hidden, `{"base":{}}`)
	l.blue.taken(t, http.MethodPut, "/api/v1/sites/plant-1/instances/"+hidden, `{"config":{}}`)
	return l
}

// X10, X19, X21, X23, C78: what a token of one project, a program, a provider or a Temporal client gets out of a region
// that speaks TLS with certificates on both sides.
func TestAttackLeaks(t *testing.T) {
	t.Parallel()
	l := startLeaks(t)
	together(t, []part{
		{"another project's Idempotency-Key answers nothing", l.keys},
		{"another project's objects read as absent", l.objects},
		{"a list's cursor names nothing of another project", l.cursors},
		{"metrics are for who sees all", l.metrics},
		{"environment names are names", l.environment},
		{"a YAML bomb is refused at once", l.bomb},
		{"output does not steer a terminal", l.terminal},
		{"an executor is where its provider is", l.executors},
		{"a Temporal client's garbage stops no entity", l.garbage},
		{"trace headers carry nothing", l.traces},
		{"without a certificate there is no call", l.certificates},
	})
}

func (l leaks) keys(t *testing.T) {
	path := "/api/v1/sites/plant-1/instances/" + hidden + "/enable"
	of := func(i intruder) api.Operation {
		t.Helper()
		var a api.Accepted
		require.NoError(t, json.Unmarshal([]byte(i.taken(t, http.MethodPost, path, `{}`, "Idempotency-Key", "release-1")), &a))
		require.NotNil(t, a.Operation)
		return *a.Operation
	}
	l.blue.ended(t, l.newest(t).ID)
	first := of(l.blue)
	require.Equal(t, first.ID, of(l.blue).ID)
	require.Equal(t, "ci@"+l.blue.id, first.RequestedBy)
	require.Equal(t, l.blue.id[:8], l.red.id[:8], "the tokens were made at nearly the same time")

	got := l.red.call(t, http.MethodPost, path, `{}`, "Idempotency-Key", "release-1")
	require.Equal(t, http.StatusNotFound, got.status, got.body)
	require.NotContains(t, got.body, first.ID)
	require.Equal(t, http.StatusNotFound, l.red.call(t, http.MethodGet, "/api/v1/operations/"+first.ID, "").status)

	again := of(l.admin.as(t, `{"role":"operator","project":"blue","note":"ci"}`))
	require.NotEqual(t, first.ID, again.ID, "another token of the same project is another caller")
	for _, op := range []api.Operation{first, again} {
		l.admin.ended(t, op.ID)
	}
}

// newest is the operation of the hidden instance that was asked for last.
func (l leaks) newest(t *testing.T) api.Operation {
	t.Helper()
	var all api.List[api.Operation]
	require.NoError(t, json.Unmarshal([]byte(l.blue.taken(t, http.MethodGet, "/api/v1/operations?instance="+hidden, "")), &all))
	require.NotEmpty(t, all.Items)
	return all.Items[0]
}

// objects compares the answers to what exists for another project, and to what does not exist; api has the whole list of paths.
func (l leaks) objects(t *testing.T) {
	for _, c := range [][2]string{
		{"GET", "/api/v1/sites/X"},
		{"GET", "/api/v1/sites/X/instances"},
		{"GET", "/api/v1/sites/X/instances?cursor=eA"},
		{"GET", "/api/v1/nodes/X"},
		{"GET", "/api/v1/templates/X"},
		{"GET", "/api/v1/sites/plant-1/instances/X"},
		{"GET", "/api/v1/sites/plant-1/instances/X/config"},
		{"GET", "/api/v1/sites/plant-1/instances/X/logs"},
		{"POST", "/api/v1/sites/plant-1/instances/X/disable"},
		{"POST", "/api/v1/sites/X/instances/press/disable"},
		{"POST", "/api/v1/sites/X/failover"},
		{"POST", "/api/v1/nodes/X/drain"},
		{"DELETE", "/api/v1/templates/X"},
		{"DELETE", "/api/v1/sites/plant-1/instances/X"},
		{"PUT", "/api/v1/sites/X/instances/press"},
	} {
		body := "{}"
		if c[0] == http.MethodPut {
			body = `{"config":{}}`
		}
		said := func(name string) heard {
			a := l.red.call(t, c[0], strings.Replace(c[1], "X", name, 1), body)
			return heard{a.status, strings.ReplaceAll(a.body, name, "X")}
		}
		foreign := said(hidden)
		require.Equal(t, http.StatusNotFound, foreign.status, "%v: %s", c, foreign.body)
		require.Equal(t, said(absent), foreign, "%v", c)
	}
	for path, body := range map[string]string{"templates/" + hidden: `{"base":{}}`, "sites/plant-1/instances/" + hidden: `{"config":{}}`} {
		a := l.red.call(t, http.MethodPut, "/api/v1/"+path, body)
		require.Equal(t, http.StatusConflict, a.status, a.body)
		require.NotContains(t, a.body, "blue")
	}
}

func (l leaks) cursors(t *testing.T) {
	l.admin.taken(t, http.MethodPut, "/api/v1/sites/red-site", `{"project":"red","nodes":[{"name":"red-a","role":"active"},{"name":"aaa-red-b","role":"standby"}]}`)
	for _, list := range []string{"nodes", "sites", "operations", "events", "templates"} {
		cursor, pages := "", 0
		for pages = range 20 {
			var page struct{ Next string }
			text := l.red.taken(t, http.MethodGet, "/api/v1/"+list+"?limit=1&cursor="+cursor, "")
			require.NotContains(t, text, "hidden")
			require.NoError(t, json.Unmarshal([]byte(text), &page))
			if cursor = page.Next; cursor == "" {
				break
			}
			place, err := base64.RawURLEncoding.DecodeString(cursor)
			require.NoError(t, err)
			require.NotContains(t, string(place), "hidden", list)
			require.NotContains(t, string(place), "plant-", list)
		}
		if list == "nodes" {
			require.Equal(t, 1, pages, "two nodes are two pages")
		}
	}
}

func (l leaks) metrics(t *testing.T) {
	nobody := l.admin
	nobody.token = ""
	require.Equal(t, http.StatusUnauthorized, nobody.call(t, http.MethodGet, "/metrics", "").status)
	require.Equal(t, http.StatusForbidden, l.red.call(t, http.MethodGet, "/metrics", "").status)
	provider := l.admin.as(t, `{"role":"provider","moduleNamespaces":["acme.scrape"]}`)
	require.Equal(t, http.StatusForbidden, provider.call(t, http.MethodGet, "/metrics", "").status)
	require.Contains(t, l.admin.as(t, `{"role":"viewer"}`).taken(t, http.MethodGet, "/metrics", ""), "holdfast_http_requests_total")
}

func (l leaks) environment(t *testing.T) {
	const path = "/api/v1/sites/plant-1/instances/red-env"
	for _, name := range []string{`A\nLD_PRELOAD=/tmp/x.so`, `A\nB`, `A=B`, `A\u0000`, `A\u001b[2J`, `1A`, ``} {
		a := l.red.call(t, http.MethodPut, path, `{"config":{},"run":{"command":["/bin/true"],"env":{"`+name+`":"x"}}}`)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
		a = l.red.call(t, http.MethodPut, "/api/v1/deployments/red-env", `{"command":["/bin/true"],"health":{"type":"none"},"env":{"`+name+`":"x"}}`)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
	}
	require.Equal(t, http.StatusNotFound, l.red.call(t, http.MethodGet, path, "").status, "nothing is stored")
	for _, image := range []string{"--privileged", "../containers/x", "-v/:/host", `a\nb`} {
		a := l.red.call(t, http.MethodPut, "/api/v1/deployments/red-env", `{"image":"`+image+`","health":{"type":"none"}}`)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", image, a.body)
	}
}

func (l leaks) bomb(t *testing.T) {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	for range 10 {
		a := l.red.call(t, http.MethodPost, "/api/v1/plan", text, "Content-Type", "application/yaml")
		require.Equal(t, http.StatusBadRequest, a.status, a.body)
		require.Contains(t, a.body, "aliases")
	}
}

// terminal has a program write what sets the title, clears the screen and types an answer of the terminal, and reads it by
// holdfast logs on a terminal, on one that asked for it, and in a pipe.
func (l leaks) terminal(t *testing.T) {
	const name = "printer"
	const wrote = "\x1b]0;owned\x07\x1b[2J\x1b[6nfailed\rpassed"
	script := fmt.Sprintf(`printf '%s\n'; exec sleep 600`, strings.NewReplacer("\x1b", `\033`, "\x07", `\007`, "\r", `\r`).Replace(wrote))
	key := instanceKey("plant-1", name)
	requireSucceeded(t, l.admin.ended(t, l.admin.put(t, key, api.InstancePut{
		Config: []byte(`{}`), Run: &fleet.Run{Command: []string{"/bin/sh", "-c", script}},
	}).ID))
	operator := newCLI(t, l.admin.stack)
	args := append([]string{"logs", "plant-1/" + name}, shownFiles(l.admin.stack)...)
	waitFor(t, "it has written", func(context.Context) error {
		out, _ := operator.call(t, cliOK, args...)
		if !strings.Contains(out, "passed") {
			return errNotYet
		}
		require.Contains(t, out, wrote, "a pipe gets what was written")
		return nil
	})
	seen := onTerminal(t, operator, args...)
	require.Contains(t, seen, `\x1b]0;owned\x07\x1b[2J\x1b[6nfailed\x0dpassed`)
	require.NotContains(t, seen, "\x1b")
	require.Contains(t, onTerminal(t, operator, append(args, "--raw")...), "\x1b]0;owned\x07")
}

// shownFiles are the flags by which the command line calls a region over TLS.
func shownFiles(s *stack) []string {
	f := s.files()
	return []string{"--ca", f.CA, "--client-cert", f.Cert, "--client-key", f.Key}
}

// onTerminal runs the command line with a terminal for its output, and gives what came there.
func onTerminal(t *testing.T, c cli, args ...string) string {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = main.Close() }()
	fd := int(main.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), c.path, args...)
	cmd.Env, cmd.Stdout = c.env, other
	require.NoError(t, cmd.Run())
	require.NoError(t, other.Close())
	text, _ := io.ReadAll(main) // it ends with an error: nobody has the other side any more
	return string(text)
}

// bearerOf is a token over TLS.
type bearerOf string

// GetRequestMetadata sends the token.
func (b bearerOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearerOf) RequireTransportSecurity() bool { return true }

// executors registers a provider whose executor is somewhere else, where the region would connect in its place.
func (l leaks) executors(t *testing.T) {
	provider := l.admin.as(t, `{"role":"provider","moduleNamespaces":["acme.elsewhere"]}`)
	conn, err := grpc.NewClient(l.admin.doc.Link, grpc.WithTransportCredentials(credentials.NewTLS(l.admin.security(t))), grpc.WithPerRPCCredentials(bearerOf(provider.token)))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	inside, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0") // another address of this machine stands for another machine
	require.NoError(t, err)
	defer func() { _ = inside.Close() }()
	touched := make(chan struct{}, 1)
	go func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			touched <- struct{}{}
		}
	}()
	offer := func(address string) error {
		_, err := nodev1.NewControlPlaneClient(conn).Register(t.Context(), &nodev1.RegisterRequest{
			Provider: "elsewhere", ModuleNamespace: "acme.elsewhere", ExecutorAddress: address, ProtocolVersion: 1,
			Modules: []*nodev1.Module{{Name: "Reach"}},
		})
		return err
	}
	for _, address := range []string{inside.Addr().String(), "169.254.169.254:80", "[::1]:5432", "0.0.0.0:5432", "[::ffff:127.0.0.2]:80", "10.0.0.1:443"} {
		require.Equal(t, codes.PermissionDenied, status.Code(offer(address)), address)
	}
	require.NoError(t, offer("127.0.0.1:1"), "where it is itself")
	l.admin.written(t, "link", "token:"+provider.id, "executor_address", "169.254.169.254:80")
	select {
	case <-touched:
		require.Fail(t, "the region connected")
	default:
	}
}

// garbage signals, queries and starts what no client of the region would, and has the entity work on.
func (l leaks) garbage(t *testing.T) {
	s := l.admin.stack
	st := newStory(t, s, "plant-1", "sturdy")
	payloads := func(encoding, data string) *commonpb.Payloads {
		return &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)}}}
	}
	bad := []*commonpb.Payloads{
		nil, payloads("json/plain", `{`), payloads("json/plain", `"\ud800"`), payloads("json/plain", strings.Repeat("[", 100_000)), payloads("binary/plain", "\x00\xff"),
		payloads("json/protobuf", `{}`), payloads("nobody/knows", "x"), payloads("json/plain", `{"site":5,"instance":["x"],"unknown":{}}`),
	}
	op, hash := st.release(t) // so that the entity runs while it is signalled
	for i, input := range bad {
		for _, name := range []string{"wake", "nobody-knows", ""} {
			_, _ = s.temporal.SignalWorkflowExecution(t.Context(), &workflowservice.SignalWorkflowExecutionRequest{ // it may have ended
				Namespace: temporalNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: st.entity()}, SignalName: name, Input: input,
			})
			_, _ = s.temporal.QueryWorkflow(t.Context(), &workflowservice.QueryWorkflowRequest{
				Namespace: temporalNamespace, Execution: &commonpb.WorkflowExecution{WorkflowId: st.entity()},
				Query: &querypb.WorkflowQuery{QueryType: "status" + name, QueryArgs: input},
			})
		}
		if input == nil {
			continue
		}
		run := s.door(t, fmt.Sprintf("garbage-%d", i), "DeployInstance", string(input.GetPayloads()[0].GetData()), time.Minute)
		require.NotEqual(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, s.closed(t, run))
	}
	requireSucceeded(t, s.ended(t, op.ID))
	st.good(t, hash)
	op, hash = st.release(t)
	requireSucceeded(t, s.ended(t, op.ID))
	st.good(t, hash)
}

var keptTrace = regexp.MustCompile(`^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$`)

// traces sends headers that no tracer would.
func (l leaks) traces(t *testing.T) {
	id := "00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16)
	for i, headers := range [][]string{
		{"traceparent", strings.Repeat("a", 4_000)},
		{"traceparent", id + "-01-" + strings.Repeat("x", 4_000)},
		{"traceparent", "ff" + id[2:] + "-01"},
		{"traceparent", id + "-01", "tracestate", strings.Repeat("marker=leaked,", 300)},
		{"traceparent", id + "-01", "baggage", "marker=leaked"},
		{"traceparent", "00-" + strings.Repeat("\u009b", 16) + "-" + strings.Repeat("b", 16) + "-01"},
	} {
		l.red.taken(t, http.MethodPut, "/api/v1/sites/plant-1/instances/traced", fmt.Sprintf(`{"config":{"n":%d}}`, i), headers...)
	}
	rows, err := l.admin.pg.Query(t.Context(), `SELECT trace FROM outbox`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var trace string
		require.NoError(t, rows.Scan(&trace))
		require.Regexp(t, keptTrace, trace)
	}
	require.NoError(t, rows.Err())
	require.Error(t, l.admin.logSays(serverName, "leaked"))
}

// certificates calls API and link without one, and in the clear.
func (l leaks) certificates(t *testing.T) {
	config := l.admin.security(t).Clone()
	config.Certificates, config.GetClientCertificate = nil, nil
	l.refusedLink(t, credentials.NewTLS(config))
	l.refusedLink(t, insecure.NewCredentials())
	call := func(web *http.Client, address string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/sites", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+l.admin.token)
		res, err := web.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	_, err := call(&http.Client{Transport: &http.Transport{TLSClientConfig: config}}, l.admin.doc.API)
	require.Error(t, err, "without a certificate")
	code, err := call(http.DefaultClient, strings.Replace(l.admin.doc.API, "https://", "http://", 1))
	if err == nil {
		require.Equal(t, http.StatusBadRequest, code, "nothing is served in the clear")
	}
}

func (l leaks) refusedLink(t *testing.T, c credentials.TransportCredentials) {
	t.Helper()
	conn, err := grpc.NewClient(l.admin.doc.Link, grpc.WithTransportCredentials(c))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+l.admin.token)
	_, err = nodev1.NewControlPlaneClient(conn).Register(ctx, &nodev1.RegisterRequest{Provider: "x", ProtocolVersion: 1})
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}
