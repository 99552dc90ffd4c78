package serve

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// AnswerJSON answers outside of huma.
func AnswerJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone when this fails
	return nil
}

// Quoted is a text as an ETag.
func Quoted(s string) string { return `"` + s + `"` }

// Describe sets the headers that every answer with a body has.
func Describe(h http.Header, c fleet.Content) {
	h.Set("Content-Type", "application/json")
	if c.Kind == fleet.ContentArtifact {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("Holdfast-Size", strconv.FormatInt(c.Size, 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Rolling gives each write of a body its own deadline: a slow reader may take as long as it
// needs, one that stalls is cut. sent gets the number of bytes.
func (s *Server) Rolling(w http.ResponseWriter, sent func(int)) *RollingWriter {
	return &RollingWriter{ResponseWriter: w, control: http.NewResponseController(w), now: s.Now, stall: s.Stall, sent: sent}
}

// RollingWriter is an answer of Rolling.
type RollingWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	now     func() time.Time
	stall   time.Duration
	sent    func(int)
}

func (w *RollingWriter) Write(p []byte) (int, error) {
	// Where deadlines are not supported the connection's own limits hold.
	_ = w.control.SetWriteDeadline(w.now().Add(w.stall))
	n, err := w.ResponseWriter.Write(p)
	w.sent(n)
	return n, err
}

// FlushError sends what is buffered.
func (w *RollingWriter) FlushError() error { return w.control.Flush() }
