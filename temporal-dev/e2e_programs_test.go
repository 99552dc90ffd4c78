//go:build slow

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// program is a server that anybody knows, and how its health check is made to fail: sicken is called
// again and again.
type program struct {
	command []string
	files   []api.DeploymentFile
	health  *fleet.HealthCheck
	sicken  func(t *testing.T, d *service, r api.Replica)
	works   func(t *testing.T, r api.Replica)
}

const nginxConfig = `daemon off;
worker_processes 2;
pid nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  server {
    listen ${PORT};
    location / { return 200 "replica ${HOLDFAST_REPLICA}, $$request_uri\n"; }
    location /health {
      if (-f SICK/${HOLDFAST_REPLICA}) { return 503; }
      return 204;
    }
  }
}
`

// programs are replicas of three kinds: with a generated configuration, without HTTP, and a script.
func programs(t *testing.T) map[string]program {
	t.Helper()
	sick := ground(t)
	fetched := func(path string) func(*testing.T, api.Replica) {
		return func(t *testing.T, r api.Replica) {
			out, err := http.Get("http://" + r.Endpoint + path) //nolint:noctx // it listens on this machine
			require.NoError(t, err)
			require.NoError(t, out.Body.Close())
			require.Equal(t, http.StatusOK, out.StatusCode)
		}
	}
	return map[string]program{
		"nginx": {
			command: []string{"nginx", "-p", "./", "-c", "nginx.conf"},
			files:   []api.DeploymentFile{{Path: "nginx.conf", Content: strings.ReplaceAll(nginxConfig, "SICK", sick)}},
			health:  probe(),
			sicken: func(t *testing.T, _ *service, r api.Replica) {
				require.NoError(t, os.WriteFile(filepath.Join(sick, string(r.ID)), nil, 0o600))
			},
			works: fetched("/who"),
		},
		"redis": {
			command: []string{"redis-server", "--port", "${PORT}", "--save", "", "--appendonly", "no", "--bind", "0.0.0.0", "--protected-mode", "no"},
			health:  probe(func(h *fleet.HealthCheck) { h.Type, h.Path = fleet.HealthTCP, "" }),
			sicken:  func(_ *testing.T, _ *service, r api.Replica) { _, _ = redis(r, "CONFIG SET port 0") }, // it may be deaf already
			works: func(t *testing.T, r api.Replica) {
				said, err := redis(r, "PING")
				require.NoError(t, err)
				require.Equal(t, "+PONG", strings.TrimSpace(said))
			},
		},
		"python": {
			command: []string{"/usr/bin/python3", "-m", "http.server", "${PORT}"},
			files:   []api.DeploymentFile{{Path: "health", Content: "well"}},
			health:  probe(),
			sicken: func(_ *testing.T, d *service, r api.Replica) {
				_ = os.Remove(filepath.Join(d.data, "nodes", r.Node, "replicas", string(r.ID), "health")) // it may be gone already
			},
			works: fetched("/health"),
		},
	}
}

// redis asks a server one thing.
func redis(r api.Replica, command string) (string, error) {
	conn, err := net.DialTimeout("tcp", r.Endpoint, testPatience)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to say
	if err := conn.SetDeadline(time.Now().Add(testPatience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	said := make([]byte, 100)
	n, err := conn.Read(said)
	return string(said[:n]), err
}

// processes are those that run in the folders of the deployment's replicas, whoever they are.
func (d *service) processes(t *testing.T) (out []string) {
	t.Helper()
	all, err := d.api.Replicas(t.Context(), api.ReplicaQuery{Deployment: d.name, Ended: true, Page: api.Page{Limit: 200}})
	require.NoError(t, err)
	found, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range found {
		dir, err := os.Readlink(link)
		if err != nil {
			continue // it has ended
		}
		if slices.ContainsFunc(all.Items, func(r api.Replica) bool { return strings.Contains(dir, "/replicas/"+string(r.ID)) }) {
			out = append(out, filepath.Dir(link))
		}
	}
	return out
}

// S13 to S19, S31, S46 to S56, S75 to S84, S105, S106: what the region promises of replicas, of
// programs that know nothing of it.
func TestE2EPrograms(t *testing.T) {
	t.Parallel()
	s := startWith(t, 2, isolated)
	var parts []part
	for name, p := range programs(t) {
		parts = append(parts, part{name, func(t *testing.T) { s.livesThrough(t, name, p) }})
	}
	parts = append(parts, part{"long to start", s.takesItsTime})
	together(t, parts)
	for name, p := range programs(t) {
		t.Run("drained "+name, func(t *testing.T) { s.moves(t, name, p) })
	}
}

func (s *stack) programService(t *testing.T, name string, p program) *service {
	t.Helper()
	d := newService(t, s, name, 2, func(put *api.DeploymentPut) {
		put.Command, put.Files, put.Health, put.Env, put.Startup = p.command, p.files, p.health, nil, &fleet.Startup{Deadline: 10}
	})
	d.ledger = ""
	return d
}

// livesThrough is all that becomes of one, from its first replica to the last.
func (s *stack) livesThrough(t *testing.T, name string, p program) {
	d := s.programService(t, name, p)
	for _, r := range d.deploy(t) {
		p.works(t, r)
	}
	requireSucceeded(t, d.ended(t, d.scale(t, 4).ID))
	for _, r := range d.healthy(t, 4) {
		p.works(t, r)
	}
	requireSucceeded(t, d.ended(t, d.scale(t, 2).ID))
	two := d.healthy(t, 2)

	kill9(t, two[0].PID)
	now := d.replaced(t, two[0], nil)
	ill := now[0]
	restarted := false
	now = d.replaced(t, ill, func(r api.Replica) {
		restarted = restarted || r.Restarts > 0
		p.sicken(t, d, r)
	})
	require.True(t, restarted || d.restartedOnce(t, ill.ID), "it was restarted before it was replaced")
	for _, r := range now {
		p.works(t, r)
	}
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	d.gone(t)
	require.Empty(t, d.processes(t))
}

// replaced waits until another runs in the place of one, which is looked at meanwhile.
func (d *service) replaced(t *testing.T, old api.Replica, look func(api.Replica)) []api.Replica {
	t.Helper()
	return d.until(t, string(old.ID)+" is replaced", func(all []api.Replica) error {
		for _, r := range all {
			if r.ID == old.ID && look != nil {
				look(r)
			}
		}
		if len(all) != 2 || slices.Contains(ids(all), old.ID) || !allHealthy(all) {
			return errNotYet
		}
		return nil
	})
}

func (d *service) restartedOnce(t *testing.T, id fleet.ReplicaID) bool {
	t.Helper()
	r, err := d.api.Replica(t.Context(), string(id))
	require.NoError(t, err)
	return r.Restarts > 0
}

// moves drains the node of one of its replicas.
func (s *stack) moves(t *testing.T, name string, p program) {
	d := s.programService(t, name+"-moved", p)
	node := d.deploy(t)[0].Node
	fewest := d.least(t)
	op := d.change(t, "drain "+node, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return s.api.DrainNode(ctx, node, api.NodeDrainRequest{}, m)
	})
	requireSucceeded(t, s.ended(t, op.ID))
	for _, r := range d.healthy(t, 2) {
		require.NotEqual(t, node, r.Node)
		p.works(t, r)
	}
	require.GreaterOrEqual(t, fewest(), 2, "new before old")
	_, err := s.api.UncordonNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
	requireSucceeded(t, d.ended(t, d.delete(t).ID))
	require.Empty(t, d.processes(t))
}

// slowStart is longer than a program that does not answer is let live once it is up; task faults plays two
// minutes.
var slowStart = flag.Duration("programs.start", 20*time.Second, "how long the slow program of TestE2EPrograms takes to start")

// takesItsTime answers for the first time after long: its one process is left alone until then (S84).
func (s *stack) takesItsTime(t *testing.T) {
	d := newService(t, s, "loads", 1, func(put *api.DeploymentPut) {
		put.Env["SLOW"], put.Startup = slowStart.String(), &fleet.Startup{Deadline: 300}
	})
	op := d.declare(t)
	require.NoError(t, pollErr(t.Context(), *slowStart+e2ePatience, func(ctx context.Context) error {
		now, err := s.api.Operation(ctx, op.ID, 5*time.Second)
		if err == nil && !now.State.Ended() {
			err = errNotYet
		}
		return err
	}))
	requireSucceeded(t, s.ended(t, op.ID))
	one := d.healthy(t, 1)[0]
	require.Zero(t, one.Restarts)
	require.Equal(t, []int{one.PID}, d.processesOf(t, one.ID))
	d.destroy(t)
}
