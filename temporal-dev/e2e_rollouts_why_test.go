//go:build slow

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// rolloutSaysWhy: preStart commands that do not end, and a check that does not pass, end a rollout by its deadline, and both are
// named, on the replica and in the reason of its end (F74, S48, X8).
func (s *stack) rolloutSaysWhy(t *testing.T) {
	d := newService(t, s, "why", 2, func(p *api.DeploymentPut) {
		p.Startup.Deadline, p.Strategy = 4, api.Strategy{ProgressDeadline: 12, MinHealthyTime: new(0.0)}
	})
	d.put.Env["GREETING"] = "one"
	stable := d.deploy(t)

	d.put.PreStart = [][]string{{"/bin/sleep", "1000"}}
	op := d.greets(t, "two")
	d.newOne(t, "it shows what runs", ids(stable), func(r api.Replica) bool { return r.Phase == fleet.PhasePreStart && r.StartupDeadline != nil })
	d.failsFor(t, op, "its preStart commands")

	d.put.PreStart, d.put.Health = nil, probe()
	d.put.Health.ExpectedStatus = 204
	op = d.greets(t, "three")
	one := d.newOne(t, "its node says why", ids(stable), func(r api.Replica) bool { return r.Failing.Health != nil && r.Failing.Health.Times > 1 })
	require.Equal(t, "status 200 OK, expected 204", one.Failing.Health.Cause)
	require.Equal(t, "GET /health on "+one.Endpoint, one.Failing.Health.Check)
	e, err := d.api.Explain(t.Context(), d.name)
	require.NoError(t, err)
	require.Contains(t, e.Causes[len(e.Causes)-1].Message, "status 200 OK, expected 204", "%+v", e.Causes)
	d.failsFor(t, op, "GET /health on ", "status 200 OK, expected 204")
	d.answering(t, 2, "one")
	d.trialSaysWhy(t)
	d.destroy(t)
}

// trialSaysWhy: so does a trial of what is declared, whose one attempt fails.
func (d *service) trialSaysWhy(t *testing.T) {
	t.Helper()
	put := d.manifest()
	put.Recovery.Attempts = 1
	text, err := json.Marshal(map[string]any{"kind": fleet.KindDeployment, "name": d.name, "spec": put})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "why.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	out, said := newCLI(t, d.stack).call(t, cliFailed, "try", "-f", path)
	require.Contains(t, out, "GET /health on ")
	require.Contains(t, out, "status 200 OK, expected 204")
	require.Contains(t, said, "given_up")
}

// failsFor waits until a rollout has failed by its deadline, which its operation and itself explain.
func (d *service) failsFor(t *testing.T, op api.Operation, why ...string) {
	t.Helper()
	op = d.ended(t, op.ID)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{op.State, op.Reason}, "%+v", op)
	r := d.rollouts(t)[0]
	require.Equal(t, fleet.RolloutFailed, r.State)
	for _, text := range why {
		require.Contains(t, op.Message, text)
		require.Contains(t, r.Message, text)
	}
}
