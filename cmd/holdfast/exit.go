package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The exit codes. They are a stable interface for scripts.
const (
	exitOK              = 0
	exitError           = 1
	exitUsage           = 2
	exitChanges         = 3
	exitNotFound        = 4
	exitDenied          = 5
	exitConflict        = 6
	exitOperationFailed = 7
	exitUnknown         = 8
	exitTimeout         = 9
	exitUnreachable     = 10
)

var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitError, "an error of another kind"},
	{exitUsage, "invalid command line or input"},
	{exitChanges, "a plan found changes"},
	{exitNotFound, "not found"},
	{exitDenied, "not authenticated, or not allowed"},
	{exitConflict, "conflict, failed precondition, or not possible in this state; superseded"},
	{exitOperationFailed, "the operation ended as failed or cancelled"},
	{exitUnknown, "the operation ended as unknown: whether it was applied is not yet known"},
	{exitTimeout, "timed out (--timeout); operations that were started continue"},
	{exitUnreachable, "the region is unreachable or busy: try again"},
}

// exitOfKind maps every kind of error to its code.
var exitOfKind = map[fleet.Kind]int{
	fleet.Invalid:          exitUsage,
	fleet.TooLarge:         exitUsage,
	fleet.Unauthenticated:  exitDenied,
	fleet.Denied:           exitDenied,
	fleet.NotFound:         exitNotFound,
	fleet.Gone:             exitNotFound,
	fleet.Conflict:         exitConflict,
	fleet.IllegalState:     exitConflict,
	fleet.Precondition:     exitConflict,
	fleet.IsolationMissing: exitConflict,
	fleet.NotOwner:         exitConflict,
	fleet.Stale:            exitConflict,
	fleet.HashMismatch:     exitOperationFailed,
	fleet.ApplyFailed:      exitOperationFailed,
	fleet.Communication:    exitUnreachable,
	fleet.Unavailable:      exitUnreachable,
	fleet.RateLimited:      exitUnreachable,
	fleet.Internal:         exitError,
}

// exitOfState maps every visible state of an operation to its code; a running one was not waited for.
var exitOfState = map[fleet.OperationState]int{
	fleet.OperationRunning:    exitOK,
	fleet.OperationSucceeded:  exitOK,
	fleet.OperationFailed:     exitOperationFailed,
	fleet.OperationCancelled:  exitOperationFailed,
	fleet.OperationUnknown:    exitUnknown,
	fleet.OperationSuperseded: exitConflict,
}

// usageError is an error of the command line itself.
type usageError struct{ error }

func (u *usageError) Unwrap() error { return u.error }

// reported stands for errors that were already printed; code is that of the worst.
type reported struct{ code int }

func (r *reported) Error() string { return fmt.Sprintf("ended with code %d", r.code) }

// exitCodeOf is the only place where an error becomes a code.
func exitCodeOf(err error) int {
	var earlier *reported
	var ended *endedBadly
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &earlier):
		return earlier.code
	case errors.As(err, new(*usageError)):
		return exitUsage
	case errors.As(err, &ended):
		return exitOfOperation(ended.state)
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.Is(err, context.Canceled):
		return exitError
	}
	if code, known := exitOfKind[fleet.KindOf(err)]; known {
		return code
	}
	return exitError
}

// exitOfOperation treats an unknown state as an error.
func exitOfOperation(state fleet.OperationState) int {
	if code, known := exitOfState[state]; known {
		return code
	}
	return exitError
}

func newExitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Every command ends with one of these codes. A command that did several things ends with\nthe highest of theirs.\n\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&text, "  %2d  %s\n", e.code, e.meaning)
	}
	text.WriteString("\nA change of what another region owns continues with the saved context of that region, and ends as it does there;\nwithout one it ends as not_owner.\n")
	text.WriteString("\nThe kinds of error for each code (the word after \"error:\"):\n\n")
	for _, e := range exitMeanings {
		var kinds []string
		for _, k := range fleet.Kinds() {
			if exitOfKind[k] == e.code {
				kinds = append(kinds, string(k))
			}
		}
		if len(kinds) > 0 {
			fmt.Fprintf(&text, "  %2d  %s\n", e.code, strings.Join(kinds, ", "))
		}
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: strings.TrimRight(text.String(), "\n")}
}
