//go:build slow

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// drillReaches is how long replicas may take until they are as their deployment says, also after a kill of a node.
const drillReaches = 3 * time.Minute

// reckoning is what an actor finds when nothing of its deployment is under way.
type reckoning struct {
	standing
	last    *api.Rollout // nil without one
	op      string       // the newest converge
	state   fleet.OperationState
	reason  string
	of      int64  // its revision
	stable  string // greeting of what is to run
	waiting bool   // what was released waits for a restart
}

// settle waits until nothing of the deployment is under way, and judges what came of it. A pause is ended, or left to its deadline.
func (a *actor) settle() {
	turned := map[string]bool{}
	var open int64
	var state string
	err := pollEvery(context.WithoutCancel(a.t.Context()), drillEvery, *drillSettle, func(context.Context) error {
		step := 0
		a.row(`SELECT (SELECT count(*) FROM operations WHERE subject = $1 AND state = 'running'), coalesce(max(r.state), ''), coalesce(max(r.step), 0)
			FROM rollouts r WHERE r.deployment = $2 AND r.ended_at IS NULL`, []any{a.subject(), a.name}, &open, &state, &step)
		if now := fmt.Sprint(state, step); state == string(fleet.RolloutPaused) && !turned[now] {
			turned[now] = true
			if a.draw.IntN(4) > 0 {
				_ = a.ask([]string{"resume", "promote"}[a.draw.IntN(2)], api.RolloutRequest{}) // it may have ended
			}
		}
		return unless(open == 0 && state == "")
	})
	if err != nil {
		a.accuse("%s has %d open operations and a rollout %q: %s", a.name, open, state, a.explain())
		return
	}
	a.judge()
}

func (a *actor) explain() string {
	s := a.standing()
	return fmt.Sprintf("%s %s, rollout %+v, awaited %s", s.status.State, s.status.Message, s.status.Rollout, s.status.Awaited)
}

// judge compares what the last release says with what runs and answers.
func (a *actor) judge() {
	calm := a.calm() > drillWatched
	r := a.reckon()
	a.note(a.done, fmt.Sprintf("converge %s %s", r.state, r.reason))
	if r.last != nil {
		a.note(a.done, fmt.Sprintf("rollout %s %s", r.last.State, r.last.Reason))
	}
	if problem := r.untrue(); problem != "" {
		a.accuse("%s: operation %s of revision %d ended %s %s, %s: %+v, %+v", a.name, r.op, r.of, r.state, r.reason, problem, r.last, r.status)
	}
	incomplete := r.last != nil && r.last.Reason == "return_incomplete"
	if calm && r.running() && !incomplete {
		a.alone(r)
	}
	want := r.status.Target
	switch {
	case r.stopped():
		want = 0
	case r.status.State == fleet.DeploymentError:
		return // it has nothing to return to
	}
	var seen error
	err := pollEvery(context.WithoutCancel(a.t.Context()), drillEvery, drillReaches, func(context.Context) error {
		seen = a.exact(want, r.stable)
		return seen
	})
	if err != nil {
		a.accuse("%s, after operation %s ended %s %s: wanted %d of %q: %v", a.name, r.op, r.state, r.reason, want, r.stable, seen)
		return
	}
	a.note(a.done, "judged by what answers")
	if r.started() {
		a.zero.Store(false)
	}
}

func (a *actor) reckon() (r reckoning) {
	r.standing = a.standing()
	a.read("read the rollouts of "+a.name, func(ctx context.Context, c *api.Client) error {
		all, err := c.Rollouts(ctx, a.name, api.Page{Limit: 1})
		if err == nil && len(all.Items) > 0 {
			r.last = &all.Items[0]
		}
		return err
	})
	var state string
	a.row(`SELECT id, state, reason, revision FROM operations WHERE subject = $1 AND kind = 'converge' ORDER BY created_at DESC LIMIT 1`,
		[]any{a.subject()}, &r.op, &state, &r.reason, &r.of)
	a.row(`SELECT coalesce(spec -> 'process' -> 'env' ->> 'GREETING', '') FROM deployment_revisions WHERE deployment = $1 AND revision = $2`,
		[]any{a.name, r.status.Revision}, &r.stable)
	r.state, r.waiting = fleet.OperationState(state), r.status.PendingRestart != nil
	return r
}

// untrue says what is wrong with how the last release ended: a success makes its revision the deployment's own, a failure after a rollout
// leaves the one that it came from.
func (r reckoning) untrue() string {
	rolled := r.last != nil && r.last.ToRevision == r.of
	switch r.state {
	case fleet.OperationSucceeded:
		if r.status.Revision != r.of && !r.waiting {
			return "and it is not the deployment's own"
		}
	case fleet.OperationFailed, fleet.OperationCancelled:
		if rolled && r.last.State != fleet.RolloutFailed && r.last.State != fleet.RolloutCanceled {
			return "and its rollout did not"
		}
		if rolled && r.status.Revision != r.last.FromRevision {
			return "and the stable revision is not the deployment's own"
		}
	case fleet.OperationRunning:
		return "which is no end"
	case fleet.OperationSuperseded, fleet.OperationUnknown:
	}
	return ""
}

// alone wants no replica of another content, at once: the operation has ended.
func (a *actor) alone(r reckoning) {
	var others int64
	a.row(`SELECT count(*) FROM replicas r JOIN deployment_revisions v USING (deployment, revision)
		WHERE r.deployment = $1 AND r.ended_at IS NULL AND v.spec -> 'process' -> 'env' ->> 'GREETING' IS DISTINCT FROM $2`, []any{a.name, r.stable}, &others)
	if others > 0 {
		a.accuse("%s: operation %s ended %s %s, and %d replicas of another content run beside %q", a.name, r.op, r.state, r.reason, others, r.stable)
	}
	a.note(a.done, "judged at once, in a calm")
}

// exact says how the replicas differ from as many as wanted, all routable, which answer with a greeting, and of which exactly one
// process each runs on the machine, and no other.
func (a *actor) exact(want int, greeting string) error {
	var all []api.Replica
	a.read("list the replicas of "+a.name, func(ctx context.Context, c *api.Client) error {
		l, err := c.Replicas(ctx, api.ReplicaQuery{Deployment: a.name})
		all = l.Items
		return err
	})
	if len(all) != want {
		return fmt.Errorf("%d live replicas: %s", len(all), describe(all))
	}
	now := map[int]fleet.ReplicaID{}
	for _, r := range all {
		if !r.Routable {
			return fmt.Errorf("%s is not routable: %s", r.ID, describe(all))
		}
		if said, err := greetingAt(r); err != nil || said["greeting"] != greeting || said["replica"] != string(r.ID) {
			return fmt.Errorf("%s answers %v: %w", r.ID, said, errors.Join(err, errNotYet))
		}
		now[r.PID] = r.ID
	}
	runs, err := a.processes()
	if err != nil {
		return err
	}
	for pid, id := range runs {
		if now[pid] != id {
			return fmt.Errorf("process %d runs, of replica %s: %s", pid, id, describe(all))
		}
	}
	if len(runs) != want {
		return fmt.Errorf("processes %v: %s", runs, describe(all))
	}
	return nil
}

func greetingAt(r api.Replica) (said map[string]string, err error) {
	out, err := (&http.Client{Timeout: drillCall}).Get("http://" + r.Endpoint + "/") //nolint:noctx // the client has a limit
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return said, json.NewDecoder(out.Body).Decode(&said)
}

// processes are those of the deployment that run, of all that ever did, with the replica that each is.
func (a *actor) processes() (map[int]fleet.ReplicaID, error) {
	files, err := filepath.Glob(filepath.Join(a.d.ledger, "*.pid"))
	if err != nil {
		return nil, err
	}
	out := map[int]fleet.ReplicaID{}
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".pid"))
		if err != nil {
			return nil, err
		}
		id, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		// Another program may have the number by now. Of one that has ended there is no environment.
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if slices.Contains(strings.Split(string(env), "\x00"), "HOLDFAST_REPLICA="+string(id)) {
			out[pid] = fleet.ReplicaID(id)
		}
	}
	return out, nil
}
