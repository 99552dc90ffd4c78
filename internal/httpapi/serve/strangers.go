package serve

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/strangers"
)

// drainTime is how long a known caller may take to send what no handler read of its request.
const drainTime = 5 * time.Second

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Open is for what needs no token. A caller without one is answered, and its connection closed.
func Open(next http.HandlerFunc) http.HandlerFunc {
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
func (s *Server) dismiss(w http.ResponseWriter, r *http.Request, body *bodyRead) {
	if r.ContentLength == 0 || body.whole {
		return
	}
	until := past
	if w.Header().Get("Connection") != "close" {
		until = s.Now().Add(drainTime)
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // where it is not supported, nothing waits either
}
