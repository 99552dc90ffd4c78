package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// subjectStore takes an entity from step to step in one transaction. Each step is guarded
// by rows and may be taken twice; next may be called again from the start.
type subjectStore interface {
	Walk(ctx context.Context, of fleet.Subject, first fleet.Step, next func(seen fleet.InstanceSeen, taken int) (fleet.Step, bool)) (fleet.Walked, error)
}

// doorTeller tells the doors of a subject how their operations ended.
type doorTeller interface {
	TellDoors(ctx context.Context, subject string) error
}

// TokenMaker makes a random token and its hash, and seals the token to a node.
type TokenMaker interface {
	New() (token string, hash []byte, err error)
	Seal(sealingKey []byte, token string) (string, error)
}

// Instances is what an instance's entity does at the store; it runs as a local activity.
// Build is the build of the worker that runs it.
type Instances struct {
	Store  subjectStore
	Tokens TokenMaker
	Signer Signer
	Doors  doorTeller
	// Nodes wakes those that are about to be told or asked; nil where none idles.
	Nodes nodeWaker
	// FetchBaseURL is where the region says that nodes fetch from (N35); they go to their own --api.
	FetchBaseURL string
	Build        string
	Log          *slog.Logger
	// Ended is told how each delivery ended and when it had begun; nil tells nobody.
	Ended func(end fleet.End)
	// Failpoint is for tests, nil in production: it is called before each step and, once
	// all of them are committed, after each.
	Failpoint func(name string)
}

// Visit is one call of an entity at the store. Step is what happened, or only a look; what
// follows from it and needs nobody but the store is done at once.
type Visit struct {
	fleet.Subject
	Step     fleet.Step         `json:"step,omitzero"`
	Run      decide.InstanceRun `json:"run,omitzero"`
	Workflow string             `json:"workflow"`
	// Number tells the visits of a run apart: a repeated one makes the same claims.
	Number int           `json:"number"`
	Total  time.Duration `json:"total"`
	TTL    time.Duration `json:"ttl"`
}

// Visited is what a visit came to, and what the entity does next.
type Visited struct {
	Seen fleet.InstanceSeen    `json:"seen"`
	Next decide.InstanceAction `json:"next"`
	// Steps are the names of those that were taken, and of the rules that chose them.
	Steps []string `json:"steps"`
	// Run is what the run remembers from here: a node that does not count any more is gone.
	Run decide.InstanceRun `json:"run,omitzero"`
	// Command is the notify that Next sends.
	Command *fleet.RefreshDeploymentCommand `json:"command,omitempty"`
	// Ended is set when a delivery or its operations were ended.
	Ended fleet.OperationState `json:"ended,omitempty"`
}

// maxSteps bounds one visit; the entity comes back for more.
const maxSteps = 8

// Visit takes the steps of one visit in one transaction (N21: what is to be fetched is
// persisted before anybody is told). A token leaves this process only sealed (N104).
func (i *Instances) Visit(ctx context.Context, in Visit) (Visited, error) {
	in.Build = i.Build
	token, hash, err := i.Tokens.New()
	if err != nil {
		return Visited{}, fail(ctx, err)
	}
	i.failpoint("before_" + in.Step.Name())
	p := path{visit: in, tokenHash: hash}
	w, err := i.Store.Walk(ctx, in.Subject, in.Step, func(seen fleet.InstanceSeen, taken int) (fleet.Step, bool) {
		step, more := p.next(seen, taken)
		if more {
			i.failpoint("before_" + step.Name())
		}
		return step, more
	})
	if err != nil {
		return Visited{}, fail(ctx, err)
	}
	for _, step := range w.Steps {
		i.failpoint("after_" + step.Name())
	}
	out := Visited{Seen: w.Seen, Next: p.last, Steps: p.names(w.Steps), Run: p.run}
	if w.Prepared != nil {
		if out.Command, err = i.seal(ctx, w.Prepared, token); err != nil {
			return Visited{}, fail(ctx, err)
		}
	}
	out.Ended = i.announce(ctx, in.Subject, w)
	if out.Command != nil || out.Next.Do == decide.DoAsk {
		return out, fail(ctx, wakeNodes(ctx, i.Nodes, out.Next.Node))
	}
	return out, nil
}

func (i *Instances) seal(ctx context.Context, p *fleet.Prepared, token string) (*fleet.RefreshDeploymentCommand, error) {
	sealed, err := i.Tokens.Seal(p.SealingKey, token)
	if err != nil {
		return nil, err
	}
	cmd := p.Command
	cmd.FetchToken, cmd.CentralFetchBaseURL = sealed, i.FetchBaseURL
	cmd.Signed, err = i.Signer.Sign(ctx, p.Node, cmd)
	return &cmd, err
}

// announce says what ended, to those who measure and to doors that wait. It is a hurry
// only: the operations sweep tells the doors that this missed.
func (i *Instances) announce(ctx context.Context, of fleet.Subject, w fleet.Walked) fleet.OperationState {
	var ended fleet.OperationState
	for _, s := range w.Steps {
		if s.End == nil {
			continue
		}
		ended = s.End.Operation
		if i.Ended != nil && s.End.Delivery != "" {
			i.Ended(*s.End)
		}
	}
	if w.Seen.Untold > 0 {
		if err := i.Doors.TellDoors(ctx, of.Name()); err != nil {
			i.Log.WarnContext(ctx, "doors are told by the next sweep", "subject", of.Name(), "error", err)
		}
	}
	return ended
}

func (i *Instances) failpoint(name string) {
	if i.Failpoint != nil {
		i.Failpoint(name)
	}
}

// path is the way that one visit takes through the decisions.
type path struct {
	visit     Visit
	tokenHash []byte
	run       decide.InstanceRun
	last      decide.InstanceAction
	rules     []string
}

// next turns the decision into a step of the store, if it is one.
func (p *path) next(seen fleet.InstanceSeen, taken int) (fleet.Step, bool) {
	if taken == 1 { // the first time, and again when the transaction is run again
		p.run, p.rules = p.visit.Run, nil
		p.forget(p.visit.Step)
	}
	p.last = decide.Instance(seen, p.run, seen.At)
	step, is := p.step(seen, taken)
	if !is || taken >= maxSteps {
		return fleet.Step{}, false
	}
	p.rules = append(p.rules, p.last.Rule)
	p.forget(step)
	return step, true
}

// forget: whoever was spoken to about an attempt does not count for the next one.
func (p *path) forget(step fleet.Step) {
	if step.Claim != nil || step.End != nil {
		p.run.InFlight = ""
	}
	if step.Prepare != nil { // a pause is for one notify
		p.run.Waited = ""
	}
	if step.Claim != nil {
		p.run.Asks = 0
	}
}

func (p *path) step(seen fleet.InstanceSeen, taken int) (fleet.Step, bool) {
	v, a := p.visit, p.last
	number := strconv.Itoa(v.Number) + "." + strconv.Itoa(taken)
	switch a.Do {
	case decide.DoClaim:
		return fleet.Step{Claim: &fleet.Claim{Subject: v.Subject, Step: number, Workflow: v.Workflow, Deadline: v.Total, TTL: v.TTL}}, true
	case decide.DoEnd:
		return fleet.Step{End: endOf(v.Subject, seen, a)}, true
	case decide.DoNotify:
		prepare := &fleet.Prepare{Subject: v.Subject, Delivery: seen.Open.ID, Node: a.Node, TTL: v.TTL, TokenHash: p.tokenHash}
		return fleet.Step{Prepare: prepare}, a.Wait == 0
	case decide.DoServe:
		prepare := &fleet.Prepare{
			Subject: v.Subject, Ticket: ticketID(v.Subject.Run, number), Node: a.Node, TTL: v.TTL, TokenHash: p.tokenHash,
		}
		return fleet.Step{Prepare: prepare}, true
	case decide.DoAsk, decide.DoWait, decide.DoNothing:
	}
	return fleet.Step{}, false
}

// ticketID is fixed by run and step, so that a repeated step makes the same ticket.
func ticketID(run, step string) fleet.DeliveryID {
	sum := sha256.Sum256([]byte(run + "/ticket/" + step))
	return fleet.DeliveryID(hex.EncodeToString(sum[:16]))
}

func endOf(of fleet.Subject, seen fleet.InstanceSeen, a decide.InstanceAction) *fleet.End {
	end := &fleet.End{
		Subject: of, State: a.State, Operation: a.Operation, Reason: a.Reason, Message: a.Message,
		Owe: a.Owe, OnlyCancelled: a.OnlyCancelled,
	}
	if seen.Open != nil {
		end.Delivery, end.Since = seen.Open.ID, seen.Open.Since
	}
	return end
}

// names are of the steps, with the rule that chose each but the first.
func (p *path) names(steps []fleet.Step) []string {
	names := make([]string, len(steps))
	for n, s := range steps {
		names[n] = s.Name()
		if n > 0 && n <= len(p.rules) {
			names[n] += " (" + p.rules[n-1] + ")"
		}
	}
	return names
}
