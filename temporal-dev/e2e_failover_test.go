//go:build slow

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N7, N38, N45, N47, N60, N64, N75
func (s *stack) failsOver(t *testing.T) {
	together(t, []part{
		{"the standby recovers instances from its own store when it becomes the active", func(t *testing.T) {
			const site = "plant-1"
			old, next := s.holder(t, site), s.standby(t, site)
			s.watchOrder(t, pair(site)...)
			first, second := newStory(t, s, site, "first"), newStory(t, s, site, "second")
			hash := second.witness.starts(t)[0].hash
			s.order(t, "stop", old)
			s.failover(t, site, next)
			for _, st := range []*story{first, second} {
				st.witness.runs(t, st.witness.starts(t)[0].hash)
				st.witness.alone(t)
				fileHash(t, s.configFile(next, st.key.Name, "config.json"), st.witness.starts(t)[0].hash)
			}
			op, newer := first.release(t)
			s.order(t, "start", old) // as the standby that it is now
			ended := s.ended(t, op.ID)
			t.Logf("ended as %s %s", ended.State, ended.Reason)
			s.held(t, first.key, newer)
			for st, hash := range map[*story]string{first: newer, second: hash} {
				st.witness.alone(t)
				s.whole(t, st.key)
				eventually(t, "the region hears that it runs", func() bool { return onNode(t, s.status(t, st.key), next).Running })
				fileHash(t, s.configFile(next, st.key.Name, "config.json"), hash)
				eventually(t, "a standby runs nothing", func() bool {
					_, err := os.Stat(s.configFile(old, st.key.Name, "config.json"))
					return os.IsNotExist(err)
				})
			}
		}},
		{"a delivery that is under way goes on with the new active", func(t *testing.T) {
			const site = "plant-2"
			old, next := s.holder(t, site), s.standby(t, site)
			s.watchOrder(t, pair(site)...)
			st := newStory(t, s, site, "moved")
			st.start = 3
			op, hash := st.release(t)
			st.underWay(t, op)
			s.order(t, "stop", old)
			s.failover(t, site, next)
			waitFor(t, "the new active holds it", func(ctx context.Context) error {
				got, err := s.stores.current(ctx, next, st.key.Name)
				if err == nil && got.hash != hash {
					err = errNotYet
				}
				return err
			})
			require.True(t, s.ended(t, op.ID).State.Ended())
			st.witness.runs(t, hash)
			s.order(t, "start", old)
			s.held(t, st.key, hash)
			st.witness.alone(t)
		}},
		{"what is put while the lease is handed over is delivered all the same", func(t *testing.T) {
			const site, rounds = "plant-3", 4
			s.watchOrder(t, pair(site)...)
			st := newStory(t, s, site, "handed")
			for range rounds {
				to := s.standby(t, site)
				move := s.askFailover(t, site, to)
				op, hash := st.release(t)
				requireSucceeded(t, s.ended(t, op.ID))
				requireSucceeded(t, s.ended(t, move.ID))
				require.Equal(t, to, s.holder(t, site))
				st.good(t, hash)
			}
		}},
	})
}

// N54, N55, N56, N59, X2, X25
func TestE2ELoss(t *testing.T) {
	t.Parallel()
	s := startStack(t, 3)
	parts := []part{{"a node that is started twice is refused, and nothing runs twice", s.startedTwice}}
	for site, role := range map[string]func(*testing.T, string) string{"plant-1": s.holder, "plant-2": s.standby} {
		parts = append(parts, part{"a node of " + site + " loses its store and gets all of it again", func(t *testing.T) { s.losesStore(t, site, role(t, site)) }})
	}
	together(t, parts)
	t.Run("a region that loses all of Temporal goes on with what was under way", func(t *testing.T) {
		st := newStory(t, s, "plant-1", "survivor")
		st.start = 3
		op, hash := st.release(t)
		st.underWay(t, op)
		s.order(t, "stop", serverName)
		s.order(t, "stop", temporalName)
		require.NoError(t, os.RemoveAll(filepath.Join(s.data, "temporal")))
		require.NoError(t, os.Mkdir(filepath.Join(s.data, "temporal"), 0o700))
		s.order(t, "start", temporalName)
		s.order(t, "start", serverName)
		ended := s.ended(t, op.ID)
		t.Logf("ended as %s %s", ended.State, ended.Reason)
		st.good(t, hash)
		s.asleep(t)
	})
	t.Run("a node is counted on only when it takes deliveries", func(t *testing.T) {
		const node = "plant-2-b"
		started := func(ctx context.Context) (n int64, err error) {
			return s.count(ctx, `SELECT (extract(epoch FROM started_at) * 1000)::bigint FROM nodes WHERE name = $1`, node)
		}
		before, err := started(t.Context())
		require.NoError(t, err)
		s.order(t, "stop", node)
		s.order(t, "stop", temporalName)
		require.NoError(t, os.Truncate(filepath.Join(s.data, "logs", node+".log"), 0))
		s.order(t, "start", node)
		waitFor(t, "it waits for Temporal", func(context.Context) error {
			log, err := os.ReadFile(filepath.Join(s.data, "logs", node+".log"))
			if err == nil && !strings.Contains(string(log), "msg=waiting for=temporal") {
				err = errNotYet
			}
			return err
		})
		now, err := started(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, now)
		s.order(t, "start", temporalName)
		waitFor(t, "it is counted on", func(ctx context.Context) error {
			now, err := started(ctx)
			if err == nil && now == before {
				err = errNotYet
			}
			return err
		})
	})
}

// losesStore takes a node's store away.
func (s *stack) losesStore(t *testing.T, site, node string) {
	first, second := newStory(t, s, site, "first"), newStory(t, s, site, "second")
	op, hash := second.release(t)
	requireSucceeded(t, s.ended(t, op.ID))
	s.order(t, "stop", node)
	s.stores.forget(node)
	files, err := filepath.Glob(filepath.Join(s.data, "nodes", node, "node.db*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		require.NoError(t, os.Remove(path))
	}
	s.order(t, "start", node)
	first.good(t, first.witness.starts(t)[0].hash)
	second.good(t, hash)
	s.whole(t, first.key)
	s.whole(t, second.key)
}

func (s *stack) startedTwice(t *testing.T) {
	st := newStory(t, s, "plant-3", "double")
	require.Contains(t, s.startTwice(t, "plant-3", "plant-3-a"), "a node is already running on ")
	for range 3 {
		op, hash := st.release(t)
		t.Logf("ended as %v", s.ended(t, op.ID).State)
		st.good(t, hash)
	}
}

// startTwice runs a second process of a node on the same directory, as a careless operator
// may, and gives what it said before it ended.
func (s *stack) startTwice(t *testing.T, site, node string) string {
	t.Helper()
	in := nodeInput{
		Node: node, Site: site, API: s.doc.API, Link: s.doc.Link, Data: filepath.Join(s.data, "nodes", node),
		Program: os.Args[0], Supervisor: s.supervisor.Process.Pid, Pace: e2ePace,
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2ePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], childNode, node)
	cmd.Stdin = strings.NewReader(jsonText(t, in))
	said, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", said)
	return string(said)
}

// patientScript stops when it is let go, and says so; one that is killed does not.
const patientScript = `echo started >> "$SAID"
trap 'echo stopping >> "$SAID"; until [ -e "$SAID.go" ]; do sleep 0.1; done; echo ended >> "$SAID"; exit 0' TERM
while :; do sleep 0.1; done`

// X5, X6, N60: a server that restarts while the holder stops what runs makes no forced hand-over of a graceful one.
func (s *stack) failoverOutlastsServer(t *testing.T) {
	const site = "plant-1"
	require.False(t, s.timedOut(t, "site."+site))
	before := s.asked(t, "site."+site)
	said := filepath.Join(ground(t), "said")
	says := func(what string) {
		t.Helper()
		eventually(t, "it says "+what, func() bool {
			text, _ := os.ReadFile(said)
			return strings.Contains(string(text), what)
		})
	}
	op := s.put(t, instanceKey(site, "patient"), api.InstancePut{Config: []byte(`{}`), Run: &fleet.Run{
		Command: []string{"/bin/sh", "-c", patientScript}, Env: map[string]string{"SAID": said}, StopSeconds: 120,
	}})
	requireSucceeded(t, s.ended(t, op.ID))
	says("started")
	next := s.standby(t, site)
	move := s.askFailover(t, site, next)
	says("stopping")
	s.order(t, "stop", serverName)
	eventually(t, "Temporal gives the holder's answer up", func() bool { return s.timedOut(t, "site."+site) })
	s.order(t, "start", serverName)
	eventually(t, "the holder is asked again", func() bool { return s.asked(t, "site."+site)["HandOver"] > before["HandOver"]+1 })
	require.NoError(t, os.WriteFile(said+".go", nil, 0o600))
	requireSucceeded(t, s.ended(t, move.ID))
	says("ended")
	require.Equal(t, next, s.holder(t, site))
	require.Equal(t, before["AimVote"], s.asked(t, "site."+site)["AimVote"], "nobody was forced")
}

// timedOut says whether a workflow waited in vain for an activity.
func (s *stack) timedOut(t *testing.T, workflow string) bool {
	t.Helper()
	for _, run := range s.histories(t) {
		for _, e := range run.events {
			if run.id == workflow && e.GetActivityTaskTimedOutEventAttributes() != nil {
				return true
			}
		}
	}
	return false
}
