package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// What a caller without a token may cost (docs/limits.md).
const (
	// maxEnrolment is many times what a join token, two names and two keys take.
	maxEnrolment  = 4 << 10
	enrolmentTime = 10 * time.Second
	maxEnrolments = 64
	// drainTime is how long a known caller may take to send what no handler read of its request.
	drainTime = 5 * time.Second
)

// past is a deadline that is over.
var past = time.Unix(1, 0)

// open is for what needs no token. A caller without one is answered, and its connection closed.
func open(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strangers.Of(r.Context()).Known() {
			w.Header().Set("Connection", "close")
		}
		next(w, r)
	}
}

// bodyRead knows whether a body was read to its end.
type bodyRead struct {
	io.ReadCloser
	whole bool
}

func (b *bodyRead) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || errors.Is(err, io.EOF)
	return n, err //nolint:wrapcheck // io.EOF is compared with ==
}

// dismiss ends a request whose body was not read to its end: the server would wait for the rest of it.
// That of a caller whose connection is closed is not waited for. A body that was read to its end gets no
// deadline: net/http then reads the connection in the background, for the next request. If a deadline passed
// there, net/http would cancel the context of the connection and keep serving it: each further request would fail.
func (s *server) dismiss(w http.ResponseWriter, r *http.Request, body *bodyRead) {
	if r.ContentLength == 0 || body.whole {
		return
	}
	until := past
	if w.Header().Get("Connection") != "close" {
		until = s.now().Add(drainTime)
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // where it is not supported, nothing waits either
}

// readEnrolment reads the body of a caller that has shown nothing yet: all of it is here in time, or
// it is refused. When too many send one at once, the one that began first is cut.
func (s *server) readEnrolment(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxEnrolment {
		return nil, enrolmentTooLarge()
	}
	control := http.NewResponseController(w)
	var mu sync.Mutex
	over := false
	place := s.enrolling.Enter(func() {
		mu.Lock()
		defer mu.Unlock()
		if !over { // a controller is not used after its request
			_ = control.SetReadDeadline(past)
		}
	})
	defer func() {
		place.Leave()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxEnrolment+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fleet.Errorf(fleet.Unavailable, "timed out reading the body; the limit is %s", enrolmentTime).WithHint("retry")
	case err != nil:
		return nil, fleet.Errorf(fleet.Invalid, "the body ended after %d bytes", len(raw)).WithHint("retry")
	case len(raw) > maxEnrolment:
		return nil, enrolmentTooLarge()
	}
	return raw, nil
}

func enrolmentTooLarge() error {
	return fleet.Errorf(fleet.TooLarge, "the enrolment exceeds %d bytes", maxEnrolment).
		WithHint("send the join token, the names and the public keys of one node, as holdfast node does")
}
