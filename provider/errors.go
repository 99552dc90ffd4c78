package provider

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ErrUnreachable is returned by Run when it gives up: MaxReconnectAttempts attempts in a row have failed. It
// wraps the last failure.
var ErrUnreachable = errors.New("the region is permanently unreachable")

// ErrReplaced is returned by Run when another process registered under the same identity and name, and took
// over. Two providers of one identity need two names.
var ErrReplaced = errors.New("another process registered as the same provider")

// RefusedError is returned by Run when the region refused the provider and a retry would not change that.
type RefusedError struct {
	Code    codes.Code
	Message string
}

// Error includes what to do about it.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the region refused this provider: %s (%s)", e.Message, e.remedy())
}

func (e *RefusedError) remedy() string {
	switch e.Code { //nolint:exhaustive // the codes that refusal selects
	case codes.Unauthenticated:
		return "check the token: it is wrong, revoked or expired"
	case codes.PermissionDenied:
		return "this identity has no such permission, or no longer: ask an operator to grant the module namespace"
	case codes.FailedPrecondition:
		return "the region does not support the protocol version of this package"
	case codes.Unimplemented:
		return "check that the address is a region's link, and that its version is not too old"
	}
	return "correct the options"
}

// DrainedError is returned by Run after a drain.
type DrainedError struct {
	Reason string
	// Left is the number of unfinished executions at the deadline.
	Left int
}

// Error gives the reason, and the unfinished work.
func (e *DrainedError) Error() string {
	if e.Left == 0 {
		return "drained: " + e.Reason
	}
	return fmt.Sprintf("drained: %s, with %d executions unfinished at the deadline", e.Reason, e.Left)
}

// How a connection may end without a failure.
var (
	errClosed      = errors.New("closed by this side")
	errStreamEnded = errors.New("the region closed the stream")
)

// registerAgainError: the region does not know the connection.
type registerAgainError struct{ reason string }

func (e *registerAgainError) Error() string { return "the region asked to register again: " + e.reason }

// silenceError is a timeout of the watchdog or of a send: the server counts as unhealthy (C21).
type silenceError struct {
	what string
	wait time.Duration
}

func (e *silenceError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.wait) }

// streamRefusal is refusal for a stream, which the region ends with the event that ended the connection.
func streamRefusal(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.Aborted && st.Message() == string(fleet.Replaced) {
		return ErrReplaced
	}
	return refusal(err)
}

// unanswered tells whether a call may have reached the region without an answer.
func unanswered(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // the others are answers
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// refusal turns the error into a refusal if a retry would not change it.
func refusal(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() { //nolint:exhaustive // a retry may fix the others
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return &RefusedError{Code: st.Code(), Message: st.Message()}
	}
	return err
}
