package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// complain prints an error on stderr: what happened, where, and what to do next.
func (c *cli) complain(err error) {
	if errors.As(err, new(*reported)) {
		return
	}
	if c.flags.output == formatJSON {
		p := problemOf(err)
		encoder := json.NewEncoder(c.stderr)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if encoder.Encode(p) == nil {
			return
		}
	}
	p := problemOf(err)
	fmt.Fprintf(c.stderr, "error: %s: %s\n", clean(p.kind()), cleanLines(p.Detail))
	if p.Cause != "" {
		fmt.Fprintf(c.stderr, "  cause: %s\n", cleanLines(p.Cause))
	}
	if p.Field != "" {
		fmt.Fprintf(c.stderr, "  at: %s\n", clean(p.Field))
	}
	if p.Hint != "" {
		fmt.Fprintf(c.stderr, "  hint: %s\n", cleanLines(p.Hint))
	}
}

// problem is an error in the form of the API contract, from the region or from the command line.
type problem struct {
	api.Problem
	// Cause is what the database of a region said to a command that uses it directly.
	Cause string `json:"cause,omitempty"`
}

// kind is the last word of the type.
func (p problem) kind() string {
	for i := len(p.Type) - 1; i >= 0; i-- {
		if p.Type[i] == '/' || p.Type[i] == ':' {
			return p.Type[i+1:]
		}
	}
	return p.Type
}

func problemOf(err error) problem {
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return problem{Problem: api.ProblemOf(&fleet.Error{
			Kind: fleet.Invalid, Message: usage.Error(), Hint: "see holdfast --help",
		})}
	case errors.Is(err, context.DeadlineExceeded) && !isKnown(err):
		return problem{Problem: ownProblem("timeout", "timed out after --timeout")}
	case errors.Is(err, context.Canceled) && !isKnown(err):
		return problem{Problem: ownProblem("interrupted", "interrupted; operations that were started continue")}
	}
	return problem{Problem: api.ProblemOf(err), Cause: postgres.Cause(err)}
}

// ownProblem is one that only a command line can have.
func ownProblem(kind, detail string) api.Problem {
	return api.Problem{Type: "holdfast:problems/" + kind, Title: kind, Detail: detail}
}

func isKnown(err error) bool { return errors.As(err, new(*fleet.Error)) }

// reportAll prints errors and returns one that stands for them, with the highest code.
func (c *cli) reportAll(errs []error) error {
	worst := exitOK
	for _, err := range errs {
		c.complain(err)
		worst = max(worst, exitCodeOf(err))
	}
	if worst == exitOK {
		return nil
	}
	return &reported{worst}
}
