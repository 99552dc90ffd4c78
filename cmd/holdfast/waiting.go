package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// patience is how long a wait tolerates an unreachable region. The operation continues without it, so the restart
// of a server ends no wait.
const patience = time.Minute

// endedBadly is the cause of an error about an operation that ended without success.
type endedBadly struct{ state fleet.OperationState }

func (e *endedBadly) Error() string { return "the operation ended as " + string(e.state) }

// await follows an operation to its end, shows its progress, and writes the final line. An end other than success
// is an error.
func (c *cli) await(ctx context.Context, client *api.Client, op api.Operation) (api.Operation, error) {
	p := c.newProgress()
	c.picture = p
	for !op.State.Ended() {
		p.show(op)
		next, err := c.nextState(ctx, client, op)
		if err != nil {
			p.clear()
			return op, stillRunning(op, err)
		}
		op = next
	}
	p.clear()
	fmt.Fprintln(p.out, finalLine(op))
	return op, endOf(op)
}

// nextState polls, at most once per interval.
func (c *cli) nextState(ctx context.Context, client *api.Client, op api.Operation) (api.Operation, error) {
	asked := c.now()
	for {
		began := c.now()
		next, err := client.Operation(ctx, op.ID, c.poll)
		away := err != nil && ctx.Err() == nil && exitCodeOf(err) == exitUnreachable && c.now().Sub(asked) < patience
		if err != nil && !away {
			return op, err
		}
		if err == nil && next.State.Ended() {
			return next, nil
		}
		if err := pause.For(ctx, c.poll-c.now().Sub(began)); err != nil {
			return op, err
		}
		if !away {
			return next, nil
		}
	}
}

// stillRunning adds to the error of an interrupted wait that the operation continues.
func stillRunning(op api.Operation, err error) error {
	hint := "the operation continues: holdfast wait " + op.ID
	var known *fleet.Error
	switch {
	case errors.As(err, &known):
		return &fleet.Error{Kind: known.Kind, Message: known.Message, Field: known.Field, Hint: hint, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &fleet.Error{Kind: "timeout", Message: "timed out waiting for " + operationSubject(op), Hint: hint, Err: err}
	case errors.Is(err, context.Canceled):
		return &fleet.Error{Kind: "interrupted", Message: "stopped waiting for " + operationSubject(op), Hint: hint, Err: err}
	}
	return err
}

// endOf is the error of an operation that did not end well.
func endOf(op api.Operation) error {
	if exitOfOperation(op.State) == exitOK {
		return nil
	}
	e := &fleet.Error{
		Kind:    fleet.Kind(first(op.Reason, string(op.State))),
		Message: fmt.Sprintf("%s ended as %s", operationSubject(op), op.State),
		Err:     &endedBadly{op.State},
	}
	if op.Message != "" {
		e.Message += ": " + op.Message
	}
	if op.Instance != "" {
		e.Hint = fmt.Sprintf("holdfast deliveries %s/%s", op.Site, op.Instance)
	}
	if op.Node != "" {
		e.Hint = "holdfast describe node " + op.Node
	}
	if op.Fleet != "" {
		e.Hint = "holdfast fleet targets " + op.Fleet + " --state failed"
	}
	if op.Deployment != "" {
		e.Hint = "holdfast explain deployment " + op.Deployment
	}
	if op.Workflow != nil && op.Workflow.URL != "" {
		e.Hint += "; " + op.Workflow.URL
	}
	return e
}

// finalLine is the end state, and what each node holds now: revision, generation, hash.
func finalLine(op api.Operation) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s %s", operationSubject(op), op.State)
	if op.Reason != "" {
		line.WriteString(" (" + clean(op.Reason) + ")")
	}
	if op.Revision > 0 {
		line.WriteString(", revision " + number(op.Revision))
	}
	// Otherwise the error contains it, or progress tells more.
	answers := op.Node != "" || op.Message != "" && op.Instance+op.Fleet+op.Module == ""
	if answers && op.State == fleet.OperationSucceeded {
		line.WriteString(": " + clean(op.Message))
	}
	if op.FleetRun != nil {
		line.WriteString(": " + fleetProgressText(*op.FleetRun))
	}
	for _, n := range op.Progress {
		line.WriteString("; " + nodeText(n) + heldText(n))
	}
	return line.String()
}

// heldText is "" for a node that never reported what it holds.
func heldText(n api.NodeProgress) string {
	switch {
	case n.Revision == 0:
		return ""
	case n.RevisionHash == "":
		return fmt.Sprintf(", holds nothing since revision %d", n.Revision)
	}
	return fmt.Sprintf(", holds revision %d (generation %d) %s", n.Revision, n.Generation, short(n.RevisionHash))
}
