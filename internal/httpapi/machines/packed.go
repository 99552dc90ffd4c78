package machines

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/bodycache"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const (
	// packedEach is the largest body that is kept compressed; larger ones are streamed.
	packedEach = 256 << 10
	// packedAll bounds what is kept, so that memory stays bounded whatever is fetched.
	packedAll = 8 << 20
)

// packedKey names a body that was just compressed: the standby fetches what the active has fetched a moment ago. What is
// not kept any more is compressed again.
type packedKey struct {
	hash   fleet.Hash
	coding string
}

func newPacked() *bodycache.Cache[packedKey] { return bodycache.New[packedKey](packedAll, packedAll) }

// sendPacked answers a fetch of a small body, compressed once for all who ask.
func (s *Calls) sendPacked(w *serve.RollingWriter, r *http.Request, c fleet.Content, coding string) error {
	key := packedKey{c.Hash, coding}
	body, ok := s.packed.Get(key)
	if !ok {
		from, err := s.Store.OpenBody(r.Context(), c.Hash)
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := compressTo(&buf, from, coding); err != nil {
			return err
		}
		body = buf.Bytes()
		s.packed.Put(key, body)
	}
	w.Header().Set("Content-Encoding", coding)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the node is gone when this fails
	}
	return nil
}
