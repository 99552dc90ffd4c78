package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// bodyHead precedes each body of a stream: 32 bytes of SHA-256, and 8 of length.
const bodyHead = 32 + 8

// bodyStream reads several bodies from one answer.
type bodyStream struct {
	from io.Reader
	left int64 // bytes of bodies that may still come
}

// next gives the next body and the hash that the region announced for it; io.EOF after the last. After a cut a
// retry may help; invalid data is a communication error.
func (s *bodyStream) next() (fleet.Hash, []byte, error) {
	var head [bodyHead]byte
	if _, err := io.ReadFull(s.from, head[:]); errors.Is(err, io.EOF) {
		return "", nil, io.EOF // ReadFull gives EOF only before the first byte
	} else if err != nil {
		return "", nil, again("read bodies: %w", err)
	}
	hash := fleet.Hash(hex.EncodeToString(head[:32]))
	size := binary.BigEndian.Uint64(head[32:])
	if size > fleet.MaxBatchBody || int64(size) > s.left {
		return "", nil, communication("fetch bodies: the region announced %d bytes at once", size)
	}
	s.left -= int64(size)
	data := make([]byte, size)
	if _, err := io.ReadFull(s.from, data); err != nil {
		return "", nil, again("read bodies: a body broke off: %w", noEOF(err))
	}
	return hash, data, nil
}

// noEOF replaces io.EOF: an end in the middle of a body is unexpected.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// BodiesRequest says where to fetch many bodies at once, and with which token.
type BodiesRequest struct {
	FetchRequest // without an address
	URL          string
}

// bodiesFetch is one FetchBodies over all its attempts.
type bodiesFetch struct {
	fetcher *Fetcher
	req     BodiesRequest
	want    map[fleet.Hash]int64 // with their sizes; received ones are removed
	most    int64
	take    func(hash fleet.Hash, data []byte)
	wire    int64
	plain   bool // a compressed answer could not be read: request plain ones from now on
}

// FetchBodies passes on each body as it comes, unverified and at most once; what the region leaves out stays in
// want. It returns the number of bytes on the wire. A missing endpoint is not_found.
func (f *Fetcher) FetchBodies(ctx context.Context, req BodiesRequest, want map[fleet.Hash]int64, take func(hash fleet.Hash, data []byte)) (int64, error) {
	d := &bodiesFetch{fetcher: f, req: req, want: want, take: take, most: fleet.MaxBatchBytes}
	for _, size := range want {
		d.most += size
	}
	err := f.retry(ctx, req.FetchRequest, "bodies", d.attempt)
	return d.wire, err
}

func (d *bodiesFetch) attempt(ctx context.Context, tick func()) (gained bool, err error) {
	ctx, stall := newStall(ctx, orDefault(d.fetcher.ReadIdle, defaultReadIdle))
	defer stall.stop()
	r, err := d.ask(ctx)
	if err != nil {
		return false, err
	}
	resp, err := d.fetcher.Client.Do(r)
	if err != nil {
		return false, again("reach the region: %w", stall.explain(err))
	}
	defer func() { _ = resp.Body.Close() }() // cutting it is intended
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return false, fleet.Errorf(fleet.NotFound, "the region no longer offers these bodies")
	default:
		return false, refusal(resp.StatusCode)
	}
	before := len(d.want)
	wire := stall.watch(resp.Body, func() {})
	resp.Body = struct {
		io.Reader
		io.Closer
	}{readFunc(func(p []byte) (int, error) {
		n, err := wire.Read(p)
		d.wire += int64(n)
		d.fetcher.Counters.FetchedBytes.Add(int64(n))
		return n, err
	}), resp.Body}
	err = d.read(resp, tick)
	gained = len(d.want) < before
	if err != nil && !gained && resp.Header.Get("Content-Encoding") != "" {
		d.plain = true
	}
	if cut := stall.explain(err); errors.Is(cut, errStalled) {
		return gained, again("read bodies: %w", cut)
	}
	return gained, err
}

func (d *bodiesFetch) ask(ctx context.Context) (*http.Request, error) {
	raw, err := json.Marshal(map[string]any{"hashes": slices.Sorted(maps.Keys(d.want))})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.req.URL, bytes.NewReader(raw))
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "invalid fetch base URL").At("/centralFetchBaseUrl")
	}
	r.Header.Set("Authorization", "Bearer "+d.req.Token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "zstd, gzip")
	if d.plain {
		r.Header.Set("Accept-Encoding", "identity")
	}
	return r, nil
}

// read reads bodies until the stream ends.
func (d *bodiesFetch) read(resp *http.Response, tick func()) error {
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, bodiesType) {
		return communication("fetch bodies: the region answered with %.40q", kind)
	}
	body, done, err := plainBody(resp)
	if err != nil {
		return again("read bodies: %w", err)
	}
	defer done()
	stream := &bodyStream{from: body, left: d.most}
	for {
		hash, data, err := stream.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, asked := d.want[hash]; !asked {
			return communication("fetch bodies: the region sent a body that was not requested")
		}
		delete(d.want, hash)
		tick()
		d.take(hash, data)
	}
}

// bodiesType is the media type of a stream of bodies.
const bodiesType = "application/vnd.holdfast.bodies"
