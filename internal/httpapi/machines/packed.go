package machines

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const (
	// packedEach is the largest body that is kept compressed; larger ones are streamed.
	packedEach = 256 << 10
	// packedAll bounds what is kept, so that memory stays bounded whatever is fetched.
	packedAll = 8 << 20
)

// packed keeps bodies that were just compressed: the standby fetches what the active has
// fetched a moment ago. A body never changes under its hash, so nothing here can be stale;
// what is missing is compressed again.
type packed struct {
	mu    sync.Mutex
	size  int
	order []packedKey // oldest first
	kept  map[packedKey][]byte
}

type packedKey struct {
	hash   fleet.Hash
	coding string
}

func newPacked() *packed { return &packed{kept: map[packedKey][]byte{}} }

func (p *packed) get(k packedKey) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, ok := p.kept[k]
	return body, ok
}

func (p *packed) put(k packedKey, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.kept[k]; ok {
		return
	}
	p.kept[k], p.order, p.size = body, append(p.order, k), p.size+len(body)
	for p.size > packedAll {
		oldest := p.order[0]
		p.size -= len(p.kept[oldest])
		delete(p.kept, oldest)
		p.order = p.order[1:]
	}
}

// sendPacked answers a fetch of a small body, compressed once for all who ask.
func (s *Calls) sendPacked(w *serve.RollingWriter, r *http.Request, c fleet.Content, coding string) error {
	key := packedKey{c.Hash, coding}
	body, ok := s.packed.get(key)
	if !ok {
		from, err := s.Store.OpenBody(r.Context(), c.Hash)
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := compressTo(&buf, from, coding); err != nil {
			return err
		}
		body = bytes.Clone(buf.Bytes())
		s.packed.put(key, body)
	}
	w.Header().Set("Content-Encoding", coding)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the node is gone when this fails
	}
	return nil
}
