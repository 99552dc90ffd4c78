package region

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// partsPath is where peers get what the templates are composed of that they have.
const partsPath = "/peer/v1/templates/"

// maxCopiedSpec is the longest spec of a generation that a peer may send.
const maxCopiedSpec = 4 << 20

// maxCopiedBody is the largest body of a copied template: that of any JSON document.
var maxCopiedBody = compose.DefaultLimits().MaxBytes

// partsMux is where handlers for peers are mounted.
type partsMux interface {
	Handle(pattern string, h http.Handler)
}

// shareParts serves the generations and bodies that the templates of peers are composed of.
func shareParts(h *httpapi.Handler, mux partsMux, caller func(*http.Request) fleet.RegionName) {
	for path, send := range map[string]func(fleet.RegionName, http.ResponseWriter, *http.Request) error{
		"{region}/{name}/generation": h.GenerationAs, "{region}/{name}/bodies/{hash}": h.BodyAs,
	} {
		mux.Handle("GET "+partsPath+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := send(caller(r), w, r); err != nil {
				serve.WriteProblem(w, serve.ProblemFor(err))
			}
		}))
	}
}

func partPath(of fleet.CopyKey, part string) string {
	return partsPath + url.PathEscape(string(of.Region)) + "/" + url.PathEscape(of.Name) + "/" + part
}

// peerParts gets what templates are composed of from peers.
type peerParts struct {
	send func(ctx context.Context, peer fleet.RegionName, path string, header http.Header) (*http.Response, error)
}

// Generation asks a peer for a generation that a template merges.
func (p peerParts) Generation(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, pin fleet.TemplatePin) (json.RawMessage, error) {
	query := url.Values{"template": {string(pin.Name)}, "generation": {strconv.FormatInt(pin.Generation, 10)}}
	resp, err := p.get(ctx, peer, partPath(of, "generation")+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxCopiedSpec+1))
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "read a generation: %w", err)
	}
	if len(raw) > maxCopiedSpec {
		return nil, fleet.Errorf(fleet.TooLarge, "region %s sent a spec of more than %d bytes", peer, maxCopiedSpec)
	}
	return raw, nil
}

// Body asks a peer for a part of a body.
func (p peerParts) Body(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, h fleet.Hash, offset, length int64) (io.ReadCloser, error) {
	resp, err := p.get(ctx, peer, partPath(of, "bodies/"+string(h)), http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)}})
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)) {
		_ = resp.Body.Close() // it is not what was asked for
		return nil, fleet.Errorf(fleet.Invalid, "region %s sent another part of a body", peer)
	}
	return resp.Body, nil
}

// get calls a peer. It returns not_found only for the peer's own answer, not for a path that an older peer does not serve.
func (p peerParts) get(ctx context.Context, peer fleet.RegionName, path string, header http.Header) (*http.Response, error) {
	resp, err := p.send(ctx, peer, path, header)
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "reach region %s: %w", peer, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	_ = resp.Body.Close() // what it says is in its own log
	if resp.StatusCode == http.StatusNotFound && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		return nil, fleet.Errorf(fleet.NotFound, "region %s does not have this", peer)
	}
	return nil, fleet.Errorf(fleet.Unavailable, "region %s answers %s", peer, resp.Status)
}

// send calls a peer.
func (p peerStreams) send(ctx context.Context, peer fleet.RegionName, path string, header http.Header) (*http.Response, error) {
	to, err := p.find(ctx, peer)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.URL(path), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return to.Client.Do(req)
}
