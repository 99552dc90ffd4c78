package machines

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// What a fetch can be refused for, as /metrics counts it.
const (
	refusedDead  = "dead_id"
	refusedToken = "token"
)

const (
	codingIdentity = "identity"
	codingZstd     = "zstd"
	codingGzip     = "gzip"
	// minCompressed is the size below which compressing saves no packet.
	minCompressed = 1400
	zstdWindow    = 1 << 20
)

// fetchable finds what an id stands for and checks the token: a dead id is not_found
// whatever the token, a live one with another token is unauthenticated (N91).
func (s *Calls) fetchable(r *http.Request) (deliveries.FetchContent, error) {
	id := chi.URLParam(r, "id")
	dead := fleet.Errorf(fleet.NotFound, "no delivery is open under this id")
	if !fleet.ValidID(id) {
		s.fetchNo.WithLabelValues(refusedDead).Inc()
		return deliveries.FetchContent{}, dead
	}
	found, err := s.Store.Fetchable(r.Context(), id)
	if fleet.KindOf(err) == fleet.NotFound && err != nil {
		s.fetchNo.WithLabelValues(refusedDead).Inc()
		return found, dead
	}
	if err != nil {
		return found, err
	}
	_, err = s.opens(r, found.Tokens)
	return found, err
}

// opens checks the token of a request, and returns the node that it was sealed to.
func (s *Calls) opens(r *http.Request, tokens []deliveries.FetchToken) (fleet.NodeName, error) {
	token, err := serve.Bearer(r)
	node, matches := whoseToken(token, tokens)
	if err == nil && !matches {
		err = fleet.Errorf(fleet.Unauthenticated, "the token is not valid for this delivery")
	}
	if err != nil {
		s.fetchNo.WithLabelValues(refusedToken).Inc()
		return "", err
	}
	strangers.Of(r.Context()).Admit()
	return node, nil
}

// whoseToken looks at every token, so that its time tells nothing about which one is near.
func whoseToken(token string, tokens []deliveries.FetchToken) (node fleet.NodeName, matches bool) {
	for _, t := range tokens {
		if identity.TokenMatches(token, t.Hash) {
			node, matches = t.Node, true
		}
	}
	return node, matches
}

// fetchConfig gives a node the body of its delivery (N22 to N31).
func (s *Calls) fetchConfig(w http.ResponseWriter, r *http.Request) error {
	found, err := s.fetchable(r)
	if err != nil {
		return err
	}
	if found.Content.Hash == "" {
		return fleet.Errorf(fleet.NotFound, "this delivery has no config")
	}
	h := w.Header()
	serve.Describe(h, found.Content)
	h.Set("Vary", "Accept-Encoding")
	coding := codingFor(r, found.Content)
	sent := s.fetchBytes.WithLabelValues(coding)
	out := s.Rolling(w, func(n int) { sent.Add(float64(n)) })
	identityTag := serve.Quoted(string(found.Content.Hash))
	if coding == codingIdentity {
		body, err := s.Store.OpenBody(r.Context(), found.Content.Hash)
		if err != nil {
			return err
		}
		h.Set("ETag", identityTag)
		http.ServeContent(out, r, "", noTime, body)
		return nil
	}
	tag := serve.Quoted(string(found.Content.Hash) + "-" + coding)
	h.Set("ETag", tag)
	if holds(r.Header.Get("If-None-Match"), tag, identityTag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if found.Content.Size <= packedEach {
		return s.sendPacked(out, r, found.Content, coding)
	}
	body, err := s.Store.OpenBody(r.Context(), found.Content.Hash)
	if err != nil {
		return err
	}
	h.Set("Content-Encoding", coding)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if err := compressTo(out, body, coding); err != nil {
		if r.Context().Err() == nil {
			s.Log.Info("fetch ended early", "deployment", chi.URLParam(r, "id"), "err", err)
		}
		serve.Abort()
	}
	return nil
}

// codingFor picks the content coding of an answer. A range is always of the identity, so
// that offsets mean the same in every answer; artifacts are opaque and stay as they are.
func codingFor(r *http.Request, c fleet.Content) string {
	if r.Header.Get("Range") != "" || c.Kind == fleet.ContentArtifact || c.Size < minCompressed {
		return codingIdentity
	}
	return acceptedCoding(r)
}

// acceptedCoding is the best coding that the caller takes.
func acceptedCoding(r *http.Request) string {
	accepted := map[string]bool{}
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		weight := 1.0
		if _, text, found := strings.Cut(params, "q="); found {
			weight, _ = strconv.ParseFloat(strings.TrimSpace(text), 64) // what cannot be read is not wanted
		}
		accepted[strings.ToLower(strings.TrimSpace(name))] = weight > 0
	}
	for _, coding := range []string{codingZstd, codingGzip} {
		if accepted[coding] {
			return coding
		}
	}
	return codingIdentity
}

// holds says whether the caller already has one of these, in either coding (N93).
func holds(header string, tags ...string) bool {
	for _, part := range strings.Split(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		for _, tag := range tags {
			if part == tag || part == "*" {
				return true
			}
		}
	}
	return false
}

// encoders are reused: a new one allocates its window.
var encoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err // of the options above: never
	}
	return e
}}

// compressTo streams a body with the memory of one window.
func compressTo(w io.Writer, body io.Reader, coding string) error {
	to, err := compressor(w, coding)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, body); err != nil {
		_ = to.Close() // what is cut is cut
		return err
	}
	return to.Close()
}

// compressor writes in a coding; it has to be closed, which ends the stream.
func compressor(w io.Writer, coding string) (io.WriteCloser, error) {
	switch coding {
	case codingZstd:
		e, ok := encoders.Get().(*zstd.Encoder)
		if !ok {
			return nil, fleet.Errorf(fleet.Internal, "cannot make a zstd encoder")
		}
		e.Reset(w)
		return &pooledEncoder{e}, nil
	case codingGzip:
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	}
	return uncompressed{w}, nil
}

// pooledEncoder goes back to its pool when it is closed.
type pooledEncoder struct{ *zstd.Encoder }

func (p *pooledEncoder) Close() error {
	err := p.Encoder.Close()
	encoders.Put(p.Encoder)
	p.Encoder = nil
	return err
}

type uncompressed struct{ io.Writer }

func (uncompressed) Close() error { return nil }

// fetchRun gives a node the run section of its delivery, in the form that its hash is of.
func (s *Calls) fetchRun(w http.ResponseWriter, r *http.Request) error {
	found, err := s.fetchable(r)
	if err != nil {
		return err
	}
	if len(found.Run) == 0 {
		return fleet.Errorf(fleet.NotFound, "this delivery has no run section")
	}
	text, err := canonicalRun(found.Run)
	if err != nil {
		return err
	}
	h := w.Header()
	serve.Describe(h, fleet.Content{Kind: fleet.ContentJSON, Size: int64(len(text))})
	h.Set("ETag", serve.Quoted(string(compose.HashOf(text))))
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // the node is gone when this fails
	}
	return nil
}

// canonicalRun gives a run section of the store the form that its hash is of.
func canonicalRun(stored []byte) ([]byte, error) {
	text, err := compose.Canonical(stored, compose.Limits{MaxBytes: 2 * fleet.MaxRun}) // jsonb adds spaces
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the run section: %w", err)
	}
	return text, nil
}
