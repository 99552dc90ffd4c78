package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// gapStore compares what a node said it holds with what is deployed, and writes what is to
// be done about it; the others give the subject to wake, "" when the world has moved.
type gapStore interface {
	ComparePage(ctx context.Context, node fleet.NodeName, after string, limit int32) (page []fleet.Comparison, next string, err error)
	Owe(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
	ReleaseAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
	SettleAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
	// ServeOwed makes due what the node is owed and was not tried since a time.
	ServeOwed(ctx context.Context, node fleet.NodeName, before time.Time, limit int32) (subjects []string, err error)
}

// passStore writes down that a node is compared, and what came of it.
type passStore interface {
	// BeginReconcile gives a command without token and address, nil for a node that cannot be told.
	BeginReconcile(ctx context.Context, in fleet.ReconcileStart) (fleet.ReconcileBegun, error)
	EndReconcile(ctx context.Context, e fleet.ReconcileEnd) error
}

// Reconciles are the steps of ReconcileNode.
type Reconciles struct {
	Store    gapStore
	Passes   passStore
	Entities waker
	Doors    doorTeller
	Tokens   TokenMaker
	Signer   Signer
	// Nodes wakes the one that is about to be told; nil where none idles.
	Nodes nodeWaker
	// BaseURL is where the region says that nodes fetch from, TokenLife how long a token lives without use.
	BaseURL   string
	TokenLife time.Duration
	Build     string
	// Ended is told how each comparison ended; nil tells nobody.
	Ended func(end fleet.ReconcileEnd)
}

// BeginReconcile asks for the next comparison of a node. Number tells those of a run apart. Asked says that a person
// may have asked, so that the node also hashes its files.
type BeginReconcile struct {
	Node   fleet.NodeName `json:"node"`
	Reason string         `json:"reason"`
	Asked  bool           `json:"asked,omitempty"`
	Run    string         `json:"run"`
	Number int            `json:"number"`
}

// BegunReconcile is what the node is told; Why says why it is not.
type BegunReconcile struct {
	Command *fleet.ReconcileCommand `json:"command,omitempty"`
	Why     string                  `json:"why,omitempty"`
	By      time.Time               `json:"by"`
}

// Begin takes over the node's operations and prepares one comparison, with a token sealed
// to the node (N84, N104).
func (r *Reconciles) Begin(ctx context.Context, in BeginReconcile) (BegunReconcile, error) {
	var out BegunReconcile
	if err := fleet.ValidateName("/node", string(in.Node)); err != nil {
		return out, fail(ctx, err)
	}
	token, hash, err := r.Tokens.New()
	if err != nil {
		return out, fail(ctx, err)
	}
	sum := sha256.Sum256([]byte(in.Run + "/reconcile/" + strconv.Itoa(in.Number)))
	begun, err := r.Passes.BeginReconcile(ctx, fleet.ReconcileStart{
		ID: hex.EncodeToString(sum[:16]), Node: in.Node, Reason: in.Reason, Files: in.Asked, Run: in.Run, Build: r.Build,
		TokenHash: hash, TokenLife: r.TokenLife,
	})
	if err != nil {
		return out, fail(ctx, err)
	}
	out.By, out.Why, out.Command = begun.By, begun.Why, begun.Command
	if out.Command == nil {
		return out, nil
	}
	out.Command.BaseURL = r.BaseURL
	if out.Command.Token, err = r.Tokens.Seal(begun.SealingKey, token); err != nil {
		return out, fail(ctx, err)
	}
	if out.Command.Signed, err = r.Signer.Sign(ctx, in.Node, *out.Command); err != nil {
		return out, fail(ctx, err)
	}
	return out, fail(ctx, wakeNodes(ctx, r.Nodes, in.Node))
}

// ReconcilePage is one page of a node's comparison.
type ReconcilePage struct {
	Node  fleet.NodeName `json:"node"`
	After string         `json:"after,omitempty"`
}

// ReconciledPage is what a page came to.
type ReconciledPage struct {
	Woken int    `json:"woken"`
	Next  string `json:"next,omitempty"`
}

// pageOfActions bounds what one page may start.
const pageOfActions = 100

// Page does what only the region can about what drifted: it settles, numbers anew and owes,
// and wakes the subjects. Nothing is dropped. The outbox repeats a wake that fails here.
func (r *Reconciles) Page(ctx context.Context, in ReconcilePage) (ReconciledPage, error) {
	if err := fleet.ValidateName("/node", string(in.Node)); err != nil {
		return ReconciledPage{}, fail(ctx, err)
	}
	page, next, err := r.Store.ComparePage(ctx, in.Node, in.After, pageOfActions)
	if err != nil {
		return ReconciledPage{}, fail(ctx, err)
	}
	out := ReconciledPage{Next: next}
	for _, c := range page {
		subject, err := r.mend(ctx, in.Node, c)
		if err != nil {
			return ReconciledPage{}, fail(ctx, err)
		}
		if subject == "" {
			continue
		}
		if err := r.Entities.Wake(ctx, subject); err != nil {
			return ReconciledPage{}, fail(ctx, err)
		}
		out.Woken++
	}
	return out, nil
}

// mend acts on one comparison and gives the subject to wake, "" for none.
func (r *Reconciles) mend(ctx context.Context, node fleet.NodeName, c fleet.Comparison) (string, error) {
	switch decide.Reconcile(c) {
	case decide.GapBehind:
		return r.Store.Owe(ctx, node, c.Instance, c.Snapshot.Version)
	case decide.GapAhead:
		return r.Store.ReleaseAgain(ctx, node, c.Instance, c.Snapshot.Version)
	case decide.GapUnrecorded:
		return r.Store.SettleAgain(ctx, node, c.Instance, c.Desired.Version)
	case decide.GapNone:
	}
	return "", nil
}

// OwedPage asks for a page of what a node is owed, tried last before a time.
type OwedPage struct {
	Node   fleet.NodeName `json:"node"`
	Before time.Time      `json:"before"`
}

// Serve starts what a node is still owed after its comparison, a page at a time; More says
// whether there may be another.
func (r *Reconciles) Serve(ctx context.Context, in OwedPage) (ServedPage, error) {
	subjects, err := r.Store.ServeOwed(ctx, in.Node, in.Before, pageOfActions)
	if err != nil {
		return ServedPage{}, fail(ctx, err)
	}
	for _, subject := range subjects {
		if err := r.Entities.Wake(ctx, subject); err != nil {
			return ServedPage{}, fail(ctx, err)
		}
	}
	return ServedPage{Woken: len(subjects), More: len(subjects) == pageOfActions}, nil
}

// ServedPage is what a page of the owed came to.
type ServedPage struct {
	Woken int  `json:"woken"`
	More  bool `json:"more,omitempty"`
}

// End closes a comparison and the operations that it served, and tells their doors.
func (r *Reconciles) End(ctx context.Context, in fleet.ReconcileEnd) error {
	if err := r.Passes.EndReconcile(ctx, in); err != nil {
		return fail(ctx, err)
	}
	if err := r.Doors.TellDoors(ctx, fleet.NodeSubject(in.Node)); err != nil {
		return fail(ctx, err)
	}
	if r.Ended != nil {
		r.Ended(in)
	}
	return nil
}
