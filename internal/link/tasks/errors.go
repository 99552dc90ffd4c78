package tasks

import (
	"context"
	"errors"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// said is all that a node hears of what Temporal answers. The SDK decides by the code alone:
// a task that is not found is cancelled, what is unavailable is tried again.
var said = map[codes.Code]string{
	codes.Canceled:           "the call was cancelled",
	codes.DeadlineExceeded:   "the call took too long",
	codes.InvalidArgument:    "Temporal takes no such request",
	codes.NotFound:           "the task is no longer running",
	codes.FailedPrecondition: "the task is not in a state for this",
	codes.ResourceExhausted:  "too many requests",
	codes.Unavailable:        "Temporal is not available",
	codes.Unimplemented:      "this Temporal does not know this call",
}

// outward gives an error of Temporal its code and nothing of what it says.
func outward(err error) error {
	code := codeOf(err)
	if text, known := said[code]; known {
		return status.Error(code, text)
	}
	return status.Error(codes.Internal, "Temporal failed to do this")
}

func codeOf(err error) codes.Code {
	var known serviceerror.ServiceError
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &known):
		return known.Status().Code()
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// unauthenticated keeps the status of who looked, if it is one.
func unauthenticated(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	return status.Error(codes.Unauthenticated, "who calls is not known")
}
