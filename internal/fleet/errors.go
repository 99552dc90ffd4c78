package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Kind is the error vocabulary of Holdfast: the Temporal error type, the tail of the HTTP problem type, and the
// word that the CLI prints.
type Kind string

// The kinds. Each edge (HTTP, Temporal, CLI exit code) maps every one of them once.
const (
	Invalid         Kind = "invalid"
	Unauthenticated Kind = "unauthenticated"
	Denied          Kind = "denied"
	NotFound        Kind = "not_found"
	Conflict        Kind = "conflict"
	IllegalState    Kind = "illegal_state"
	Precondition    Kind = "precondition"
	TooLarge        Kind = "too_large"
	RateLimited     Kind = "rate_limited"
	Stale           Kind = "stale"
	HashMismatch    Kind = "hash_mismatch"
	ApplyFailed     Kind = "apply_failed"
	Communication   Kind = "communication"
	Unavailable     Kind = "unavailable"
	Gone            Kind = "gone"
	// IsolationMissing: a node that cannot isolate projects was asked to run a command of a project other than its
	// site's.
	IsolationMissing Kind = "isolation_missing"
	// NotOwner: another region owns the object, and only that one writes it.
	NotOwner Kind = "not_owner"
	Internal Kind = "internal"
)

// Kinds lists every kind; the maps at the edges are tested against it.
func Kinds() []Kind {
	return []Kind{
		Invalid, Unauthenticated, Denied, NotFound, Conflict, IllegalState, Precondition, TooLarge,
		RateLimited, Stale, HashMismatch, ApplyFailed, Communication, Unavailable, Gone, IsolationMissing, NotOwner, Internal,
	}
}

// Retryable reports whether the same call may succeed later without a change by the caller.
func (k Kind) Retryable() bool {
	switch k {
	case Communication, RateLimited, Unavailable, Internal:
		return true
	case Invalid, Unauthenticated, Denied, NotFound, Conflict, IllegalState, Precondition, TooLarge,
		Stale, HashMismatch, ApplyFailed, Gone, IsolationMissing, NotOwner:
		return false
	}
	return true
}

// Error is the error of every package that knows what went wrong. Message is what is wrong, Hint what to do, Field
// where in the input (a JSON pointer or a parameter name). None of them may contain a secret or a part of a config
// body.
type Error struct {
	Kind    Kind
	Message string
	Hint    string
	Field   string
	Owner   string // the region that owns the object, of NotOwner
	Region  string // the region that created the object, of NotOwner
	Err     error
}

// Errorf builds an Error of one kind; a %w operand stays reachable by errors.Is and As.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of the error with a hint what to do.
func (e *Error) WithHint(hint string) *Error { c := *e; c.Hint = hint; return &c }

// At returns a copy of the error with its place in the input.
func (e *Error) At(field string) *Error { c := *e; c.Field = field; return &c }

const maxField = 1024

// CutField bounds the place in an answer: names may be as long as the request.
func CutField(at string) string {
	if len(at) > maxField {
		at = strings.ToValidUTF8(at[:maxField], "") + "…"
	}
	return cmp.Or(at, "/")
}

// Error is the message, with its place and hint if there are any.
func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error, Internal if it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// OfRegion says that an error is no fault of an object.
func OfRegion(err error) bool {
	kind := KindOf(err)
	return err != nil && (kind == Unavailable || kind == Internal)
}

// OrList joins alternatives: "a, b or c".
func OrList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
