package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// firstPiece is what a body takes without a reservation, and grownBy how many times more is
	// reserved each time when that is full.
	firstPiece = 64 << 10
	grownBy    = 4
	// slowest is how many bytes a second a body comes at, at least, on the whole.
	slowest = 16 << 10
)

// WithBody reads the body of a request whole and hands it to f. Memory stays bounded however many
// are sent at once, and however slowly.
func (s *Server) WithBody(ctx context.Context, limit int64, f func(raw []byte) error) error {
	c := CallOf(ctx)
	memory := s.Memory.Begin(c.share)
	defer memory.End()
	raw, err := s.readBody(c.w, c.Request, limit, memory)
	if err != nil {
		return err
	}
	return f(raw)
}

// readBody reads a body whole. What it takes is reserved until memory ends.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64, memory *Held) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, decode.TooLarge(limit)
	}
	body := s.RollingBody(w, r)
	body.slowest = slowest
	most := limit + 1 // one byte more shows that it is too long, or at its end
	if r.ContentLength >= 0 {
		most = r.ContentLength + 1
	}
	raw := make([]byte, 0, min(firstPiece, most))
	for {
		if len(raw) == cap(raw) {
			more := min(grownBy*int64(cap(raw)), most)
			waits := s.Now()
			if err := memory.Grow(r.Context(), more-int64(cap(raw))); err != nil {
				return nil, err
			}
			body.began = body.began.Add(s.Now().Sub(waits)) // that was not the sender's time
			raw = append(make([]byte, 0, more), raw...)
		}
		n, err := body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > limit:
			return nil, decode.TooLarge(limit)
		case errors.Is(err, io.EOF):
			return raw, body.Settle()
		case errors.As(err, new(*fleet.Error)):
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fleet.Errorf(fleet.Invalid, "the body stalled after %d bytes", len(raw)).
				WithHint(fmt.Sprintf("retry with at least %d bytes per second", slowest))
		case err != nil:
			return nil, fleet.Errorf(fleet.Invalid, "the body ended after %d bytes", len(raw)).WithHint("retry")
		}
	}
}

// RollingReader gives each read of a body its own deadline: one that stalls is cut, and one that is
// slower than slowest on the whole. What lasts is refused once the token that let it in is void.
type RollingReader struct {
	from    io.Reader
	still   func() error
	checked time.Time
	w       *http.ResponseController
	now     func() time.Time
	stall   time.Duration
	slowest int64 // bytes a second; 0 is as slow as it likes
	began   time.Time
	read    int64
}

// RollingBody is the body of a request, for a handler that does not read it whole.
func (s *Server) RollingBody(w http.ResponseWriter, r *http.Request) *RollingReader {
	now := s.Now()
	out := &RollingReader{from: r.Body, w: http.NewResponseController(w), now: s.Now, stall: s.Stall, began: now, checked: now}
	if still := CallOf(r.Context()).Still; still != nil {
		out.still = func() error { return still(r.Context()) }
	}
	return out
}

func (r *RollingReader) Read(p []byte) (int, error) {
	until := r.now().Add(r.stall)
	if r.slowest > 0 {
		due := r.began.Add(r.stall + time.Duration(r.read)*time.Second/time.Duration(r.slowest))
		if due.Before(until) {
			until = due
		}
	}
	if err := r.deadline(until); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.read += int64(n)
	if now := r.now(); r.still != nil && now.Sub(r.checked) >= tokenLife {
		if void := r.still(); void != nil {
			return 0, void
		}
		r.checked = now
	}
	return n, err
}

// Settle takes the deadline away, which would else cut the answer's connection.
func (r *RollingReader) Settle() error { return r.deadline(time.Time{}) }

func (r *RollingReader) deadline(at time.Time) error {
	if err := r.w.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// ReadJSON reads a small request. One without a body is refused unless it may be empty.
func (s *Server) ReadJSON(ctx context.Context, into any) (raw []byte, err error) {
	err = s.WithBody(ctx, decode.Small, func(body []byte) error {
		raw = body
		return decode.Body(body, into)
	})
	return raw, err
}

// ReadOptional is ReadJSON for a request that may have no body at all.
func (s *Server) ReadOptional(ctx context.Context, into any) (raw []byte, err error) {
	err = s.WithBody(ctx, decode.Small, func(body []byte) error {
		raw = body
		if len(bytes.TrimSpace(body)) == 0 {
			return nil
		}
		return decode.Body(body, into)
	})
	return raw, err
}
