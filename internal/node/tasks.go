package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// Tasks carries out tasks of Temporal on the node. Anyone with write access to Temporal can create one. So the
// node acts on each only once and only with the region's signature, and fetches only from the host of its own
// --api, whatever the task names (docs/node-access.md).
type Tasks struct {
	agent *Agent

	asking sync.Mutex // one request for the region's keys at a time
	asked  time.Time

	mu   sync.Mutex
	used map[string]time.Time // signatures that were acted on, until they expire
	tidy time.Time            // when expired ones are next removed
}

// Tasks gives the handlers of Temporal tasks.
func (a *Agent) Tasks() *Tasks { return a.tasks }

// Apply carries out one notify.
func (t *Tasks) Apply(ctx context.Context, cmd fleet.RefreshDeploymentCommand, progress func(phase string, done, total int64)) (fleet.DeploymentStatusResponse, error) {
	r := cmd.Revision
	what := fmt.Sprintf("deliver %s %d.%d as %s at epoch %d", cmd.Instance, r.Era, r.Version.Revision, cmd.Role, cmd.Epoch)
	if err := t.admit(ctx, cmd, cmd.Signed, what); err != nil {
		return fleet.DeploymentStatusResponse{}, err
	}
	cmd.CentralFetchBaseURL = t.base(cmd.CentralFetchBaseURL)
	return t.agent.Applier.Apply(ctx, cmd, progress)
}

// Held reads the node's store: it changes nothing, and needs no signature.
func (t *Tasks) Held(ctx context.Context, name fleet.InstanceName) (fleet.Held, error) {
	return t.agent.Applier.Held(ctx, name)
}

// ApplyBatch carries out many deliveries.
func (t *Tasks) ApplyBatch(ctx context.Context, cmd fleet.BatchCommand, progress func(phase string, done, total int64)) (fleet.BatchOutcome, error) {
	what := fmt.Sprintf("batch %s of %d as %s at epoch %d", cmd.BatchID, cmd.Count, cmd.Role, cmd.Epoch)
	if err := t.admit(ctx, cmd, cmd.Signed, what); err != nil {
		return fleet.BatchOutcome{}, err
	}
	cmd.CentralFetchBaseURL = t.base(cmd.CentralFetchBaseURL)
	return t.agent.Applier.ApplyBatch(ctx, cmd, progress)
}

// Reconcile compares the node with its site's expected set.
func (t *Tasks) Reconcile(ctx context.Context, cmd fleet.ReconcileCommand) (fleet.ReconcileReport, error) {
	if err := t.admit(ctx, cmd, cmd.Signed, fmt.Sprintf("compare as %s at epoch %d", cmd.Role, cmd.Epoch)); err != nil {
		return fleet.ReconcileReport{}, err
	}
	cmd.BaseURL = t.base(cmd.BaseURL)
	return t.agent.Reconcile(ctx, cmd)
}

// HandOver releases the site's lease.
func (t *Tasks) HandOver(ctx context.Context, cmd fleet.HandOverCommand) (fleet.HandOverResult, error) {
	if err := t.admit(ctx, cmd, cmd.Signed, fmt.Sprintf("hand over to %s at epoch %d", cmd.To, cmd.Epoch)); err != nil {
		return fleet.HandOverResult{}, err
	}
	return t.agent.Leases.HandOver(ctx, cmd)
}

// TakeOver stands for the site's lease.
func (t *Tasks) TakeOver(ctx context.Context, cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
	if err := t.admit(ctx, cmd, cmd.Signed, "take over"); err != nil {
		return fleet.TakeOverResult{}, err
	}
	return t.agent.Leases.TakeOver(ctx, cmd)
}

// base is where the node fetches from: the server that the region named if it is on the host of --api, else
// --api. So a second server on that host can continue for one that does not answer.
func (t *Tasks) base(named string) string {
	own, err := url.Parse(t.agent.opt.API)
	if err != nil {
		return t.agent.opt.API
	}
	at, err := url.Parse(named)
	if err != nil || at.Scheme != own.Scheme || at.User != nil || at.Hostname() != own.Hostname() {
		return t.agent.opt.API
	}
	return named
}

// admit refuses a command that the region did not sign for this node, or that was acted on before.
func (t *Tasks) admit(ctx context.Context, cmd fleet.Command, s fleet.Signature, what string) error {
	err := t.check(ctx, cmd, s)
	var reason refusedBy
	if errors.As(err, &reason) {
		t.agent.counters.CommandsRefused.Add(1)
		t.agent.opt.Log.Warn("refused a command", "reason", string(reason), "command", what)
		t.agent.refusals.add(audit.Refusal{Door: audit.DoorNode, Identity: audit.FromNobody, Reason: string(reason), What: what})
	}
	return err
}

// refusedBy is the reason why a command was refused, as the region lists it.
type refusedBy string

func (r refusedBy) Error() string { return string(r) }

func (t *Tasks) check(ctx context.Context, cmd fleet.Command, s fleet.Signature) error {
	now := t.agent.opt.Now()
	switch {
	case len(s.Value) == 0:
		return refuse(audit.Unsigned, "the region did not sign this command").
			WithHint("use the region's API, its CLI or a door; upgrade servers before their nodes")
	case s.Node != t.agent.opt.Node:
		return refuse(audit.OtherNode, "this command was signed for node %s", s.Node)
	}
	if err := t.verify(ctx, cmd, s); err != nil {
		return err
	}
	if !now.Before(s.Expires) {
		return refuse(audit.Expired, "this command expired at %s, and it is %s", s.Expires.Format(time.RFC3339), now.UTC().Format(time.RFC3339)).
			WithHint("if it was just sent, the clock of this node or of the region is wrong")
	}
	first, err := t.use(ctx, cmd, s, now)
	if err != nil {
		return err
	}
	if !first {
		return refuse(audit.Replayed, "this command was acted on before")
	}
	return nil
}

// refuse makes a transient error: the region repeats a command that it really sent, with a new signature.
func refuse(reason refusedBy, format string, args ...any) *fleet.Error {
	return &fleet.Error{Kind: fleet.Communication, Message: string(reason) + ": " + fmt.Sprintf(format, args...), Err: reason}
}

// verify asks the region for its keys if none of the known ones signed a command: the region may have changed
// them while the node was disconnected, or been restored from a backup.
func (t *Tasks) verify(ctx context.Context, cmd fleet.Command, s fleet.Signature) error {
	key := t.agent.saved()
	if identity.VerifyCommand(key.CommandKeys(), cmd, s) {
		return nil
	}
	if err := t.ask(ctx, key); err != nil {
		return err
	}
	if identity.VerifyCommand(t.agent.saved().CommandKeys(), cmd, s) {
		return nil
	}
	return refuse(audit.BadSignature, "no key of the region signed this command")
}

// askEvery bounds how often forged commands cause a request to the region.
const askEvery = time.Second

// ask gets the keys by which the region signs, unless they have changed already.
func (t *Tasks) ask(ctx context.Context, than identity.Key) error {
	t.asking.Lock()
	defer t.asking.Unlock()
	if !t.agent.saved().SameCommands(than) {
		return nil
	}
	now := t.agent.opt.Now()
	if now.Sub(t.asked).Abs() < askEvery {
		return nil
	}
	at, err := t.agent.client.Report(ctx, Report{Instances: []fleet.NodeInstance{}, Progress: []DeliveryProgress{}})
	if err != nil {
		return communication("read the region's keys for commands: %w", err)
	}
	t.asked = now
	return t.agent.adopt(ctx, at)
}

// tidyEvery is how often expired signatures are removed.
const tidyEvery = time.Minute

// use tells whether a command was not acted on before, and records it.
func (t *Tasks) use(ctx context.Context, cmd fleet.Command, s fleet.Signature, now time.Time) (first bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, is := t.used[string(s.Value)]; is {
		return false, nil
	}
	if onceInStore(cmd) {
		if first, err = t.agent.Store.UseCommand(ctx, s, now); err != nil || !first {
			return false, err
		}
	}
	if !now.Before(t.tidy) {
		maps.DeleteFunc(t.used, func(_ string, expires time.Time) bool { return !now.Before(expires) })
		t.tidy = now.Add(tidyEvery)
	}
	t.used[string(s.Value)] = s.Expires
	return true, nil
}

// onceInStore tells which commands the node's store remembers. After a restart, revision and epoch protect a
// delivery, a batch and a comparison from a repetition. A take-over names neither, and a hand-over that has not
// released the lease yet could be repeated at the same epoch.
func onceInStore(cmd fleet.Command) bool {
	switch cmd.(type) {
	case fleet.HandOverCommand, fleet.TakeOverCommand:
		return true
	}
	return false
}
