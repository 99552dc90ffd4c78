package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// problemStatus is the one place where kinds become HTTP statuses.
var problemStatus = map[fleet.Kind]int{
	fleet.Invalid:          http.StatusBadRequest,
	fleet.Unauthenticated:  http.StatusUnauthorized,
	fleet.Denied:           http.StatusForbidden,
	fleet.NotFound:         http.StatusNotFound,
	fleet.Conflict:         http.StatusConflict,
	fleet.IllegalState:     http.StatusUnprocessableEntity,
	fleet.Precondition:     http.StatusPreconditionFailed,
	fleet.TooLarge:         http.StatusRequestEntityTooLarge,
	fleet.RateLimited:      http.StatusTooManyRequests,
	fleet.Stale:            http.StatusNotFound,
	fleet.HashMismatch:     http.StatusUnprocessableEntity,
	fleet.ApplyFailed:      http.StatusUnprocessableEntity,
	fleet.Communication:    http.StatusBadGateway,
	fleet.Unavailable:      http.StatusServiceUnavailable,
	fleet.Gone:             http.StatusGone,
	fleet.IsolationMissing: http.StatusUnprocessableEntity,
	fleet.NotOwner:         http.StatusMisdirectedRequest,
	fleet.Internal:         http.StatusInternalServerError,
}

// ProblemFor is what a caller may know of an error. Internal details stay here.
func ProblemFor(err error) *api.Problem {
	var p *api.Problem
	if errors.As(err, &p) {
		return p
	}
	kind := fleet.KindOf(err)
	p = NewProblem(kind, "the region failed to do this")
	var e *fleet.Error
	if errors.As(err, &e) && kind != fleet.Internal {
		p.Detail, p.Field, p.Hint, p.Owner, p.Region = e.Message, e.Field, e.Hint, e.Owner, e.Region
	}
	if kind == fleet.Internal {
		p.Hint = "the server's log says why"
	}
	return p
}

// NewProblem is a problem of a kind.
func NewProblem(kind fleet.Kind, detail string) *api.Problem {
	status, known := problemStatus[kind]
	if !known {
		kind, status = fleet.Internal, http.StatusInternalServerError
	}
	return &api.Problem{
		Type: api.ProblemPrefix + string(kind), Title: strings.ReplaceAll(string(kind), "_", " "), Status: status, Detail: detail,
	}
}

// WriteProblem answers a request outside of huma.
func WriteProblem(w http.ResponseWriter, p *api.Problem) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone when this fails
}

// Refuse answers with the problem of an error, and logs the details that the caller does not get.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := s.Problem(r, err)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("Connection", "close")
	}
	WriteProblem(w, p)
}

// Problem is what the caller of a request may know of an error; it logs what that leaves out.
func (s *Server) Problem(r *http.Request, err error) *api.Problem {
	p := ProblemFor(err)
	if p.Owner != "" && s.addressOf != nil {
		address, err := s.addressOf(r.Context(), fleet.RegionName(p.Owner))
		if err != nil {
			return s.Problem(r, err)
		}
		if p.OwnerAddress = address; address != "" {
			p.Hint += "; its API: " + address
		}
	}
	s.audit(r, err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	return p
}

// Door is what refusals of the API are written down under.
const Door = "http"

// audit records denied requests.
func (s *Server) audit(r *http.Request, err error) {
	kind := fleet.KindOf(err)
	if kind != fleet.Unauthenticated && kind != fleet.Denied {
		return
	}
	who := CallOf(r.Context()).identity
	if token, err := Bearer(r); who == "" && err == nil {
		if node := identity.Claimed(token); node != "" {
			who = "?node:" + string(node)
		}
	}
	s.Refused(audit.Refusal{Door: Door, Identity: who, Reason: string(kind), What: r.Method + " " + r.URL.Path})
}

// init gives huma's own refusals the same form as ours; huma has one setting per process.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return humaProblem(status, message, errs)
	}
}

// humaProblem names the first thing that is wrong with a request; what was sent stays out,
// because it may be a secret.
func humaProblem(status int, message string, errs []error) *api.Problem {
	kind := fleet.Internal
	switch {
	case status == http.StatusUnprocessableEntity: // huma's word for a parameter that is wrong
		kind = fleet.Invalid
	case status < http.StatusInternalServerError:
		kind = api.KindOfStatus(status)
	}
	p := NewProblem(kind, message)
	if kind == fleet.Internal {
		p.Detail = "the region failed to do this"
		return p
	}
	var detail *huma.ErrorDetail
	if len(errs) > 0 && errors.As(errs[0], &detail) {
		p.Detail = detail.Message
		if _, field, found := strings.Cut(detail.Location, "."); found {
			p.Field = field
		}
	}
	return p
}
