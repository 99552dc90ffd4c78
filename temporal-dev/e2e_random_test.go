//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// seedVariable repeats a random sequence that failed; without it each run draws another.
	seedVariable = "HOLDFAST_E2E_SEED"
	randomSteps  = 25
	// randomHeals is how long a site differs at most once all is up again, on a machine that has
	// time; e2ePatience is for one that has not.
	randomHeals = 45 * time.Second
	randomSite  = "plant-1"
	randomNames = 6 // two of them run a command
	randomFleet = "line-a"
)

// randomKinds are the steps; one that stands here twice comes twice as often.
var randomKinds = []string{
	"put", "put", "put", "put", "put", "delete", "delete", "deploy", "disable", "enable", "template", "rollback",
	"fleet", "fleet", "fleet", "cancel fleet", "undo fleet", "wait", "wait", "wait",
	"stop", "start", "kill", "pause", "resume", "kill server",
}

// random is one random sequence. What it draws depends on its seed and nothing else.
type random struct {
	*stack
	draw      *mathrand.Rand
	witnesses map[string]*witness
	away      map[string]string // stopped or paused nodes
	body      int               // numbers contents
	last      fleet.OperationID
}

// N54 to N57, N59, N63, N98, N99, N101, X3, X28: whatever is asked and whatever dies, in the
// end both nodes hold what the region expects. TestHeals does the same with thousands of
// sequences and simulated links.
func TestE2EHealsRandom(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	t.Logf("repeat it with %s=%d", seedVariable, seed)
	r := &random{
		stack: startStack(t, 1), draw: mathrand.New(mathrand.NewPCG(seed, 0)), // it has to be repeatable
		witnesses: map[string]*witness{}, away: map[string]string{},
	}
	r.watchOrder(t, pair(randomSite)...)
	for i := range 2 {
		r.witnesses[randomName(i)] = newWitness(t)
	}
	r.ask(t, "template", 0, "")
	for i := range randomNames {
		r.ask(t, "put", i, randomName(i))
	}
	for range randomSteps {
		kind, i, node := randomKinds[r.draw.IntN(len(randomKinds))], r.draw.IntN(randomNames), pair(randomSite)[r.draw.IntN(2)]
		t.Logf("%s %s %s", kind, randomName(i), node)
		r.step(t, kind, i, node)
	}
	for _, node := range pair(randomSite) {
		r.step(t, "start", 0, node)
		r.step(t, "resume", 0, node)
	}
	r.healed(t)
}

func randomSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(seedVariable)
	if text == "" {
		return mathrand.Uint64() // each run another
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, seedVariable)
	return seed
}

func randomName(i int) string { return fmt.Sprintf("press-%d", i) }

func (r *random) step(t *testing.T, kind string, i int, node string) {
	t.Helper()
	switch kind {
	case "stop", "start", "kill", "pause", "resume":
		r.machine(t, kind, node)
	case "kill server":
		kill9(t, r.pid(t, serverName))
	case "wait":
		if r.last != "" { // for a while only: it may have to wait for a node that is away
			_, _ = r.api.Operation(t.Context(), string(r.last), 2*time.Second)
		}
	default:
		r.ask(t, kind, i, randomName(i))
	}
}

// machine does to a node what can be done to it as it stands.
func (r *random) machine(t *testing.T, kind, node string) {
	t.Helper()
	switch away := r.away[node]; {
	case kind == "stop" && away == "":
		r.order(t, "stop", node)
		r.away[node] = "stopped"
	case kind == "start" && away == "stopped":
		r.order(t, "start", node)
		delete(r.away, node)
	case kind == "kill" && away != "stopped":
		kill9(t, r.pid(t, node))
		delete(r.away, node) // another one is started
	case kind == "pause" && away == "":
		r.signal(t, node, syscall.SIGSTOP)
		r.away[node] = "paused"
	case kind == "resume" && away == "paused":
		r.signal(t, node, syscall.SIGCONT)
		delete(r.away, node)
	}
}

// ask is what an operator does. That something is not there, or being deleted, is an answer.
func (r *random) ask(t *testing.T, kind string, i int, name string) {
	t.Helper()
	key, m := instanceKey(randomSite, name), api.Mutation{IdempotencyKey: rand.Text()}
	r.body++
	var out api.Accepted
	err := insist(t, kind, func(ctx context.Context) (err error) {
		switch kind {
		case "put":
			out, err = r.api.PutInstance(ctx, key, r.spec(i), m)
		case "delete":
			out, err = r.api.Delete(ctx, key, m)
		case "deploy":
			out, err = r.api.Deploy(ctx, key, api.ActionRequest{}, m)
		case "disable":
			out, err = r.api.Disable(ctx, key, api.ActionRequest{}, m)
		case "enable":
			out, err = r.api.Enable(ctx, key, api.ActionRequest{}, m)
		case "rollback":
			out, err = r.api.Rollback(ctx, key, api.RollbackRequest{}, m)
		case "template":
			_, err = r.api.PutTemplate(ctx, "base", api.TemplatePut{Base: fmt.Appendf(nil, `{"base":%d}`, r.body)}, m)
		case "fleet":
			out, err = r.api.PutFleet(ctx, randomFleet, r.fleetPut(i), m)
		case "cancel fleet":
			out, err = r.api.TurnFleet(ctx, randomFleet, "cancel", api.ActionRequest{}, m)
		case "undo fleet":
			out, err = r.api.TurnFleet(ctx, randomFleet, "rollback", api.ActionRequest{}, m)
		}
		return err
	})
	if out.Operation != nil {
		r.last = fleet.OperationID(out.Operation.ID)
	}
	answers := []fleet.Kind{fleet.NotFound, fleet.IllegalState, fleet.Conflict, fleet.Gone}
	if kind == "fleet" {
		answers = append(answers, fleet.Invalid) // there is no instance to select
	}
	require.True(t, err == nil || slices.Contains(answers, fleet.KindOf(err)), "%s %s: %v", kind, name, err)
}

// spec is an instance: some take the template, some run a command, half are of the line.
func (r *random) spec(i int) api.InstancePut {
	put := api.InstancePut{Labels: map[string]string{"line": string("ab"[i%2])}}
	if i%3 == 0 {
		put.Template, put.Overrides = "base", fmt.Appendf(nil, `{"n":%d}`, r.body)
	} else {
		put.Config = fmt.Appendf(nil, `{"n":%d}`, r.body)
	}
	if w := r.witnesses[randomName(i)]; w != nil {
		put.Run = w.run(0)
	}
	if i == randomNames-1 {
		put.Durability = fleet.DurabilityAsync
	}
	return put
}

// fleetPut changes the instances of the line, or those of the template, in two waves.
func (r *random) fleetPut(i int) api.FleetPut {
	put := api.FleetPut{ErrorThreshold: 100, BatchSize: 2, Waves: []fleet.FleetWave{{Percent: 50}}, MinRunSeconds: new(int64)}
	if i%2 == 0 {
		put.Change.Patch = fmt.Appendf(nil, `{"fleet":%d}`, r.body)
		put.Selector.Labels = map[string]string{"line": "a"}
	} else {
		put.Change.Template = "base"
	}
	return put
}
