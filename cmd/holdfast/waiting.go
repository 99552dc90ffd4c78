package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// patience is how long a region may be away while something is waited for: the work goes
// on without it, so a restart of a server ends no wait.
const patience = time.Minute

// endedBadly is the cause of an error about an operation that ended without success.
type endedBadly struct{ state fleet.OperationState }

func (e *endedBadly) Error() string { return "the operation ended as " + string(e.state) }

// await follows an operation to its end, shows how far it is, and writes the final line.
// An end other than success is an error.
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
	fmt.Fprintln(p.out, c.finalLine(ctx, client, op))
	return op, endOf(op)
}

// nextState asks again, at most once per poll interval.
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
		if err := sleep(ctx, c.poll-c.now().Sub(began)); err != nil {
			return op, err
		}
		if !away {
			return next, nil
		}
	}
}

// sleep waits without outliving the command.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stillRunning says of a wait that ended early that the work did not.
func stillRunning(op api.Operation, err error) error {
	hint := "the operation goes on: holdfast wait " + op.ID
	var known *fleet.Error
	switch {
	case errors.As(err, &known):
		return &fleet.Error{Kind: known.Kind, Message: known.Message, Field: known.Field, Hint: hint, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &fleet.Error{Kind: "timeout", Message: "gave up waiting for " + operationSubject(op), Hint: hint, Err: err}
	case errors.Is(err, context.Canceled):
		return &fleet.Error{Kind: "interrupted", Message: "stopped waiting for " + operationSubject(op), Hint: hint, Err: err}
	}
	return err
}

// endOf is the error of an operation that ended otherwise than well.
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
	if op.Workflow != nil && op.Workflow.URL != "" {
		e.Hint += "; " + op.Workflow.URL
	}
	return e
}

// finalLine names the end state, and what each node holds now: revision, generation, hash.
func (c *cli) finalLine(ctx context.Context, client *api.Client, op api.Operation) string {
	line := fmt.Sprintf("%s %s", operationSubject(op), op.State)
	if op.Reason != "" {
		line += " (" + clean(op.Reason) + ")"
	}
	if op.Revision > 0 {
		line += ", revision " + number(op.Revision)
	}
	o, status, err := readStatus(ctx, client, op)
	if err != nil || len(status.Nodes) == 0 {
		return line + fromProgress(op) // a deleted instance has no status any more
	}
	line += fmt.Sprintf(" (generation %d)", o.Generation)
	for _, n := range status.Nodes {
		line += fmt.Sprintf("; %s (%s) holds revision %d %s", clean(n.Node), clean(string(n.Role)), n.Revision, short(n.RevisionHash))
		if n.Owed > 0 {
			line += fmt.Sprintf(", is owed %d", n.Owed)
		}
	}
	return line
}

func fromProgress(op api.Operation) string {
	var line strings.Builder
	for _, n := range op.Progress {
		line.WriteString("; " + nodeText(n))
	}
	return line.String()
}

func readStatus(ctx context.Context, client *api.Client, op api.Operation) (api.Object, api.InstanceStatus, error) {
	var status api.InstanceStatus
	if op.Instance == "" {
		return api.Object{}, status, nil
	}
	o, _, err := client.Object(ctx, fleet.InstanceKey(fleet.SiteName(op.Site), fleet.InstanceName(op.Instance)))
	if err == nil && len(o.Status) > 0 {
		err = json.Unmarshal(o.Status, &status)
	}
	return o, status, err
}
