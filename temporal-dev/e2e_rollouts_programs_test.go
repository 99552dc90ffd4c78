//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// visitor opens a connection for each request, as a new client does.
var visitor = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testPatience}

// page is what a replica answers.
func page(ctx context.Context, r api.Replica) (string, error) {
	in, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Endpoint+"/", nil)
	if err != nil {
		return "", err
	}
	out, err := visitor.Do(in)
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	body, err := io.ReadAll(out.Body)
	if err == nil && out.StatusCode != http.StatusOK {
		err = errors.New(out.Status)
	}
	return string(body), err
}

// pages counts the answers of its replicas once there are as many as wanted, all healthy.
func (d *service) pages(t *testing.T, n int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range d.healthy(t, n) {
		said, err := page(t.Context(), r)
		require.NoError(t, err)
		out[said]++
	}
	return out
}

// visits is what a client got that asks all replicas that the API calls routable, again and again.
type visits struct {
	pages  map[string]int
	failed []string // by replicas that were routable before and after
	fewest int      // that were routable at a time
}

// visited asks its replicas until the function that it returns is called.
func (d *service) visited(t *testing.T) (stop func() visits) {
	t.Helper()
	done, result := make(chan struct{}), make(chan visits)
	go func() {
		v := visits{pages: map[string]int{}, fewest: 1 << 20}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				result <- v
				return
			case <-tick.C:
				d.visit(t.Context(), &v)
			}
		}
	}()
	return func() visits { close(done); return <-result }
}

func (d *service) visit(ctx context.Context, v *visits) {
	all, err := d.routables(ctx)
	if err != nil {
		return
	}
	v.fewest = min(v.fewest, len(all))
	for _, r := range all {
		said, err := page(ctx, r)
		if err == nil {
			v.pages[said]++
			continue
		}
		still, lost := d.routables(ctx)
		if lost == nil && slices.ContainsFunc(still, func(x api.Replica) bool { return x.ID == r.ID }) {
			v.failed = append(v.failed, fmt.Sprintf("%s on %s: %v", r.ID, r.Node, err))
		}
	}
}

func (d *service) routables(ctx context.Context) ([]api.Replica, error) {
	all, err := d.api.Replicas(ctx, api.ReplicaQuery{Deployment: d.name})
	return slices.DeleteFunc(all.Items, func(r api.Replica) bool { return !r.Routable }), err
}

const siteConfig = `daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  server { listen ${PORT}; }
}
`

// publishes releases other content of a site.
func (d *service) publishes(t *testing.T, content string) api.Operation {
	t.Helper()
	d.put.Files = []api.DeploymentFile{{Path: "nginx.conf", Content: siteConfig}, {Path: "html/index.html", Content: content}}
	return d.declare(t)
}

// siteRolledOut: nginx serves one content, then another, then both in the counts of a canary at half. What is cancelled there, a release
// or a rollback, can be asked for again. A client finds an answer all the time (F53, F61, F62, F63, F64, F69, F73, F74, F75, S123, S125).
func (s *stack) siteRolledOut(t *testing.T) {
	d := newService(t, s, "site", 4, func(p *api.DeploymentPut) {
		p.Command, p.Env, p.Health = []string{"nginx", "-p", "./", "-c", "nginx.conf"}, nil, probe(func(h *fleet.HealthCheck) { h.Path = "/" })
	})
	d.ledger = ""
	requireSucceeded(t, d.ended(t, d.publishes(t, "old").ID))
	require.Equal(t, map[string]int{"old": 4}, d.pages(t, 4))
	end := d.visited(t)
	requireSucceeded(t, d.ended(t, d.publishes(t, "new").ID))
	require.Equal(t, map[string]int{"new": 4}, d.pages(t, 4))

	d.put.Strategy = api.Strategy{Type: fleet.StrategyCanary, Steps: []api.CanaryStep{{Weight: 50, Pause: true}}}
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	half := func(content string) {
		t.Helper()
		d.under(t, "it is paused at half", func(r api.Rollout) bool { return r.State == fleet.RolloutPaused })
		require.Equal(t, map[string]int{"new": 2, content: 2}, d.pages(t, 4))
		require.True(t, d.status(t).Available)
	}
	ends := func(verb, content string) {
		t.Helper()
		out := d.verb(t, verb, api.RolloutRequest{})
		if out.Operation != nil {
			requireSucceeded(t, d.ended(t, out.Operation.ID))
		}
		d.under(t, "it has ended", func(r api.Rollout) bool { return r.EndedAt != nil })
		require.Equal(t, map[string]int{content: 4}, d.pages(t, 4))
	}
	op := d.publishes(t, "newest")
	half("newest")
	ends("cancel", "new")
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	op = *d.ask(t, "retry", api.ActionRequest{}).Operation
	half("newest")
	ends("promote", "newest")
	requireSucceeded(t, d.ended(t, op.ID))

	op = *d.ask(t, "rollback", api.RollbackRequest{}).Operation
	half("newest")
	ends("cancel", "newest")
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	op = *d.ask(t, "rollback", api.RollbackRequest{Revision: 3}).Operation
	half("newest")
	ends("promote", "new")
	requireSucceeded(t, d.ended(t, op.ID))

	heard := end()
	require.Empty(t, heard.failed, "a routable replica answers")
	require.GreaterOrEqual(t, heard.fewest, 4, "as many as there were, at any time")
	require.Equal(t, []string{"new", "newest", "old"}, slices.Sorted(maps.Keys(heard.pages)))
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
	require.Empty(t, d.processes(t))
}

// deafServer notes that it was asked to stop, and serves on. It answers with a word of its code, one of its environment, and its argument.
const deafServer = `import http.server, os, signal, sys

def asked(*_):
    open(os.path.join(os.environ["LEDGER"], os.environ["HOLDFAST_REPLICA"] + ".asked"), "w").close()

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(" ".join(["%s", os.environ["GREETING"], sys.argv[2]]).encode())

    def log_message(self, *_):
        pass

signal.signal(signal.SIGTERM, asked)
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Answers).serve_forever()
`

// says releases a server with a word in its code, its environment and its arguments.
func (d *service) says(t *testing.T, word string) api.Operation {
	t.Helper()
	d.put.Files = []api.DeploymentFile{{Path: "server.py", Content: fmt.Sprintf(deafServer, word)}}
	d.put.Env["GREETING"], d.put.Args = word, []string{word}
	return d.declare(t)
}

// replicasDeaf do not heed SIGTERM: a rollout, a cancellation and a stop end once they were killed, and not before. A
// cancellation brings code, environment and arguments back (F32, F53, F60, F63, F64, F75, S53, S110).
func (s *stack) replicasDeaf(t *testing.T) {
	d := newService(t, s, "deaf", 2, func(p *api.DeploymentPut) {
		p.Command, p.StopSeconds, p.Health = []string{"/usr/bin/python3", "server.py", "${PORT}"}, 2, probe(func(h *fleet.HealthCheck) { h.Path = "/" })
		p.Strategy = api.Strategy{MaxSurge: &api.Share{Percent: 100}, MinHealthyTime: new(3600.0)}
	})
	requireSucceeded(t, d.ended(t, d.says(t, "one").ID))
	stable := d.healthy(t, 2)
	op := d.says(t, "two")
	both := d.healthy(t, 4)
	require.Equal(t, map[string]int{"one one one": 2, "two two two": 2}, d.pages(t, 4))
	requireSucceeded(t, d.ended(t, d.verb(t, "cancel", api.RolloutRequest{}).Operation.ID))
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	require.Equal(t, map[string]int{"one one one": 2}, d.pages(t, 2))
	d.as(t, stable, d.healthy(t, 2))
	d.killed(t, slices.DeleteFunc(both, func(r api.Replica) bool { return slices.Contains(ids(stable), r.ID) }))

	d.put.Strategy.MinHealthyTime = new(0.0)
	requireSucceeded(t, d.ended(t, d.says(t, "three").ID))
	d.killed(t, stable)
	require.Equal(t, map[string]int{"three three three": 2}, d.pages(t, 2))

	d.put.StopSeconds = 600
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	d.put.State = fleet.StateStopped
	all := d.healthy(t, 2)
	op = d.declare(t)
	d.until(t, "they are asked to stop", func(now []api.Replica) error {
		return unless(len(now) == 2 && !slices.ContainsFunc(now, func(r api.Replica) bool { return r.State != fleet.ReplicaTerminating || !d.wasAsked(r) }))
	})
	for _, r := range all {
		said, err := page(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "three three three", said)
	}
	now, err := d.api.Operation(t.Context(), op.ID, 0)
	require.NoError(t, err)
	require.Equal(t, fleet.OperationRunning, now.State, "they run on")
	for _, r := range all {
		kill9(t, r.PID)
	}
	requireSucceeded(t, d.ended(t, op.ID))
	require.Empty(t, d.replicas(t))
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
}

func (d *service) wasAsked(r api.Replica) bool {
	_, err := os.Stat(filepath.Join(d.ledger, string(r.ID)+".asked"))
	return err == nil
}

// killed: these were asked to stop, did not heed it, and had ended before their rollout had.
func (d *service) killed(t *testing.T, old []api.Replica) {
	t.Helper()
	rollout := d.rollouts(t)[0]
	require.NotNil(t, rollout.EndedAt)
	for _, r := range old {
		require.False(t, alive(r.PID))
		require.True(t, d.wasAsked(r))
		ended, err := d.api.Replica(t.Context(), string(r.ID))
		require.NoError(t, err)
		require.False(t, ended.EndedAt == nil || ended.EndedAt.After(*rollout.EndedAt), "%+v", ended)
	}
}
