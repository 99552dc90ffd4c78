package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestGet(t *testing.T) {
	t.Parallel()

	t.Run("prints a table of all pages and all sites", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.declare("sites/plant-2", `{}`)
		r.declare("sites/plant-2/instances/furnace-2", `{}`)
		r.declare("sites/plant-2/instances/line-meter", `{}`)
		got := newShell(t, r).ok("get", "instances")
		require.Regexp(t, `^NAME +PHASE +SYNCED +ENABLED +REVISION +DESIRED +REPLICATED +RUNNING ON +HASH +UPDATED\n`+
			`plant-1/press-7 +running +yes +yes +4 +4 +2/2 +plant-1-a +aaaaaaaaaaaa +\d+\w\n`+
			`plant-2/furnace-2 +- +- +no +0 +0 +- +- +- +\d+\w\nplant-2/line-meter `, got.stdout)
	})

	t.Run("asks for a named object of the project of --project, and delete does too", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		queries := make(chan string, 10)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			queries <- req.Method + " " + req.URL.RequestURI()
			if req.URL.Query().Get("project") == "lb" {
				refuse(w, 404, fleet.NotFound, "pool north not found", "")
				return true
			}
			o := api.Object{Kind: "pool", Name: "north", Project: "la", Spec: json.RawMessage(`{}`)}
			if req.Method == http.MethodDelete {
				reply(w, 200, api.Accepted{Object: &o})
			} else {
				reply(w, 200, o)
			}
			return true
		}
		s := newShell(t, r)
		for _, c := range []struct {
			args  []string
			query string
			code  int
		}{
			{[]string{"get", "pool", "north", "--project", "la"}, "GET /api/v1/pools/north?project=la", exitOK},
			{[]string{"get", "pool", "north", "--project", "lb"}, "GET /api/v1/pools/north?project=lb", exitNotFound},
			{[]string{"get", "pool", "north", "--project", "la", "--region", "eu"}, "GET /api/v1/pools/north?project=la&region=eu", exitOK},
			{[]string{"get", "instance", "plant-1/press-7", "--project", "la"}, "GET /api/v1/sites/plant-1/instances/press-7?project=la", exitOK},
			{[]string{"delete", "pool", "north", "--project", "la"}, "DELETE /api/v1/pools/north?project=la", exitOK},
			{[]string{"delete", "pool", "north", "--project", "lb"}, "DELETE /api/v1/pools/north?project=lb", exitNotFound},
			{[]string{"get", "pool", "north"}, "GET /api/v1/pools/north", exitOK},
			{[]string{"describe", "pool", "north", "--project", "lb"}, "GET /api/v1/pools/north?project=lb", exitNotFound},
		} {
			require.Equal(t, c.code, s.run(c.args...).code, c.args)
			require.Equal(t, c.query, <-queries)
		}
	})

	t.Run("refuses a region for what is not copied", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, newRegion(t).plant1())
		for _, args := range [][]string{{"get", "nodes", "--region", "eu"}, {"get", "node", "plant-1-a", "--region", "eu"}} {
			got := s.run(args...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, "nodes stay in their region")
		}
	})

	t.Run("has the region list the nodes of one site", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/api/v1/nodes" {
				return false
			}
			if got := req.URL.Query(); got.Get("site") != "plant-2" || got.Get("limit") != "1" {
				t.Errorf("asked for %s", req.URL.RawQuery)
			}
			reply(w, 200, api.List[api.Node]{Items: []api.Node{{Name: "plant-2-a", Site: "plant-2"}}, Next: "more"})
			return true
		}
		require.Contains(t, newShell(t, r).ok("get", "nodes", "--site", "plant-2", "--limit", "1").stdout, "plant-2-a")
	})

	t.Run("fails for a region that is not known", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Query().Get("region") == "nowhere" {
				refuse(w, 404, fleet.NotFound, "region nowhere is not an enabled peer of region test", "region")
				return true
			}
			return false
		}
		for _, args := range [][]string{{"get", "pools", "--region", "nowhere"}, {"describe", "pool", "north", "--region", "nowhere"}} {
			require.Equal(t, exitNotFound, newShell(t, r).run(args...).code, args)
		}
	})

	t.Run("describes the copy of what another region created", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/api/v1/templates/press" || req.URL.Query().Get("region") != "eu" {
				return false
			}
			reply(w, 200, api.Object{Kind: "template", Region: "eu", Name: "press", Project: "line", UID: "u-1", Spec: json.RawMessage(`{"base":{}}`), Syncing: json.RawMessage(`{}`)})
			return true
		}
		s := newShell(t, r)
		got := s.ok("describe", "template", "press", "--region", "eu").stdout
		require.Regexp(t, `Region: +eu\nName: +press\n`, got)
		require.Contains(t, got, "known in the region that owns it")
		require.Contains(t, s.ok("describe", "template", "press", "--region", "eu", "-o", "json").stdout, `"uid": "u-1"`)
		require.Equal(t, exitUsage, s.run("describe", "node", "plant-1-a", "--region", "eu").code)
	})

	t.Run("takes names in every form", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, newRegion(t).plant1())
		for _, args := range [][]string{
			{"get", "instance", "plant-1/press-7"},
			{"get", "instances", "press-7", "--site", "plant-1"},
			{"get", "Instance", "plant-1/press-7", "--site=plant-1"},
		} {
			require.Equal(t, "instance/plant-1/press-7\n", s.ok(append(args, "-o", "name")...).stdout)
		}
		require.Contains(t, s.ok("get", "sites").stdout, "plant-1-a(active),plant-1-b(standby)")
		require.Contains(t, s.ok("get", "nodes").stdout, "plant-1-a")
	})

	t.Run("prints one thing as an object and a list as a list", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, newRegion(t).plant1())
		var o api.Object
		require.NoError(t, json.Unmarshal([]byte(s.ok("get", "instance", "plant-1/press-7", "-o", "json").stdout), &o))
		require.Equal(t, "press-7", o.Name)
		var l api.List[api.Object]
		require.NoError(t, json.Unmarshal([]byte(s.ok("get", "instances", "--site", "plant-1", "-o", "json").stdout), &l))
		require.Len(t, l.Items, 1)
		require.JSONEq(t, `{"items":[]}`, s.ok("get", "templates", "-o", "json").stdout)
		require.Contains(t, s.ok("get", "instance", "plant-1/press-7", "-o", "yaml").stdout, "kind: instance\nname: press-7\nsite: plant-1\n")
	})

	t.Run("stops at the limit and says so", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.declare("sites/plant-2", `{}`)
		got := newShell(t, r).ok("get", "sites", "--limit", "1")
		require.Contains(t, got.stdout, "plant-1")
		require.NotContains(t, got.stdout, "plant-2")
		require.Contains(t, got.stderr, "there are more")
	})

	t.Run("writes the exact bytes of a config", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, `{"b":1,  "a":2}`, newShell(t, newRegion(t).plant1()).ok("get", "config", "plant-1/press-7").stdout)
	})

	t.Run("with --watch shows what changes and what goes", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		out, stop := newShell(t, r).follow("get", "sites", "--watch", "-o", "json")
		out.await(t, `"generation":1`)
		r.mu.Lock()
		r.declare("sites/plant-1", `{}`)
		r.mu.Unlock()
		out.await(t, `"generation":2`)
		r.mu.Lock()
		delete(r.objects, "sites/plant-1")
		r.mu.Unlock()
		out.await(t, `"gone":true`)
		require.Equal(t, exitOK, stop())
	})
}

// N105
func TestDeliveries(t *testing.T) {
	t.Parallel()
	r := newRegion(t).plant1()
	end := testNow.Add(3 * time.Second)
	r.deliveries = []api.Delivery{{
		ID: op2, Attempt: 7, Revision: 4, FromRevision: 3, FromGeneration: 1, Generation: 2, Action: fleet.ActionDeploy, RevisionHash: hash1,
		State: "unknown", SettledAs: "applied", Reason: "communication", RequestedBy: "token:ci", Why: "ticket 4711",
		CreatedAt: testNow, EndedAt: &end, Nodes: []api.NodeProgress{nodeAt("plant-1-a", "applied", 1)},
	}}
	got := newShell(t, r).ok("deliveries", "plant-1/press-7")
	require.Regexp(t, `\n2{32} +7 +deploy +3 -> 4 +1 -> 2 +unknown \(settled as applied\) +-?\d+\w +\d+\w\n`+
		` +hash: aaaaaaaaaaaa; reason: communication; nodes: plant-1-a:applied; by: token:ci; why: ticket 4711\n$`, got.stdout)
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	s := newShell(t, newRegion(t).plant1())
	got := s.ok("describe", "instance", "plant-1/press-7").stdout
	for _, want := range []string{
		"Generation:     1\n", "ETag:           \"101\"\n", "Spec:\n  enabled: true\n  durability: sync\n",
		"Phase:          running (of generation 1)\n", "hash " + string(hash1), "Conditions:\nCONDITION", "Synced:         yes, revision 4, since 2026-03-01T12:00:00Z\n",
	} {
		require.Contains(t, got, want)
	}
	require.Contains(t, s.ok("describe", "site", "plant-1").stdout, "role: standby")
	require.Equal(t, exitNotFound, s.run("describe", "site", "plant-x").code)
}

// X10: whatever the token may see, in every form.
func TestDescribeRedacts(t *testing.T) {
	t.Parallel()
	r := newRegion(t).plant1()
	r.declare("sites/plant-1/instances/press-9", `{"enabled":true,"run":{"command":["p"],"env":{"TOKEN":"hunter2","LEVEL":"info"}},"secretEnv":["TOKEN"]}`)
	for _, form := range []string{"table", "json", "yaml"} {
		got := newShell(t, r).ok("describe", "instance", "plant-1/press-9", "-o", form).stdout
		require.NotContains(t, got, "hunter2", form)
		require.Contains(t, got, "<redacted>", form)
		require.Contains(t, got, "info", form)
	}
	require.Contains(t, newShell(t, r).ok("get", "instance", "plant-1/press-9", "-o", "json").stdout, "hunter2", "as the region shows it")
}

func TestOperations(t *testing.T) {
	t.Parallel()
	r := newRegion(t).plant1()
	r.operations[op1] = []api.Operation{operation(op1, fleet.OperationRunning)}
	r.operations[op2] = []api.Operation{operation(op2, fleet.OperationSucceeded)}
	s := newShell(t, r)
	require.Regexp(t, op1+` +deploy +plant-1/press-7 +running`, s.ok("operations", "list").stdout)
	require.Equal(t, fmt.Sprintf("operation/%s\noperation/%s\n", op1, op2), s.ok("operations", "list", "-o", "name").stdout)
	require.Contains(t, s.ok("operations", "get", op2).stdout, "succeeded")
	require.Contains(t, s.ok("operations", "cancel", op1).stdout, "cancelled")
}

func TestLogs(t *testing.T) {
	t.Parallel()

	t.Run("follow an instance from node to node and repeat nothing", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.logs = []api.LogChunk{{Node: "plant-1-a", Offset: 0, Data: "one\n"}}
		out, stop := newShell(t, r).follow("logs", "plant-1/press-7", "--follow")
		out.await(t, "one\n")
		write := func(c api.LogChunk) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.logs = append(r.logs, c)
		}
		write(api.LogChunk{Node: "plant-1-a", Offset: 4, Data: "two\n"})
		out.await(t, "two\n") // a round may have passed this node before it wrote
		write(api.LogChunk{Node: "plant-1-b", Offset: 0, Data: "three\n"})
		out.await(t, "three\n")
		require.Equal(t, exitOK, stop())
		require.Equal(t, "one\ntwo\n\n==> plant-1-b <==\nthree\n", out.String())
	})

	t.Run("begin behind an offset of one node", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.logs = []api.LogChunk{{Node: "plant-1-a", Offset: 0, Data: "one\n"}, {Node: "plant-1-a", Offset: 4, Data: "two\n"}}
		require.Equal(t, "two\n", newShell(t, r).ok("logs", "plant-1/press-7", "--node", "plant-1-a", "--after", "4").stdout)
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	for i := 1; i <= 3; i++ {
		r.events = append(r.events, api.Event{ID: fmt.Sprint(i), At: testNow, Type: "updated", Kind: "site", Name: fmt.Sprintf("plant-%d", i)})
	}
	s := newShell(t, r)
	require.Regexp(t, `\n2 +2026-03-01T12:00:00Z +updated +site +plant-2`, s.ok("events").stdout)
	out, stop := s.follow("events", "--watch", "--after", "1", "-o", "name")
	out.await(t, "event/3\n")
	require.Equal(t, exitOK, stop())
	require.Equal(t, "event/2\nevent/3\n", out.String())
}

// X24: a watch that cannot go on without a gap says so and ends with a code of its own.
func TestEventsNoLongerKept(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Last-Event-ID") != "1.2.3" {
			return false
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"type":"holdfast:problems/gone","status":410,"detail":"not kept any more","hint":"read the objects anew"}`)
		return true
	}
	s := newShell(t, r)
	got := s.run("events", "--watch", "--after", "1.2.3")
	require.Equal(t, exitNotFound, got.code)
	require.Empty(t, got.stdout)
	require.Contains(t, got.stderr, "gone")
	require.Contains(t, got.stderr, "not kept any more")
	require.Contains(t, got.stderr, "read the objects anew")
}

func TestServerRefusesToKeepNothing(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--keep-bodies=0s", "--keep-uploads=-1h", "--keep-newest=0", "--keep-operations=1h", "--keep-deliveries=0s", "--keep-events=0s"} {
		got := newShell(t, nil).run("server", flag)
		require.Equal(t, exitUsage, got.code, flag)
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		require.Contains(t, got.stderr, name)
	}
}
