package link

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// statusCode is the only place where kinds become gRPC codes.
var statusCode = map[fleet.Kind]codes.Code{
	fleet.Invalid:          codes.InvalidArgument,
	fleet.Unauthenticated:  codes.Unauthenticated,
	fleet.Denied:           codes.PermissionDenied,
	fleet.NotFound:         codes.NotFound,
	fleet.Conflict:         codes.Aborted,
	fleet.IllegalState:     codes.FailedPrecondition,
	fleet.Precondition:     codes.FailedPrecondition,
	fleet.TooLarge:         codes.InvalidArgument,
	fleet.RateLimited:      codes.ResourceExhausted,
	fleet.Stale:            codes.NotFound,
	fleet.HashMismatch:     codes.FailedPrecondition,
	fleet.ApplyFailed:      codes.FailedPrecondition,
	fleet.Communication:    codes.Unavailable,
	fleet.Unavailable:      codes.Unavailable,
	fleet.Gone:             codes.FailedPrecondition,
	fleet.IsolationMissing: codes.FailedPrecondition,
	fleet.NotOwner:         codes.FailedPrecondition,
	fleet.Internal:         codes.Internal,
}

// StatusOf is the part of an error that a caller may see; internal details stay here.
func StatusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	kind := fleet.KindOf(err)
	var e *fleet.Error
	if kind == fleet.Internal || !errors.As(err, &e) {
		return status.Error(codes.Internal, "internal error: see the server's log")
	}
	return status.Error(statusCode[kind], e.Error())
}

// endCode is how a stream ends, by the event that ended its connection, which is also the message. A provider that
// reconnects registers anew.
var endCode = map[fleet.ConnectionEvent]codes.Code{
	fleet.StreamRequired:  codes.DeadlineExceeded,
	fleet.HeartbeatLapsed: codes.DeadlineExceeded,
	fleet.StreamFailed:    codes.Unavailable,
	fleet.StreamClosed:    codes.OK,
	fleet.DrainDeadline:   codes.Aborted,
	fleet.Deregistered:    codes.OK,
	fleet.Replaced:        codes.Aborted,
	fleet.Revoked:         codes.PermissionDenied,
	fleet.ServerLapsed:    codes.Unavailable,
}

func endStatus(on fleet.ConnectionEvent) error {
	if code := endCode[on]; code != codes.OK {
		return status.Error(code, string(on))
	}
	return nil
}
