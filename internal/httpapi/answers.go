package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// answerJSON answers outside of huma.
func answerJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone when this fails
	return nil
}

func quoted(s string) string { return `"` + s + `"` }

// describe sets the headers that every answer with a body has.
func describe(h http.Header, c fleet.Content) {
	h.Set("Content-Type", "application/json")
	if c.Kind == fleet.ContentArtifact {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("Holdfast-Size", strconv.FormatInt(c.Size, 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// rolling gives each write of a body its own deadline: a slow reader may take as long as it
// needs, one that stalls is cut. sent gets the number of bytes.
func (s *core) rolling(w http.ResponseWriter, sent func(int)) *rollingWriter {
	return &rollingWriter{ResponseWriter: w, control: http.NewResponseController(w), now: s.now, stall: s.stall, sent: sent}
}

type rollingWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	now     func() time.Time
	stall   time.Duration
	sent    func(int)
}

func (w *rollingWriter) Write(p []byte) (int, error) {
	// Where deadlines are not supported the connection's own limits hold.
	_ = w.control.SetWriteDeadline(w.now().Add(w.stall))
	n, err := w.ResponseWriter.Write(p)
	w.sent(n)
	return n, err
}

// FlushError sends what is buffered.
func (w *rollingWriter) FlushError() error { return w.control.Flush() }
