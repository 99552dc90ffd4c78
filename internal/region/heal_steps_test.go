package region

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// healStep is one thing that happens. Seed feeds all that is drawn while it does, so that a
// step without the ones before it still draws the same.
type healStep struct {
	Kind             string
	Name, Node, Pick int
	Seed             uint64
}

// healKinds are the steps; one that stands here twice comes twice as often. A failing history
// shrinks towards the first.
var healKinds = []string{
	"nothing",
	"put", "put", "put", "same", "template", "pin", "deploy", "disable", "enable", "delete", "delete", "rollback", "cancel",
	"stop", "start", "start", "start", "start", "kill", "kill", "kill", "lose", "save", "restore", "cut", "mend", "mend", "tick", "tick",
	"swap", "terminate", "reconcile", "sweep", "nodes", "relay", "purge", "time", "late", "late", "run", "run", "run", "run", "all", "all",
	"crowd", "crowd", "crowd", "fleet", "fleet", "fleet", "turn", "turn", "window", "overdue",
}

// healFaults are what matters most where two could meet.
var healFaults = []string{"stop", "kill", "lose", "cut", "swap", "swap", "terminate", "overdue", "sweep", "put", "delete", "disable", "fleet", "turn", "crowd"}

var healSteps = rapid.Custom(func(t *rapid.T) healStep {
	return healStep{
		Kind: rapid.SampledFrom(healKinds).Draw(t, "kind"), Name: rapid.IntRange(0, healNames-1).Draw(t, "name"),
		Node: rapid.IntRange(0, 1).Draw(t, "node"), Pick: rapid.IntRange(0, 99).Draw(t, "pick"), Seed: rapid.Uint64().Draw(t, "seed"),
	}
})

// healPoints are where an agent can be killed.
var healPoints = []string{"before_fetch", "after_fetch", "before_start", "after_start", "before_switch", "after_switch", "before_reply"}

func (w *healWorld) step(s healStep) {
	w.random = rand.New(rand.NewPCG(s.Seed, 1)) // it has to be repeatable
	w.take(s)
}

func (w *healWorld) take(s healStep) {
	if s.Kind == "nothing" {
		return
	}
	w.say("step: %s %s %s %d", s.Kind, healName(s.Name), w.nodes[s.Node].name, s.Pick)
	switch s.Kind {
	case "put", "same", "template", "pin", "deploy", "disable", "enable", "delete", "rollback", "cancel":
		w.ask(s, healInstancePath(s.Name))
	case "stop", "start", "kill", "lose", "save", "restore", "cut", "mend", "tick":
		w.machine(s, w.nodes[s.Node])
	default:
		w.regional(s)
	}
}

// ask is what operators do.
func (w *healWorld) ask(s healStep, path string) {
	switch s.Kind {
	case "put":
		w.body++
		w.changed(w.put(path, w.spec(s.Pick, fmt.Sprintf(`{"n":%d}`, w.body))))
	case "same":
		w.changed(w.put(path, w.spec(s.Pick, `{"n":0}`)))
	case "template":
		w.body++
		w.put("/api/v1/templates/base", api.TemplatePut{Base: json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.body))})
	case "pin":
		in := w.spec(s.Pick, "")
		in.Config, in.Template = nil, "base"
		w.changed(w.put(path, in))
	case "delete":
		w.changed(w.region.call(w.ctx, http.MethodDelete, path, nil))
	case "rollback":
		w.changed(w.region.call(w.ctx, http.MethodPost, path+"/rollback", api.RollbackRequest{}))
	case "cancel":
		if len(w.ops) > 0 {
			code, _ := w.region.call(w.ctx, http.MethodPost, "/api/v1/operations/"+w.ops[s.Pick%len(w.ops)]+"/cancel", nil)
			w.say("answer: %d", code)
		}
	default:
		w.changed(w.region.call(w.ctx, http.MethodPost, path+"/"+s.Kind, api.ActionRequest{}))
	}
}

func (w *healWorld) put(path string, body any) (int, api.Accepted) {
	return w.region.call(w.ctx, http.MethodPut, path, body)
}

func (w *healWorld) changed(code int, out api.Accepted) {
	if code >= http.StatusInternalServerError {
		w.fail("the API answered %d", code)
	}
	w.say("answer: %d", code)
	if out.Operation != nil {
		w.ops = append(w.ops, out.Operation.ID)
	}
}

func (w *healWorld) spec(pick int, config string) api.InstancePut {
	in := api.InstancePut{
		Config: json.RawMessage(config), Run: &fleet.Run{Command: []string{"press"}}, Labels: map[string]string{"line": string("ab"[pick%2])},
	}
	switch pick % 10 {
	case 0:
		in.Run.Command[0] = healFails
	case 1:
		in.Run = nil
	case 2:
		in.Run.OnChange = fleet.OnChangeSignal
	}
	if pick%7 == 0 {
		in.Durability = fleet.DurabilityAsync
	}
	return in
}

// machine is what happens to a node.
func (w *healWorld) machine(s healStep, n *healNode) {
	var err error
	switch s.Kind {
	case "stop":
		n.kill()
	case "start":
		err = n.start(w.ctx)
		if s.Pick < 80 {
			n.tick(w.ctx)
		}
	case "kill":
		n.dieAt, n.dieAfter = healPoints[s.Pick%len(healPoints)], s.Pick/50
	case "lose":
		err = n.lose()
	case "save":
		err = n.save()
	case "restore":
		err = n.restore()
	case "cut":
		n.cut = true
	case "mend":
		n.cut = false
		n.tick(w.ctx)
	case "tick":
		n.tick(w.ctx)
	}
	if err != nil && n.life != nil {
		w.fail("%s %s: %v", s.Kind, n.name, err)
	}
}

// regional is what the region does by itself, or somebody does to it.
func (w *healWorld) regional(s healStep) {
	var err error
	switch s.Kind {
	case "swap":
		w.active = 1 - w.active
		err = w.vote()
	case "terminate":
		w.terminate(s.Pick)
	case "reconcile":
		name := w.nodes[s.Node].name
		if _, err = w.region.store.AskReconcile(w.ctx, nodes.ReconcileRequest{Request: postgres.Request{Actor: "test", Limit: time.Hour}, Node: name}); err == nil {
			_ = w.region.server.flows.Wake(w.ctx, fleet.NodeSubject(name)) // the outbox repeats it
		}
	case "sweep":
		_, err = w.region.sweep.SweepOperations(w.ctx, func() {})
	case "nodes":
		err = w.sweepNodes()
	case "relay":
		err = w.relay()
	case "purge":
		_, err = w.region.store.PurgeOnce(w.ctx, 100)
	case "time":
		w.unpark()
		err = w.region.pass(w.ctx, []time.Duration{2 * time.Second, 12 * time.Second, time.Minute, 6 * time.Minute, 40 * time.Minute}[s.Pick%5])
	case "late":
		if len(w.late) > 0 {
			f := w.late[0]
			w.late = w.late[1:]
			f()
		}
	case "run":
		w.runSome(s.Pick)
	case "all":
		for range 20 {
			w.runSome(s.Pick)
		}
	default:
		err = w.many(s)
	}
	if err != nil && fleet.KindOf(err) != fleet.Unavailable {
		w.fail("%s: %v", s.Kind, err)
	}
}

// terminate is what somebody does by hand, to a run at work rather than to one that waits.
func (w *healWorld) terminate(pick int) {
	subjects := []string{fleet.DeliverSubject(healSite)}
	for i := range healNames {
		subjects = append(subjects, fleet.InstanceSubject(healSite, fleet.InstanceName(healName(i))))
	}
	for i := range healFleets {
		subject := fleet.FleetSubject(healFleet(i))
		subjects = append(subjects, subject)
		if e := w.entities[subject]; e != nil && e.child != nil {
			subjects = append(subjects, e.child.subject)
		}
	}
	for _, atWork := range []bool{true, false} {
		for i := range subjects {
			if e := w.entities[subjects[(pick+i)%len(subjects)]]; e != nil && (e.env != nil || !atWork) {
				w.say("terminated: %s", e.subject)
				e.terminate()
				return
			}
		}
	}
}

func (w *healWorld) sweepNodes() error {
	t := DefaultTiming()
	sweep := &nodeSweep{store: w.region.store, full: t.Compare, settle: 2 * t.Nodes, lost: lostAfter}
	names, err := sweep.NodesToReconcile(w.ctx, 0, 1, "", 100)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.region.server.flows.StartReconcile(w.ctx, name, "schedule"); err != nil {
			return err
		}
	}
	return nil
}

func (w *healWorld) relay() error {
	subjects, err := w.region.store.WaitingWakes(w.ctx, DefaultTiming().Relay, relayAtOnce)
	if err != nil {
		return err
	}
	for _, subject := range subjects {
		if err := w.region.server.flows.Wake(w.ctx, subject); err != nil {
			return err
		}
	}
	return nil
}

// enrol makes the key of a node known, and starts it.
func (w *healWorld) enrol(n *healNode) error {
	token, hash, err := identity.NewToken(32)
	if err != nil {
		return err
	}
	if _, err := w.region.store.AddJoinToken(w.ctx, keyring.JoinToken{Hash: hash[:], Site: healSite, Node: n.name, CreatedBy: "test"}, time.Hour); err != nil {
		return err
	}
	if err := n.start(w.ctx); err != nil {
		return err
	}
	var at node.Placement
	if at, err = n.life.client.Enrol(w.ctx, token, healSite); err != nil {
		return err
	}
	if err := n.life.agent.Store.SetRegion(w.ctx, at.Region); err != nil {
		return err
	}
	n.tick(w.ctx)
	return nil
}
