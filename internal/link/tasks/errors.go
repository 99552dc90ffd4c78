package tasks

import (
	"context"
	"errors"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// said is all that a node gets of Temporal's errors. The SDK decides by the code alone: it cancels a task that is
// not found, and retries what is unavailable.
var said = map[codes.Code]string{
	codes.Canceled:           "the call was cancelled",
	codes.DeadlineExceeded:   "the call took too long",
	codes.InvalidArgument:    "Temporal rejected the request",
	codes.NotFound:           "the task is no longer running",
	codes.FailedPrecondition: "the task's state does not allow this",
	codes.ResourceExhausted:  "too many requests",
	codes.Unavailable:        "Temporal is not available",
	codes.Unimplemented:      "this Temporal does not support the call",
}

// outward gives an error of Temporal its code and hides its message.
func outward(err error) error {
	code := codeOf(err)
	if text, known := said[code]; known {
		return status.Error(code, text)
	}
	return status.Error(codes.Internal, "internal error in Temporal")
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

// unauthenticated keeps the error if it is already a status.
func unauthenticated(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	return status.Error(codes.Unauthenticated, "the caller is unknown")
}
