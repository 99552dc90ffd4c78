package activities

import (
	"context"
	"log/slog"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// subjectStore takes the steps of an instance's entity. Each is guarded by rows, may be
// called twice, and answers what is seen after it.
type subjectStore interface {
	Observe(ctx context.Context, of fleet.Subject) (fleet.InstanceSeen, error)
	Claim(ctx context.Context, c fleet.Claim) (fleet.InstanceSeen, error)
	Prepare(ctx context.Context, p fleet.Prepare) (fleet.Prepared, error)
	Record(ctx context.Context, r fleet.Record) (fleet.InstanceSeen, error)
	Miss(ctx context.Context, m fleet.Miss) (fleet.InstanceSeen, error)
	Settle(ctx context.Context, s fleet.Settle) (fleet.InstanceSeen, error)
	End(ctx context.Context, e fleet.End) (fleet.InstanceSeen, error)
}

// doorTeller tells the doors of a subject how their operations ended.
type doorTeller interface {
	TellDoors(ctx context.Context, subject string) error
}

// Instances are the short database steps of an instance's entity; they run as local
// activities. Build is the build of the worker that runs them.
type Instances struct {
	Store  subjectStore
	Tokens TokenMaker
	Doors  doorTeller
	// FetchBaseURL is where nodes fetch from (N35, N66).
	FetchBaseURL string
	Build        string
	Log          *slog.Logger
	// Ended is told how each delivery ended and when it had begun; nil tells nobody.
	Ended func(end fleet.End)
	// Failpoint is for tests, nil in production: it is called before and after each step.
	Failpoint func(name string)
}

// around marks the start of a step and gives what marks its end.
func (i *Instances) around(step string) func() {
	if i.Failpoint == nil {
		return func() {}
	}
	i.Failpoint("before_" + step)
	return func() { i.Failpoint("after_" + step) }
}

// TokenMaker makes a random token and its hash, and seals the token to a node.
type TokenMaker interface {
	New() (token string, hash []byte, err error)
	Seal(sealingKey []byte, token string) (string, error)
}

// Observe attaches the run and reads all that the decision needs.
func (i *Instances) Observe(ctx context.Context, in fleet.Subject) (fleet.InstanceSeen, error) {
	done := i.around("observe")
	defer done()
	in.Build = i.Build
	seen, err := i.Store.Observe(ctx, in)
	return seen, fail(err)
}

// Claim persists the next attempt (N21: before anybody is told).
func (i *Instances) Claim(ctx context.Context, in fleet.Claim) (fleet.InstanceSeen, error) {
	done := i.around("claim")
	defer done()
	seen, err := i.Store.Claim(ctx, in)
	return seen, fail(err)
}

// Prepare makes the notify of one node, with a new token sealed to it. The token itself
// leaves this process only sealed (N104).
func (i *Instances) Prepare(ctx context.Context, in fleet.Prepare) (fleet.RefreshDeploymentCommand, error) {
	done := i.around("prepare")
	defer done()
	token, hash, err := i.Tokens.New()
	if err != nil {
		return fleet.RefreshDeploymentCommand{}, fail(err)
	}
	in.TokenHash = hash
	p, err := i.Store.Prepare(ctx, in)
	if err != nil {
		return fleet.RefreshDeploymentCommand{}, fail(err)
	}
	sealed, err := i.Tokens.Seal(p.SealingKey, token)
	if err != nil {
		return fleet.RefreshDeploymentCommand{}, fail(err)
	}
	p.Command.FetchToken, p.Command.CentralFetchBaseURL = sealed, i.FetchBaseURL
	return p.Command, nil
}

// Record writes down what a node applied.
func (i *Instances) Record(ctx context.Context, in fleet.Record) (fleet.InstanceSeen, error) {
	done := i.around("record")
	defer done()
	seen, err := i.Store.Record(ctx, in)
	if err == nil {
		i.tell(ctx, in.Name())
	}
	return seen, fail(err)
}

// Miss writes down why a node did not.
func (i *Instances) Miss(ctx context.Context, in fleet.Miss) (fleet.InstanceSeen, error) {
	done := i.around("miss")
	defer done()
	seen, err := i.Store.Miss(ctx, in)
	return seen, fail(err)
}

// Settle writes down what a node says it holds.
func (i *Instances) Settle(ctx context.Context, in fleet.Settle) (fleet.InstanceSeen, error) {
	done := i.around("settle")
	defer done()
	seen, err := i.Store.Settle(ctx, in)
	return seen, fail(err)
}

// End closes a delivery and the operations that it served.
func (i *Instances) End(ctx context.Context, in fleet.End) (fleet.InstanceSeen, error) {
	done := i.around("end")
	defer done()
	seen, err := i.Store.End(ctx, in)
	if err == nil {
		if i.Ended != nil && in.Delivery != "" {
			i.Ended(in)
		}
		i.tell(ctx, in.Name())
	}
	return seen, fail(err)
}

// tell is a hurry only: the operations sweep tells the doors that this missed.
func (i *Instances) tell(ctx context.Context, subject string) {
	if err := i.Doors.TellDoors(ctx, subject); err != nil {
		i.Log.WarnContext(ctx, "doors are told by the next sweep", "subject", subject, "error", err)
	}
}
