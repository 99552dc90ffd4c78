//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// tombstone waits until a node holds a delete as the newest word on an instance.
func (s *stack) tombstone(t *testing.T, node, name string, revision int64) {
	t.Helper()
	waitFor(t, node+" learns of the delete", func(ctx context.Context) error {
		got, err := s.stores.current(ctx, node, name)
		if err == nil && (got.action != "delete" || got.Revision != revision) {
			err = fmt.Errorf("it holds %+v", got)
		}
		return err
	})
}

func (st *story) delete(t *testing.T) api.Operation {
	t.Helper()
	return st.ended(t, st.change(t, "delete", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return st.api.Delete(ctx, st.key, m)
	}).ID)
}

func (st *story) gone(t *testing.T) {
	t.Helper()
	_, _, err := st.api.Object(t.Context(), st.key)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err), "%v", err)
}

// N43, N57, N59, N78, N88, N95, N101, N102, X1, X4, X7
func (s *stack) livesAndDies(t *testing.T) {
	const site, missing = "plant-8", "plant-9"
	together(t, []part{
		{"a delete reaches both nodes, and the numbers go on", func(t *testing.T) {
			st := newStory(t, s, site, "phoenix")
			pid := st.witness.runs(t, st.witness.starts(t)[0].hash)
			requireSucceeded(t, st.delete(t))
			st.gone(t)
			require.False(t, alive(pid))
			for _, node := range pair(site) {
				s.tombstone(t, node, st.key.Name, 2)
			}
			s.nowhere(t, st.key)
			op, hash := st.release(t)
			require.EqualValues(t, 3, op.Revision, "the number goes on")
			requireSucceeded(t, s.ended(t, op.ID))
			st.good(t, hash)
		}},
		{"a revision that does not start leaves the one before it running", func(t *testing.T) {
			s.rollsBack(t, newStory(t, s, site, "faulty"))
		}},
		{"a deploy at the moment of a put brings nothing older back", func(t *testing.T) {
			s.racesWithPut(t, newStory(t, s, site, "raced"))
		}},
		{"a node that was down learns of a delete", func(t *testing.T) {
			st := newStory(t, s, missing, "missed")
			away := s.standby(t, missing)
			s.order(t, "stop", away)
			ended := st.delete(t)
			require.Equal(t, fleet.OperationFailed, ended.State, "%+v", ended)
			require.Equal(t, "not_replicated", ended.Reason)
			s.tombstone(t, peerOf(missing, away), st.key.Name, 2)
			s.order(t, "start", away)
			s.tombstone(t, away, st.key.Name, 2)
			s.owesNothing(t, missing)
			st.gone(t)
		}},
	})
}

// racesWithPut deploys while a PUT is under way. Whichever is first, what was put is newest.
func (s *stack) racesWithPut(t *testing.T, st *story) {
	t.Helper()
	for range 20 {
		var deploys sync.WaitGroup
		for range 3 {
			deploys.Go(func() {
				_, err := s.api.Deploy(t.Context(), st.key, api.ActionRequest{}, api.Mutation{})
				if err != nil && !fleet.KindOf(err).Retryable() {
					t.Error(err)
				}
			})
		}
		_, hash := st.release(t)
		deploys.Wait()
		var newest string
		require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT encode(r.body_hash, 'hex') FROM subjects s
			JOIN revisions r ON r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision
			WHERE s.site = $1 AND s.name = $2`, st.key.Scope, st.key.Name).Scan(&newest))
		require.Equal(t, hash, newest, "revision %d", st.number)
	}
	st.good(t, hashOf(fmt.Appendf(nil, `{"instance":%q,"number":%d}`, st.key.Name, st.number)))
}

// rollsBack releases a command that exits at once.
func (s *stack) rollsBack(t *testing.T, st *story) {
	t.Helper()
	good := st.witness.starts(t)[0].hash
	bad := []byte(`{"bad":true}`)
	op := s.ended(t, s.put(t, st.key, api.InstancePut{
		Config: bad, Run: &fleet.Run{Command: []string{"/bin/sh", "-c", "exit 3"}},
	}).ID)
	require.Equal(t, fleet.OperationFailed, op.State, "%+v", op)
	require.Equal(t, "apply_failed", op.Reason)
	require.NotContains(t, op.Message, "Communication failure")
	st.witness.runs(t, good)
	st.witness.alone(t)
	s.activeFile(t, st.key, "config.json", good)
	for _, node := range pair(st.key.Scope) {
		got, err := s.stores.current(t.Context(), node, st.key.Name)
		require.NoError(t, err)
		require.EqualValues(t, 1, got.Revision, node)
		require.Equal(t, good, got.hash)
	}
	status := s.status(t, st.key)
	require.EqualValues(t, 1, status.Revision)
	require.EqualValues(t, 2, status.DesiredRevision)
	require.Equal(t, "Failed", status.Phase)
	starts := len(st.witness.starts(t))
	back := s.ended(t, s.change(t, "roll back", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return s.api.Rollback(ctx, st.key, api.RollbackRequest{}, m)
	}).ID)
	requireSucceeded(t, back)
	require.EqualValues(t, 3, s.held(t, st.key, good), "a new number with the old body")
	require.Len(t, st.witness.starts(t), starts, "what runs already is not restarted")
	require.Equal(t, "Deployed", s.status(t, st.key).Phase)
}

// guardianOf finds the guardian of an instance by its command line.
func (s *stack) guardianOf(t *testing.T, node, name string) int {
	t.Helper()
	dir := filepath.Join(s.data, "nodes", node, "run", name)
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err != nil {
			continue // it has ended
		}
		args := strings.Split(string(text), "\x00")
		if len(args) > 3 && args[1] == guardian.Command && args[3] == dir {
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			require.NoError(t, err)
			return pid
		}
	}
	require.Fail(t, "no guardian", dir)
	return 0
}

// N7, N61, N64, X2, X12, X28
func TestE2ERestart(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	st := newStory(t, s, "plant-1", "press-7")
	hash := st.witness.starts(t)[0].hash
	t.Run("an agent that is killed finds its command running", func(t *testing.T) {
		pid, starts := st.witness.runs(t, hash), st.witness.starts(t)
		node := s.holder(t, st.key.Scope)
		s.kill(t, node)
		waitFor(t, "the region hears of the node again", func(context.Context) error {
			if n := onNode(t, s.status(t, st.key), node); !n.Running {
				return fmt.Errorf("%+v", n)
			}
			return nil
		})
		require.Equal(t, pid, st.witness.runs(t, hash))
		require.Equal(t, starts, st.witness.starts(t))
		op, next := st.release(t)
		requireSucceeded(t, s.ended(t, op.ID))
		st.good(t, next)
		require.False(t, alive(pid))
		hash = next
	})
	t.Run("a server that starts states its schedules anew", s.schedulesStated)
	t.Run("a node starts from its store alone", func(t *testing.T) {
		pid := st.witness.runs(t, hash)
		node := s.holder(t, st.key.Scope)
		for _, name := range []string{serverName, temporalName, postgresName} {
			s.order(t, "stop", name)
		}
		guardian := s.guardianOf(t, node, st.key.Name)
		kill9(t, s.pid(t, node))
		kill9(t, guardian)
		eventually(t, "the command ended with its guardian", func() bool { return !alive(pid) })
		require.NoError(t, os.Remove(s.configFile(node, st.key.Name, "config.json")))
		require.NotEqual(t, pid, st.witness.runs(t, hash))
		all := st.witness.starts(t)
		fileHash(t, s.configFile(all[len(all)-1].node, st.key.Name, "config.json"), hash) // the agent was away, so either
		st.witness.alone(t)
	})
	t.Run("and takes deliveries when the region is back", func(t *testing.T) {
		for _, name := range []string{postgresName, temporalName, serverName} {
			s.order(t, "start", name)
		}
		waitFor(t, "the server is ready", func(ctx context.Context) error { return answers(ctx, s.doc.API+"/readyz") })
		op, next := st.release(t)
		requireSucceeded(t, s.ended(t, op.ID))
		st.good(t, next)
		s.asleep(t)
	})
}
