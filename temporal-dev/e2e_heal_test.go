//go:build slow

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// reported waits for a comparison of a node of which the region heard this.
func (s *stack) reported(t *testing.T, node, member, value string) {
	t.Helper()
	waitFor(t, "a comparison of "+node+" with "+member+" "+value, func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM reconciles WHERE node = $1 AND report ->> $2 = $3`, node, member, value)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
}

// pairEqual waits until both nodes of a site hold the very same, by name, number and hash.
func (s *stack) pairEqual(t *testing.T, site string) {
	t.Helper()
	waitFor(t, "the nodes of "+site+" hold the same", func(ctx context.Context) error {
		var all [2]map[string]fleet.Version
		for i, node := range pair(site) {
			var err error
			if all[i], err = s.stores.currents(ctx, node); err != nil {
				return err
			}
		}
		if !maps.Equal(all[0], all[1]) {
			return fmt.Errorf("%v and %v", all[0], all[1])
		}
		return nil
	})
}

// turns makes many changes of many instances, some at a time, none of which waits for the
// standby. What overtakes another is an end like any other.
func (s *stack) turns(t *testing.T, site string, n int) {
	t.Helper()
	const instances, crowd = 25, 12
	var group errgroup.Group
	group.SetLimit(crowd)
	for i := range n {
		key := instanceKey(site, fmt.Sprintf("many-%d", i%instances))
		group.Go(func() error {
			ctx, m := t.Context(), api.Mutation{}
			var out api.Accepted
			var err error
			switch i / instances % 5 {
			case 2:
				out, err = s.api.Disable(ctx, key, api.ActionRequest{}, m)
			case 4:
				out, err = s.api.Delete(ctx, key, m)
			default:
				config := fmt.Appendf(nil, `{"i":%d}`, i)
				out, err = s.api.PutInstance(ctx, key, api.InstancePut{Config: config, Durability: fleet.DurabilityAsync}, m)
			}
			for err == nil && out.Operation != nil && !out.Operation.State.Ended() {
				var op api.Operation
				if op, err = s.api.Operation(ctx, out.Operation.ID, testPatience); err == nil {
					out.Operation = &op
				}
			}
			if kind := fleet.KindOf(err); kind == fleet.NotFound || kind == fleet.IllegalState { // it is being deleted
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}

// N54 to N57, N59, N93, N101, X3
func (s *stack) heals(t *testing.T) {
	together(t, []part{
		{"a standby that was off during 500 changes has them all, and nothing else is touched", func(t *testing.T) {
			const site = "plant-6"
			s.watchOrder(t, pair(site)...)
			witness := newStory(t, s, site, "witness")
			hash := witness.witness.starts(t)[0].hash
			away := s.standby(t, site)
			s.order(t, "stop", away)
			s.turns(t, site, 500)
			s.settledBut(t, site)
			deliveries, err := s.count(t.Context(), `SELECT count(*) FROM deliveries WHERE site = $1`, site)
			require.NoError(t, err)
			s.order(t, "start", away)
			s.pairEqual(t, site)
			witness.good(t, hash)
			require.Len(t, witness.witness.starts(t), 1, "nothing healthy was restarted")
			again, err := s.count(t.Context(), `SELECT count(*) FROM deliveries WHERE site = $1`, site)
			require.NoError(t, err)
			require.Equal(t, deliveries, again, "nobody delivered again")
			s.owesNothing(t, site)
		}},
		{"what was deleted while a node had an older store is dropped by its tombstone", func(t *testing.T) {
			const site = "plant-7"
			node := s.standby(t, site)
			s.watchOrder(t, peerOf(site, node))
			gone, stays := newStory(t, s, site, "gone"), newStory(t, s, site, "stays")
			s.order(t, "stop", node)
			older := s.copyStore(t, node)
			s.order(t, "start", node)
			op := s.change(t, "delete", func(ctx context.Context, m api.Mutation) (api.Accepted, error) { return s.api.Delete(ctx, gone.key, m) })
			requireSucceeded(t, s.ended(t, op.ID))
			s.order(t, "stop", node)
			s.putStore(t, node, older)
			s.order(t, "start", node)
			s.pairEqual(t, site)
			got, err := s.stores.current(t.Context(), node, "gone")
			require.NoError(t, err)
			require.Equal(t, "delete", got.action)
			s.reported(t, node, "dropped", "1")
			stays.good(t, stays.witness.starts(t)[0].hash)
			t.Run("and a file that somebody changed is restored when that is asked for", stays.fileRestored)
		}},
	})
}

// fileRestored changes a file so that neither its size nor its times tell.
func (st *story) fileRestored(t *testing.T) {
	hash := st.witness.starts(t)[0].hash
	node, err := st.holds(t.Context(), st.key.Scope)
	require.NoError(t, err)
	file := st.configFile(node, st.key.Name, "config.json")
	delivered, err := os.ReadFile(file)
	require.NoError(t, err)
	before, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(delivered, []byte(`"number":1`), []byte(`"number":2`), 1), before.Mode()))
	require.NoError(t, os.Chtimes(file, before.ModTime(), before.ModTime()))
	require.Error(t, fileIs(file, hash))
	op := st.change(t, "reconcile", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return st.api.ReconcileNode(ctx, node, m)
	})
	requireSucceeded(t, st.ended(t, op.ID))
	require.NoError(t, fileIs(file, hash))
	st.reported(t, node, "restored", "1")
	require.Len(t, st.witness.starts(t), 1, "what runs is not restarted")
}

// owesNothing waits until both nodes of a site have been brought all that they missed.
func (s *stack) owesNothing(t *testing.T, site string) {
	t.Helper()
	waitFor(t, "nothing is owed at "+site, func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM owed WHERE site = $1`, site)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d", n)
		}
		return err
	})
}

// copyStore keeps the files of a stopped node's store.
func (s *stack) copyStore(t *testing.T, node string) string {
	t.Helper()
	kept := t.TempDir()
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(s.data, "nodes", node)+"/.", kept).Run())
	return kept
}

// putStore gives a stopped node the files of its store back as they were.
func (s *stack) putStore(t *testing.T, node, kept string) {
	t.Helper()
	s.stores.forget(node)
	dir := filepath.Join(s.data, "nodes", node)
	old, err := filepath.Glob(filepath.Join(dir, "node.db*"))
	require.NoError(t, err)
	for _, path := range old {
		require.NoError(t, os.Remove(path))
	}
	files, err := filepath.Glob(filepath.Join(kept, "node.db*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.NoError(t, exec.Command("cp", append([]string{"-a"}, append(files, dir)...)...).Run())
}

// backup keeps the region's database as it is, and gives what puts it back.
func (s *stack) backup(t *testing.T) (restore func()) {
	t.Helper()
	kept, live := filepath.Join(t.TempDir(), "backup"), filepath.Join(s.data, "postgres")
	stopped := func(do func()) {
		s.order(t, "stop", serverName)
		s.order(t, "stop", postgresName)
		do()
		s.order(t, "start", postgresName)
		s.order(t, "start", serverName)
	}
	stopped(func() { require.NoError(t, exec.Command("cp", "-a", live, kept).Run()) })
	return func() {
		stopped(func() {
			require.NoError(t, os.RemoveAll(live))
			require.NoError(t, exec.Command("cp", "-a", kept, live).Run())
		})
	}
}

// N86, X3, X28: a region that is restored from an older backup refuses to go on until its era
// is raised. Then nothing is taken from the nodes: what they hold in a higher number is
// numbered anew, and what the region does not know waits for an operator.
func TestE2ERestoredRegion(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	const site = "plant-1"
	known := newStory(t, s, site, "known")
	restore := s.backup(t)
	_, newer := known.release(t)
	known.good(t, newer)
	later := newStory(t, s, site, "later")
	hash := later.witness.starts(t)[0].hash
	compare := func(when string) {
		for _, node := range pair(site) {
			s.closed(t, s.door(t, when+"-"+node, "ReconcileNode", fmt.Sprintf(`{"node":%q}`, node), 0))
		}
	}
	compare("before")

	restore()
	// A node that starts says what it holds, and is refused.
	s.order(t, "stop", "plant-1-b")
	s.order(t, "start", "plant-1-b")
	waitFor(t, "the region refuses the node", func(context.Context) error { return s.logSays("plant-1-b", "refused this node's start") })
	compare("after")
	s.reported(t, "plant-1-a", "refused", "set_older")
	later.witness.runs(t, hash)

	_, err := postgres.RaiseEra(t.Context(), s.database, "local")
	require.NoError(t, err)
	for _, node := range pair(site) {
		s.order(t, "stop", node)
		s.order(t, "start", node)
	}
	waitFor(t, "both nodes list what the region never knew", func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM orphans WHERE name = 'later' AND reason = 'never_known'`)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d of 2", n)
		}
		return err
	})
	for _, node := range pair(site) {
		got, err := s.stores.current(t.Context(), node, "later")
		require.NoError(t, err)
		require.Equal(t, "deploy", got.action, "it stays on %s", node)
	}
	later.witness.runs(t, hash)
	later.witness.alone(t)
	waitFor(t, "what the region knows is numbered anew", func(ctx context.Context) error {
		for _, node := range pair(site) {
			got, err := s.stores.current(ctx, node, "known")
			if err != nil {
				return err
			}
			if got.Era != 2 {
				return fmt.Errorf("%s holds %v", node, got.Version)
			}
		}
		return nil
	})
	known.witness.alone(t)
}

// logSays looks for a word in the log of a child.
func (s *stack) logSays(name, word string) error {
	text, err := os.ReadFile(filepath.Join(s.data, "logs", name+".log"))
	if err == nil && !strings.Contains(string(text), word) {
		err = errNotYet
	}
	return err
}
