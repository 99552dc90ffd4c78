package provider

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ErrUnreachable is what Run returns when it has given up: MaxReconnectAttempts attempts in a
// row have failed. Its chain has the last failure.
var ErrUnreachable = errors.New("the region is permanently unreachable")

// ErrReplaced is what Run returns when another process registered under the same identity
// and name: it took over. Two providers of one identity need two names.
var ErrReplaced = errors.New("another process registered as the same provider")

// RefusedError is what Run returns when the region refused in a way that repeating does not
// change.
type RefusedError struct {
	Code    codes.Code
	Message string
}

// Error says what to do about it.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the region refused this provider: %s (%s)", e.Message, e.remedy())
}

func (e *RefusedError) remedy() string {
	switch e.Code { //nolint:exhaustive // the codes that refusal picks
	case codes.Unauthenticated:
		return "check the token: it is wrong, revoked or expired"
	case codes.PermissionDenied:
		return "this identity may not do it, or no longer: an operator grants module namespaces, and revokes"
	case codes.FailedPrecondition:
		return "this version of the package is not spoken there"
	case codes.Unimplemented:
		return "the address is not a region's link, or its version is too old"
	}
	return "correct the options"
}

// DrainedError is what Run returns after a drain.
type DrainedError struct {
	Reason string
	// Left is how much was still at work at the deadline.
	Left int
}

// Error says why, and whether all work was done.
func (e *DrainedError) Error() string {
	if e.Left == 0 {
		return "drained: " + e.Reason
	}
	return fmt.Sprintf("drained: %s, with %d still at work at the deadline", e.Reason, e.Left)
}

// How a connection may end beside a failure.
var (
	errClosed      = errors.New("closed by this side")
	errStreamEnded = errors.New("the region closed the stream")
)

// registerAgainError is the region's answer that it does not know the connection.
type registerAgainError struct{ reason string }

func (e *registerAgainError) Error() string { return "the region asked to register again: " + e.reason }

// silenceError is the watchdog's and the senders': the server is taken for unhealthy (C21).
type silenceError struct {
	what string
	wait time.Duration
}

func (e *silenceError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.wait) }

// streamRefusal is refusal of a stream, which the region ends with the event that ended the
// connection.
func streamRefusal(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.Aborted && st.Message() == string(fleet.Replaced) {
		return ErrReplaced
	}
	return refusal(err)
}

// unanswered says that a call may have reached the region, which said nothing of it.
func unanswered(err error) bool {
	switch status.Code(err) { //nolint:exhaustive // the others are answers
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// refusal gives the error as a refusal if repeating the call would not change it.
func refusal(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() { //nolint:exhaustive // the others may heal
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return &RefusedError{Code: st.Code(), Message: st.Message()}
	}
	return err
}
