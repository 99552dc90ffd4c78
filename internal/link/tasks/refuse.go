package tasks

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Door is what refusals of this package are written down under.
const Door = "tasks"

// Reasons of refusals: stable words.
const (
	reasonMethod    = "method_not_allowed"
	reasonNotNode   = "not_a_node"
	reasonNamespace = "wrong_namespace"
	reasonQueue     = "not_its_queue"
	reasonToken     = "not_its_task"
	reasonTooLarge  = "too_large"
)

// whatMost bounds what a caller can have written down or handed on.
const whatMost = 200

// ourMethods are what a newer node may try at an older server: no attack, only unknown.
const ourMethods = "/holdfast."

// Unknown answers every call that no service of the link serves (grpc.UnknownServiceHandler).
func (s *Server) Unknown(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	identity, _, err := s.opt.Identity(ctx)
	if err != nil {
		return unauthenticated(err)
	}
	method, _ := grpc.MethodFromServerStream(stream)
	if strings.HasPrefix(method, ourMethods) {
		return status.Error(codes.Unimplemented, "this server does not know this call")
	}
	return s.refuse(identity, reasonMethod, method)
}

// refuse writes a refusal down and answers it.
func (s *Server) refuse(identity, reason, what string) error {
	s.opt.Refuse(identity, reason, bounded(what))
	return status.Error(codes.PermissionDenied, "refused: "+reason)
}

// bounded keeps what a caller chose short and storable.
func bounded(what string) string {
	what = strings.ToValidUTF8(strings.ReplaceAll(what, "\x00", ""), "?")
	if len(what) > whatMost {
		what = strings.ToValidUTF8(what[:whatMost], "")
	}
	return what
}
