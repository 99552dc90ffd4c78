//go:build slow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// drillPause is the longest between two acts of an actor that does not wait for what it asked.
const drillPause = 6 * time.Second

// actor is the only one who asks anything of its deployment, so it knows what must come of it.
type actor struct {
	*drill
	cast
	d    *service
	draw *mathrand.Rand
	n    int         // of the content
	zero atomic.Bool // all its replicas may end by what it asked
	// acknowledged are the operations that it was told of; doors are the runs of doors with theirs, "" for a refused one.
	acknowledged map[string]bool
	doors        map[string]string
}

// standing is what an actor reads of its deployment.
type standing struct {
	spec   fleet.DeploymentSpec
	status api.DeploymentStatus
}

func (s standing) started() bool { return s.spec.State != fleet.StateStopped }
func (s standing) stopped() bool { return !s.started() }
func (s standing) running() bool { return s.started() && s.status.State == fleet.DeploymentRunning }
func (s standing) rolls() bool   { return s.status.Rollout != nil }
func (s standing) idle() bool    { return s.running() && !s.rolls() }

// drillAct is something to ask, how often, when, and whether it writes a revision: exactly one, or at most one.
type drillAct struct {
	name   string
	weight int
	may    func(standing) bool
	writes [2]int64
	do     func(*actor, standing) error
}

var (
	writesNone, writesOne, writesMaybe = [2]int64{0, 0}, [2]int64{1, 1}, [2]int64{0, 1}

	drillActs = []drillAct{
		{"release", 30, standing.started, writesOne, func(a *actor, _ standing) error { return a.release(a.good()) }},
		{"release through a door", 8, standing.started, writesOne, func(a *actor, _ standing) error { return a.releaseByDoor() }},
		{"bad release", 14, standing.running, writesOne, func(a *actor, _ standing) error { return a.release(a.bad()) }},
		{"stop", 3, standing.started, writesOne, func(a *actor, _ standing) error { return a.stop() }},
		{"start", 60, standing.stopped, writesOne, func(a *actor, _ standing) error { return a.release(a.good()) }},
		{"scale", 8, standing.started, writesNone, func(a *actor, s standing) error { return a.scale(s) }},
		{"restart", 5, standing.running, writesNone, func(a *actor, _ standing) error { return a.restart(api.RestartRolling) }},
		{"restart --stop-first", 4, standing.running, writesNone, func(a *actor, _ standing) error { return a.restart(api.RestartStopFirst) }},
		{"rollback", 6, standing.running, writesMaybe, func(a *actor, s standing) error { return a.rollback(s) }},
		{"retry", 6, standing.idle, writesNone, turning("retry")},
		{"pause", 8, standing.rolls, writesNone, turning("pause")},
		{"resume", 16, standing.rolls, writesNone, turning("resume")},
		{"promote", 8, standing.rolls, writesNone, turning("promote")},
		{"cancel", 12, standing.rolls, writesNone, turning("cancel")},
	}
)

func turning(verb string) func(*actor, standing) error {
	return func(a *actor, s standing) error {
		var in any = api.RolloutRequest{}
		named := map[string]any{"deployment": a.name, "verb": verb}
		switch {
		case verb == "retry":
			in = api.ActionRequest{}
		case a.draw.IntN(2) == 0: // named, it must not change another one
			in, named["rollout"] = api.RolloutRequest{Rollout: s.status.Rollout.Number}, s.status.Rollout.Number
		}
		if a.draw.IntN(3) == 0 {
			return a.door("RolloutDeployment", named)
		}
		return a.ask(verb, in)
	}
}

// begin releases what runs first.
func (a *actor) begin() {
	if err := a.release(a.good()); err != nil {
		a.accuse("begin %s: %v", a.name, err)
		return
	}
	a.settle()
}

func (a *actor) run(ctx context.Context) {
	for pause.For(ctx, time.Duration(a.draw.Int64N(int64(time.Second)))) == nil {
		a.act()
		if a.draw.IntN(2) == 0 {
			a.settle()
			continue
		}
		_ = pause.For(ctx, time.Duration(a.draw.Int64N(int64(drillPause)))) // the loop looks at the context
	}
}

// finish has everything end well: each failure until now may have left the deployment with anything.
func (a *actor) finish() {
	a.settle()
	a.d.put.Update, a.d.put.Startup.Deadline, a.d.put.Strategy.ProgressDeadline = "", 60, 300
	a.d.put.Strategy.Type, a.d.put.Strategy.Steps = fleet.StrategyRolling, nil
	if err := a.release(a.good()); err != nil {
		a.accuse("finish %s: %v", a.name, err)
		return
	}
	a.settle()
	if s := a.standing(); !s.running() || s.spec.Process.Env["GREETING"] != a.greeting() {
		a.accuse("%s is %s in the end: %+v", a.name, s.status.State, s.status)
	}
}

// act asks for something, and wants as many revisions to come of it as it writes, however often it was repeated.
func (a *actor) act() {
	s := a.standing()
	var all []drillAct
	for _, x := range drillActs {
		if x.may(s) {
			all = append(all, slices.Repeat([]drillAct{x}, x.weight)...)
		}
	}
	x := all[a.draw.IntN(len(all))]
	before := a.newest()
	err := x.do(a, s)
	switch kind := fleet.KindOf(err); {
	case err == nil:
		a.note(a.done, "act "+x.name)
	case kind == fleet.IllegalState || kind == fleet.NotFound || kind == fleet.Conflict: // it came too late
		a.note(a.done, "act "+x.name+": refused as "+string(kind))
		x.writes = writesMaybe
	default:
		a.accuse("%s %s: %v", x.name, a.name, err)
		return
	}
	least, most := x.writes[0], x.writes[1]
	if a.d.put.Update != "" { // one that is applied, and one that waits
		most *= 2
	}
	if n := a.newest() - before; n < least || n > most {
		a.accuse("%s %s wrote %d revisions, should be %d to %d (%v)", x.name, a.name, n, least, most, err)
	}
}

func (a *actor) greeting() string { return fmt.Sprintf("%s-%d", a.name, a.n) }

// good is the next content, which runs.
func (a *actor) good() *api.DeploymentPut {
	a.n++
	p := &a.d.put
	p.Env["GREETING"], p.State = a.greeting(), fleet.StateStarted
	delete(p.Env, "CRASH")
	delete(p.Env, "DIES")
	delete(p.Env, "AWAIT")
	return p
}

// bad is the next content, which never gets healthy, or ready, or dies before it is proven.
func (a *actor) bad() *api.DeploymentPut {
	p := a.good()
	switch n := a.draw.IntN(4); {
	case n == 0:
		p.Env["CRASH"] = "no licence"
	case n == 2:
		p.Env["DIES"] = (p.Strategy.MinHealthy(0) / 2).String()
	case n == 1 && p.Readiness != nil:
		if err := os.WriteFile(filepath.Join(a.d.ledger, "busy-"+a.greeting()), nil, 0o600); err != nil {
			a.accuse("%v", err)
		}
	default:
		p.Env["AWAIT"] = filepath.Join(a.d.ledger, "never")
	}
	return p
}

// release puts a content; now and then its server is killed before it could wake anybody.
func (a *actor) release(p *api.DeploymentPut) error {
	return a.call(func(ctx context.Context, s drillServer, m api.Mutation) (out api.Accepted, err error) {
		put := func() error {
			out, err = s.api.PutDeployment(ctx, a.name, *p, m)
			return err
		}
		if a.storms.Load() && a.left.Load() > 0 && a.draw.IntN(4) == 0 {
			err = a.untold(s, a.subject(), put)
		} else {
			err = put()
		}
		return out, err
	})
}

func (a *actor) subject() string { return fleet.DeploymentSubject(fleet.DeploymentName(a.name)) }

// releaseByDoor writes a content, and has a door release it.
func (a *actor) releaseByDoor() error {
	p := a.good()
	err := a.call(func(ctx context.Context, s drillServer, m api.Mutation) (api.Accepted, error) {
		return s.api.StageDeployment(ctx, a.name, *p, m)
	})
	if err != nil {
		return err
	}
	return a.door("ConvergeDeployment", map[string]any{"deployment": a.name})
}

func (a *actor) stop() error {
	a.zero.Store(true)
	p := a.good()
	p.State = fleet.StateStopped
	return a.release(p)
}

func (a *actor) scale(s standing) error {
	to := s.spec.Replicas.Min + a.draw.IntN(s.spec.Replicas.Max-s.spec.Replicas.Min+1)
	if a.draw.IntN(3) == 0 {
		return a.door("ScaleDeployment", map[string]any{"deployment": a.name, "replicas": to})
	}
	return a.ask("scale", api.ScaleRequest{Replicas: &to})
}

func (a *actor) restart(mode api.RestartMode) error {
	if mode == api.RestartStopFirst {
		a.zero.Store(true)
	}
	if a.draw.IntN(3) == 0 {
		return a.door("RestartDeployment", map[string]any{"deployment": a.name, "stopFirst": mode == api.RestartStopFirst})
	}
	return a.ask("restart", api.RestartRequest{Mode: mode})
}

// rollback goes to the revision before, or to any: a bad one, too.
func (a *actor) rollback(s standing) error {
	a.zero.Store(true) // what it goes to may be stopped
	var to int64
	if a.draw.IntN(2) == 0 {
		to = 1 + a.draw.Int64N(s.status.Revision)
	}
	if to > 0 && a.draw.IntN(2) == 0 {
		return a.door("RolloutDeployment", map[string]any{"deployment": a.name, "revision": to})
	}
	return a.ask("rollback", api.RollbackRequest{Revision: to})
}

// standing reads the deployment.
func (a *actor) standing() (s standing) {
	a.read("read "+a.name, func(ctx context.Context, c *api.Client) error {
		o, _, err := c.Object(ctx, fleet.DeploymentKey(fleet.DeploymentName(a.name)))
		if err != nil {
			return err
		}
		s = standing{}
		if err := json.Unmarshal(o.Spec, &s.spec); err != nil {
			return err
		}
		return json.Unmarshal(o.Status, &s.status)
	})
	return s
}

// newest is the number of the last revision.
func (a *actor) newest() (n int64) {
	a.read("read the revisions of "+a.name, func(ctx context.Context, c *api.Client) error {
		all, err := c.DeploymentRevisions(ctx, a.name, api.Page{Limit: 1})
		if err == nil && len(all.Items) > 0 {
			n = all.Items[0].Revision
		}
		return err
	})
	return n
}
