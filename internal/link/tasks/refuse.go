package tasks

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Door is the name of this package in refusals.
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

// whatMost limits the caller's text that is recorded or passed on.
const whatMost = 200

// ourMethods are methods that a newer node may call at an older server: not an attack, just unknown.
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
		return status.Error(codes.Unimplemented, "this server does not support the call")
	}
	return s.refuse(identity, reasonMethod, method)
}

// refuse records a refusal and returns its status.
func (s *Server) refuse(identity, reason, what string) error {
	s.opt.Refuse(identity, reason, bounded(what))
	return status.Error(codes.PermissionDenied, "refused: "+reason)
}

// bounded makes a caller's text short and storable.
func bounded(what string) string {
	what = strings.ToValidUTF8(strings.ReplaceAll(what, "\x00", ""), "?")
	if len(what) > whatMost {
		what = strings.ToValidUTF8(what[:whatMost], "")
	}
	return what
}
