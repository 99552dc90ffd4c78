package machines

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// bodiesMedia is a stream of bodies: of each its raw SHA-256, its length in 8 bytes, the
// highest first, and the bytes. It ends where the answer ends.
const bodiesMedia = "application/vnd.holdfast.bodies"

// pieces is an answer that is written piece by piece, compressed when the caller takes that.
// Nothing is sent before the first piece, so an earlier failure can still be reported.
type pieces struct {
	s      *Calls
	r      *http.Request
	w      http.ResponseWriter
	coding string
	to     io.WriteCloser // nil before the first piece
}

func (s *Calls) newPieces(w http.ResponseWriter, r *http.Request) *pieces {
	return &pieces{s: s, r: r, w: w, coding: acceptedCoding(r)}
}

func (t *pieces) Write(p []byte) (int, error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	return t.to.Write(p)
}

func (t *pieces) begin() error {
	if t.to != nil {
		return nil
	}
	sent := t.s.fetchBytes.WithLabelValues(t.coding)
	to, err := compressor(t.s.Rolling(t.w, func(n int) { sent.Add(float64(n)) }), t.coding)
	if err != nil {
		return err
	}
	h := t.w.Header()
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	if t.coding != codingIdentity {
		h.Set("Content-Encoding", t.coding)
	}
	t.w.WriteHeader(http.StatusOK)
	t.to = to
	return nil
}

// end closes an answer; one that failed on its way is cut off, so that it never looks whole.
func (t *pieces) end(err error) error {
	if t.to == nil && err != nil {
		return err
	}
	if err == nil {
		if err = t.begin(); err != nil {
			return err
		}
		err = t.to.Close() // of what failed it stays open: closing would complete it
	}
	if err != nil {
		if t.r.Context().Err() == nil {
			t.s.Log.Info("answer ended early", "path", t.r.URL.Path, "err", err)
		}
		serve.Abort()
	}
	return nil
}

// sendBodies streams what read emits, with the memory of one body.
func (s *Calls) sendBodies(w http.ResponseWriter, r *http.Request, read func(emit func(fleet.Hash, []byte) error) error) error {
	h := w.Header()
	h.Set("Content-Type", bodiesMedia)
	h.Set("Cache-Control", "no-store")
	out := s.newPieces(w, r)
	return out.end(read(func(hash fleet.Hash, body []byte) error {
		if len(body) > fleet.MaxBatchBody {
			return nil // is fetched by itself
		}
		head, err := hex.DecodeString(string(hash))
		if err != nil {
			return fleet.Errorf(fleet.Internal, "a body under no hash")
		}
		if _, err := out.Write(binary.BigEndian.AppendUint64(head, uint64(len(body)))); err != nil {
			return err
		}
		_, err = out.Write(body)
		return err
	}))
}
