package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// answered is the cause of an error that the region gave, as it was sent.
type answered struct {
	problem Problem
	after   time.Duration // Retry-After
}

// Error makes it a cause; the message that people read is in the Error around it.
func (a *answered) Error() string { return strconv.Itoa(a.problem.Status) + " " + a.problem.Title }

// lost is the cause of an error when no answer came.
type lost struct {
	err   error
	final bool // another try cannot help
}

func (l *lost) Error() string { return l.err.Error() }
func (l *lost) Unwrap() error { return l.err }

// ProblemOf gives an error in the form of the contract: with type and status as the region
// sent them, or made from the kind when the error arose on this side.
func ProblemOf(err error) Problem {
	kind := string(KindOf(err))
	p := Problem{Type: ProblemPrefix + kind, Title: strings.ReplaceAll(kind, "_", " "), Detail: err.Error()}
	var a *answered
	if errors.As(err, &a) {
		p = a.problem
	}
	var e *Error
	if errors.As(err, &e) {
		p.Detail, p.Field, p.Hint, p.Owner, p.Region = e.Message, e.Field, e.Hint, e.Owner, e.Region
	}
	return p
}

const maxProblem = 1 << 20

// ReadRefusal reads an unsuccessful answer. One without a problem document comes from
// something in between, so only its status counts.
func ReadRefusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // a cut body still leaves the status
	p := Problem{}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(body, &p) != nil {
		p = Problem{}
	}
	kind := Kind(path.Base(strings.ReplaceAll(p.Type, ":", "/")))
	if !slices.Contains(fleet.Kinds(), kind) {
		kind = KindOfStatus(resp.StatusCode)
	}
	if p.Detail == "" {
		p.Hint = hint.Region(errors.New(string(body)))
		p.Detail = strings.ToLower(http.StatusText(resp.StatusCode))
		if p.Detail == "" {
			p.Detail = "status " + strconv.Itoa(resp.StatusCode)
		}
	}
	if p.Type == "" {
		p.Type, p.Title = ProblemPrefix+string(kind), http.StatusText(resp.StatusCode)
	}
	p.Status = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // absent or a date: the usual pause
	return &Error{
		Kind: kind, Message: p.Detail, Field: p.Field, Hint: p.Hint, Owner: p.Owner, Region: p.Region,
		Err: &answered{problem: p, after: time.Duration(max(seconds, 0)) * time.Second},
	}
}

// KindOfStatus is for answers that are no problem documents.
func KindOfStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized:
		return Unauthenticated
	case http.StatusForbidden:
		return Denied
	case http.StatusNotFound:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusMisdirectedRequest:
		return NotOwner
	case http.StatusGone:
		return Gone
	case http.StatusPreconditionFailed:
		return Precondition
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusUnprocessableEntity:
		return IllegalState
	case http.StatusTooManyRequests:
		return RateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Unavailable
	}
	if status >= 400 && status < 500 {
		return Invalid
	}
	return Internal
}

// unreachable says that no whole answer came.
func (c *Client) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the rest repeats method and address
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	advice := hint.Region(err) // what it is about is not gone a moment later
	final := advice != ""
	if !final {
		var cert *tls.CertificateVerificationError
		advice, final = "check the address, and that the region runs", errors.As(err, &cert)
	}
	return &Error{
		Kind: Unavailable, Message: "no answer from the region at " + c.base + ": " + err.Error(),
		Hint: advice, Err: &lost{err: err, final: final},
	}
}

// again says whether the same call may go well a moment later: nothing answered, or the
// region said "not now". Anything else is an answer.
func again(err error) bool {
	var a *answered
	if errors.As(err, &a) {
		return a.problem.Status == http.StatusServiceUnavailable || a.problem.Status == http.StatusTooManyRequests
	}
	var l *lost
	return errors.As(err, &l) && !l.final
}

const maxRetryAfter = 10 * time.Second

func retryAfter(err error) time.Duration {
	var a *answered
	if errors.As(err, &a) {
		return min(a.after, maxRetryAfter)
	}
	return 0
}
