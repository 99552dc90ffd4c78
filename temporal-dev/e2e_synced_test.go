//go:build slow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// syncs waits until status.synced has the reason, and gives it. Only what runs the latest generation is synced.
func (d *service) syncs(t *testing.T, reason string) (c api.Condition) {
	t.Helper()
	waitFor(t, d.name+" is "+reason, func(ctx context.Context) error {
		o, _, err := d.api.Object(ctx, fleet.DeploymentKey(fleet.DeploymentName(d.name)))
		if err != nil {
			return err
		}
		var status api.DeploymentStatus
		if err := json.Unmarshal(o.Status, &status); err != nil {
			return err
		}
		c = *status.Synced
		if c.Status == fleet.ConditionTrue {
			require.Equal(t, o.Generation, status.ObservedGeneration)
		}
		if c.Reason != reason {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	require.Equal(t, reason == "as_declared", c.Status == fleet.ConditionTrue)
	return c
}

// replicasSynced: its status says of each way to differ from what is declared why, and the command that ends it, which does (X8, X18, F63).
func (s *stack) replicasSynced(t *testing.T) {
	holdfast := newCLI(t, s)
	d := newService(t, s, "synced", 2)
	begin := filepath.Join(d.ledger, "begin")
	d.put.Env["AWAIT"] = begin
	helps := func(c api.Condition, reason string) api.Condition {
		t.Helper()
		holdfast.call(t, cliOK, append(strings.Fields(c.Hint)[1:], "--wait=false")...)
		return d.syncs(t, reason)
	}
	d.put.Env["GREETING"] = "one"
	_, err := s.api.StageDeployment(t.Context(), d.name, d.put, api.Mutation{})
	require.NoError(t, err)
	helps(d.syncs(t, "not_released"), "rolling_out") // its first release
	require.NoError(t, os.WriteFile(begin, nil, 0o600))
	d.syncs(t, "as_declared")

	d.put.Env["CRASH"], d.put.Startup.Deadline, d.put.Strategy = "no licence", 5, api.Strategy{ProgressDeadline: 12}
	require.Equal(t, fleet.OperationFailed, d.ended(t, d.greets(t, "two").ID).State)
	back := d.syncs(t, "rolled_back")
	require.Equal(t, []any{int64(2), "holdfast rollout retry synced"}, []any{back.Revision, back.Hint})
	require.Contains(t, back.Message, "revision 2 was rolled back to revision 1: progress_deadline")
	d.answering(t, 2, "one")
	_, err = s.api.Ask(t.Context(), fleet.DeploymentKey("synced"), "rollback", api.RollbackRequest{}, api.Mutation{})
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "it would release what runs: %v", err)
	_, said := holdfast.call(t, cliConflict, "rollout", "rollback", "synced")
	require.Contains(t, said, "holdfast rollout retry synced")
	for _, args := range [][]string{{"get", "deployment", "synced"}, {"describe", "deployment", "synced"}, {"explain", "deployment", "synced"}} {
		shown, _ := holdfast.call(t, cliOK, args...)
		require.Contains(t, shown, "rolled_back", args)
		require.Equal(t, args[0] != "get", strings.Contains(shown, back.Hint), args)
	}
	holdfast.call(t, cliFailed, strings.Fields(back.Hint)[1:]...) // the same again
	d.syncs(t, "rolled_back")
	require.Equal(t, fleet.RolloutFailed, d.rollouts(t)[1].State)
	delete(d.put.Env, "CRASH")
	d.put.Startup.Deadline, d.put.Strategy = 60, api.Strategy{}
	requireSucceeded(t, d.ended(t, d.greets(t, "three").ID))
	d.syncs(t, "as_declared")

	d.put.Strategy = api.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 50, Pause: true}}}
	op := d.greets(t, "four")
	waitFor(t, "a paused canary says that all are healthy", func(context.Context) error {
		if c := d.syncs(t, "paused"); !strings.Contains(c.Message, "1 of 2 replicas are proven, 2 are healthy") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	d.verb(t, "cancel", api.RolloutRequest{})
	d.syncs(t, "cancelled")
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	retried := helps(d.syncs(t, "cancelled"), "paused")
	helps(retried, "as_declared")
	d.answering(t, 2, "four")

	d.put.Update, d.put.Strategy = fleet.UpdateVersioned, api.Strategy{}
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	requireSucceeded(t, d.ended(t, d.greets(t, "five").ID))
	helps(d.syncs(t, "pending_restart"), "as_declared")
	d.answering(t, 2, "five")

	d.put.State = fleet.StateStopped
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	d.syncs(t, "as_declared")
	d.destroy(t)
}
