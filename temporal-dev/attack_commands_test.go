//go:build slow

package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
)

// TestAttackCommands: who may write to Temporal, and nothing else, has nodes do only what the region
// asked for. X10, X13, X21, N104
func TestAttackCommands(t *testing.T) {
	t.Parallel()
	s := startWith(t, 1, isolated)
	const node, peer = "plant-1-a", "plant-1-b"
	st := newStory(t, s, "plant-1", "press-7")
	a := newTemporalWriter(t, s)

	t.Run("a command of one's own, at a foreign URL, is refused", func(t *testing.T) { a.foreign(t, st, node) })
	t.Run("every activity of a node is refused without a signature", func(t *testing.T) { a.unsigned(t, st, node) })
	t.Run("a true command that was altered is refused", func(t *testing.T) { a.altered(t, st, node, peer) })
	t.Run("a true command has no effect a second time", func(t *testing.T) { a.replayed(t, st, node) })
	t.Run("a recorded hand-over or take-over has no effect a second time, also after a restart", func(t *testing.T) {
		a.replaysMoves(t)
	})
	t.Run("a command that another key signed is refused", func(t *testing.T) {
		_, other, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		cmd := a.malicious(t, st, node)
		cmd.Signed = keys.SignCommand(other, node, cmd, time.Now().Add(time.Minute))
		a.refuses(t, node, "RefreshDeployment", "bad_signature", cmd)
	})
	t.Run("the region goes on by a new key, and a stolen one is void", func(t *testing.T) { a.rotated(t, st, node) })
	require.Zero(t, a.calls.Load(), "the foreign server was called")
	require.NoFileExists(t, a.marker)
}

// temporalWriter has a client of Temporal, and what it makes nodes run leaves a marker.
type temporalWriter struct {
	*stack
	client client.Client
	away   *httptest.Server // that nobody may call
	calls  atomic.Int64
	marker string
}

func newTemporalWriter(t *testing.T, s *stack) *temporalWriter {
	t.Helper()
	a := &temporalWriter{stack: s, marker: filepath.Join(ground(t), "it-ran")}
	a.away = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.calls.Add(1)
		if strings.HasSuffix(r.URL.Path, "/run") {
			_, _ = w.Write(a.run())
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(a.away.Close)
	a.client = s.orders(t)
	return a
}

// orders has a client of Temporal whose workflow Order gives any activity to any node.
func (s *stack) orders(t *testing.T) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.doc.Temporal, Namespace: s.doc.Namespace, Identity: starter, Logger: noLog{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := worker.New(c, ordersQueue, worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, node, activity string, in any) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: "node." + node, StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		})
		return workflow.ExecuteActivity(ctx, activity, in).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "Order"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return c
}

const ordersQueue = "somebody"

// command gives a node an activity, and waits for what came of it.
// A node that idles asks for none, and only the region can wake it: whoever attacks waits until it does.
func (s *stack) command(t *testing.T, c client.Client, node, activity string, in any) error {
	t.Helper()
	_, err := s.pg.Exec(t.Context(), `INSERT INTO wakes (node, number, at) VALUES ($1, 1, clock_timestamp())
		ON CONFLICT (node) DO UPDATE SET number = wakes.number + 1, at = excluded.at`, node)
	require.NoError(t, err)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: ordersQueue}, "Order", node, activity, in)
	require.NoError(t, err)
	return run.Get(t.Context(), nil)
}

// refuses gives a node an activity that it refuses, counts and lists.
func (a *temporalWriter) refuses(t *testing.T, node, activity, reason string, in any) {
	t.Helper()
	require.ErrorContains(t, a.command(t, a.client, node, activity, in), reason, activity)
	a.listed(t, node, "node", "?", reason, "")
}

func (a *temporalWriter) run() []byte {
	return fmt.Appendf(nil, `{"command":["/bin/sh","-c","touch %s; exec sleep 1000"]}`, a.marker)
}

// malicious is a command as the region would give it, but for its content.
func (a *temporalWriter) malicious(t *testing.T, st *story, node string) fleet.RefreshDeploymentCommand {
	t.Helper()
	cmd := a.newest(t, st, node)
	cmd.CentralFetchBaseURL, cmd.Signed = a.away.URL, fleet.Signature{}
	cmd.Revision.Version.Revision += 100
	cmd.Revision.Content = fleet.Content{Kind: fleet.ContentJSON, Hash: fleet.Hash(hashOf([]byte("{}"))), Size: 2}
	cmd.Revision.RunHash = fleet.Hash(hashOf(a.run()))
	return cmd
}

// newest is what the node was last told of an instance, as the history has it.
func (a *temporalWriter) newest(t *testing.T, st *story, node string) (cmd fleet.RefreshDeploymentCommand) {
	t.Helper()
	for _, run := range a.histories(t) {
		for _, e := range run.events {
			scheduled := e.GetActivityTaskScheduledEventAttributes()
			if run.id != st.entity() || scheduled.GetActivityType().GetName() != "RefreshDeployment" || scheduled.GetTaskQueue().GetName() != "node."+node {
				continue
			}
			var c fleet.RefreshDeploymentCommand
			require.NoError(t, json.Unmarshal(scheduled.GetInput().GetPayloads()[0].GetData(), &c))
			if !cmd.Revision.Version.Newer(c.Revision.Version) {
				cmd = c
			}
		}
	}
	require.NotEmpty(t, cmd.DeploymentID)
	return cmd
}

func (a *temporalWriter) foreign(t *testing.T, st *story, node string) {
	cmd := a.malicious(t, st, node)
	a.refuses(t, node, "RefreshDeployment", "unsigned", cmd)
	cmd.Instance = "new"
	a.refuses(t, node, "RefreshDeployment", "unsigned", cmd)
	waitFor(t, "it is counted", func(ctx context.Context) error {
		n, err := a.api.Node(ctx, node)
		if err == nil && n.Counters["commands_refused"] == 0 {
			err = errNotYet
		}
		return err
	})
}

func (a *temporalWriter) unsigned(t *testing.T, st *story, node string) {
	holder := a.holder(t, "plant-1")
	cmd := a.newest(t, st, node)
	a.refuses(t, node, "RefreshBatch", "unsigned", fleet.BatchCommand{
		BatchID: fleet.BatchID(cmd.DeploymentID), Site: "plant-1", Role: cmd.Role, Epoch: cmd.Epoch + 1, Count: 1, CentralFetchBaseURL: a.away.URL, FetchToken: cmd.FetchToken,
	})
	a.refuses(t, node, "Reconcile", "unsigned", fleet.ReconcileCommand{
		ID: "1", Site: "plant-1", Role: cmd.Role, Epoch: cmd.Epoch + 1, BaseURL: a.away.URL, Token: cmd.FetchToken,
	})
	a.refuses(t, node, "HandOver", "unsigned", fleet.HandOverCommand{Site: "plant-1"})
	a.refuses(t, node, "TakeOver", "unsigned", fleet.TakeOverCommand{Site: "plant-1", Forced: true})
	require.Equal(t, holder, a.holder(t, "plant-1"))
}

func (a *temporalWriter) altered(t *testing.T, st *story, node, peer string) {
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	for name, change := range map[string]func(*fleet.RefreshDeploymentCommand){
		"URL":      func(c *fleet.RefreshDeploymentCommand) { c.CentralFetchBaseURL = a.away.URL },
		"hash":     func(c *fleet.RefreshDeploymentCommand) { c.Revision.Content.Hash = fleet.Hash(hashOf([]byte("{}"))) },
		"run hash": func(c *fleet.RefreshDeploymentCommand) { c.Revision.RunHash = fleet.Hash(hashOf(a.run())) },
		"epoch":    func(c *fleet.RefreshDeploymentCommand) { c.Epoch++ },
		"revision": func(c *fleet.RefreshDeploymentCommand) { c.Revision.Version.Revision++ },
		"instance": func(c *fleet.RefreshDeploymentCommand) { c.Instance = "press-8" },
		"expiry":   func(c *fleet.RefreshDeploymentCommand) { c.Signed.Expires = c.Signed.Expires.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := a.newest(t, st, node)
			change(&cmd)
			a.refuses(t, node, "RefreshDeployment", "bad_signature", cmd)
		})
	}
	a.refuses(t, peer, "RefreshDeployment", "other_node", a.newest(t, st, node))
	st.good(t, hash)
}

func (a *temporalWriter) replayed(t *testing.T, st *story, node string) {
	op, _ := st.release(t) // the newest may have expired by now
	requireSucceeded(t, st.ended(t, op.ID))
	old := a.newest(t, st, node)
	a.refuses(t, node, "RefreshDeployment", "replayed", old)
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	a.refuses(t, node, "RefreshDeployment", "replayed", old)
	a.refuses(t, node, "RefreshDeployment", "replayed", a.newest(t, st, node))
	a.kill(t, node)
	a.holder(t, "plant-1")
	require.Error(t, a.command(t, a.client, node, "RefreshDeployment", old), "a number below what it holds, or a right that has passed")
	st.good(t, hash)
}

// replaysMoves moves the lease there and back, and then repeats to each node, restarted, what it was asked.
func (a *temporalWriter) replaysMoves(t *testing.T) {
	const site = "plant-1"
	for _, node := range pair(site) { // one may take the lease by itself, before its task is there
		for _, kind := range []string{"HandOver", "TakeOver"} {
			for moves := 0; a.recorded(t, "site."+site, node, kind) == nil; moves++ {
				require.Less(t, moves, 10, "%s carries out no %s", node, kind)
				a.failover(t, site, a.standby(t, site))
			}
		}
	}
	for range 2 {
		holder, node := a.holder(t, site), a.standby(t, site)
		epoch := a.epoch(t, site)
		a.kill(t, node)
		for _, kind := range []string{"HandOver", "TakeOver"} {
			in := a.recorded(t, "site."+site, node, kind)
			require.NotEmpty(t, in, "%s of %s", kind, node)
			a.refuses(t, node, kind, "replayed", in)
		}
		require.Equal(t, holder, a.holder(t, site))
		require.Equal(t, epoch, a.epoch(t, site))
		a.failover(t, site, node)
	}
}

// epoch is the one at which a site's lease was granted last, as the region knows it.
func (s *stack) epoch(t *testing.T, site string) (epoch int64) {
	t.Helper()
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT epoch FROM site_leases WHERE site = $1`, site).Scan(&epoch))
	return epoch
}

// recorded is the input of the last activity of a kind that a workflow gave to a node and that the node completed, nil
// for none: only what it carried out can be repeated.
func (a *temporalWriter) recorded(t *testing.T, workflow, node, kind string) (in json.RawMessage) {
	t.Helper()
	var at time.Time
	for _, run := range a.histories(t) {
		completed := map[int64]bool{}
		for _, e := range run.events {
			completed[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()] = true
		}
		for _, e := range run.events {
			scheduled := e.GetActivityTaskScheduledEventAttributes()
			if run.id != workflow || !completed[e.GetEventId()] || scheduled.GetActivityType().GetName() != kind || scheduled.GetTaskQueue().GetName() != "node."+node {
				continue
			}
			if when := e.GetEventTime().AsTime(); when.After(at) {
				at, in = when, scheduled.GetInput().GetPayloads()[0].GetData()
			}
		}
	}
	return in
}

// signingKey is the key by which the region signs now; only who reads its database has it.
func (s *stack) signingKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	var seed []byte
	require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT seed FROM signing_keys WHERE use_at <= now() ORDER BY number DESC LIMIT 1`).Scan(&seed))
	return ed25519.NewKeyFromSeed(seed)
}

func (a *temporalWriter) rotated(t *testing.T, st *story, node string) {
	operator := newCLI(t, a.stack)
	rotate := func(args ...string) {
		operator.call(t, cliOK, append([]string{"admin", "rotate-signing-key", "--database-url", a.database, "--region", regionName}, args...)...)
	}
	delivers := func() {
		op, hash := st.release(t)
		requireSucceeded(t, st.ended(t, op.ID))
		st.good(t, hash)
	}
	first := a.signingKey(t)
	rotate("--after", "2s")
	delivers()
	waitFor(t, "the new key is in use", func(context.Context) error {
		if a.signingKey(t).Equal(first) {
			return errNotYet
		}
		return nil
	})
	delivers()
	second := a.signingKey(t)
	rotate("--stolen")
	delivers()
	waitFor(t, "the node learned that the old keys are void", func(context.Context) error {
		key, err := keys.Load(filepath.Join(a.data, "nodes", node, "node.key"))
		if err == nil && key.CommandKeys()[0].Equal(second.Public()) {
			return errNotYet
		}
		return err
	})
	for _, stolen := range []ed25519.PrivateKey{first, second} {
		cmd := a.malicious(t, st, node)
		cmd.Signed = keys.SignCommand(stolen, fleet.NodeName(node), cmd, time.Now().Add(time.Minute))
		a.refuses(t, node, "RefreshDeployment", "bad_signature", cmd)
		for _, form := range []string{fmt.Sprintf("%x", stolen.Seed()), string(stolen.Seed())} {
			require.Error(t, a.logSays(serverName, form), "the key is in no log")
		}
	}
}
