package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// download is one body over all its attempts.
type download struct {
	fetcher  *Fetcher
	req      FetchRequest
	to       sink
	progress func(done int64)

	buf   []byte // read and not yet committed
	best  int64  // the furthest position ever reached
	wire  int64  // bytes read from connections, before decompression
	plain bool   // a compressed answer could not be read: request plain ones from now on
}

// attempt makes one request. It gained if it got further than all before it.
func (d *download) attempt(ctx context.Context, tick func()) (gained bool, err error) {
	size := d.req.Want.Size
	if d.to.Received() == size {
		return true, nil // everything arrived before an earlier crash; only Seal is missing
	}
	before := d.best
	reqCtx, stall := newStall(ctx, orDefault(d.fetcher.ReadIdle, defaultReadIdle))
	defer stall.stop()
	r, err := d.ask(reqCtx)
	if err != nil {
		return false, err
	}
	resp, err := d.fetcher.Client.Do(r)
	if err != nil {
		return false, again("reach the region: %w", stall.explain(err))
	}
	defer func() { _ = resp.Body.Close() }() // cutting it is intended
	if err := d.begin(ctx, resp); err != nil {
		return false, err
	}
	wire := stall.watch(resp.Body, func() {})
	body, done, err := d.decode(resp, readFunc(func(p []byte) (int, error) {
		n, err := wire.Read(p)
		d.wire += int64(n)
		d.fetcher.Counters.FetchedBytes.Add(int64(n))
		return n, err
	}))
	if err != nil {
		return false, err
	}
	defer done()
	err = d.copy(ctx, body, tick)
	return d.best > before, d.judge(resp, stall.explain(err))
}

// ask makes the request: compressed while nothing was received, else the rest by range.
func (d *download) ask(ctx context.Context) (*http.Request, error) {
	r, err := d.fetcher.request(ctx, d.req, "config")
	if err != nil {
		return nil, err
	}
	switch at := d.to.Received(); {
	case at > 0:
		// Offsets count bytes of the identity coding, and If-Range requires its ETag.
		r.Header.Set("Accept-Encoding", "identity")
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", at))
		r.Header.Set("If-Range", strconv.Quote(string(d.req.Want.Hash)))
	case d.plain:
		r.Header.Set("Accept-Encoding", "identity")
	default:
		r.Header.Set("Accept-Encoding", "zstd, gzip")
	}
	return r, nil
}

// begin moves the sink to where the answer starts.
func (d *download) begin(ctx context.Context, resp *http.Response) error {
	at := d.to.Received()
	switch resp.StatusCode {
	case http.StatusOK:
		if at == 0 {
			return nil
		}
		return d.to.Restart(ctx) // the server could not, or would not, continue
	case http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at)) {
			return communication("fetch config: the region sent another range than requested")
		}
		d.fetcher.Counters.Resumed.Add(1)
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		// Only a body shorter than announced ends before the current position.
		return errors.Join(d.mismatch(), d.to.Restart(ctx))
	}
	return refusal(resp.StatusCode)
}

func (d *download) mismatch() error {
	return fleet.Errorf(fleet.HashMismatch, "the body of %s does not have %d bytes", d.req.Want.Hash, d.req.Want.Size)
}

// decode decodes the content coding with bounded memory.
func (d *download) decode(resp *http.Response, wire io.Reader) (io.Reader, func(), error) {
	switch coding := resp.Header.Get("Content-Encoding"); {
	case coding == "" || coding == "identity":
		return wire, func() {}, nil
	case resp.StatusCode != http.StatusOK:
		return nil, nil, communication("fetch config: the region compressed a range")
	case coding == "zstd":
		r, err := borrowDecoder(wire)
		if err != nil {
			return nil, nil, fmt.Errorf("decompress config: %w", err)
		}
		return r, func() { giveBack(r) }, nil
	case coding == "gzip":
		r, err := gzip.NewReader(wire)
		if err != nil {
			d.plain = true
			return nil, nil, again("decompress config: %w", err)
		}
		return r, func() { _ = r.Close() }, nil // only its checksum error, which the hash covers
	}
	return nil, nil, communication("fetch config: the region used a coding that was not requested")
}

// decoders keeps the memory of decoders, which is more than most configs.
var decoders sync.Pool

func borrowDecoder(wire io.Reader) (*zstd.Decoder, error) {
	if r, ok := decoders.Get().(*zstd.Decoder); ok {
		return r, r.Reset(wire)
	}
	return zstd.NewReader(wire, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
}

func giveBack(r *zstd.Decoder) {
	if r.Reset(nil) == nil { // it must not keep the connection
		decoders.Put(r)
	}
}

// copy commits whole chunks, and at the end, also after an error, the rest of the last one.
func (d *download) copy(ctx context.Context, body io.Reader, tick func()) error {
	d.buf = d.buf[:0]
	for {
		n, readErr := body.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		at := d.to.Received() + int64(len(d.buf))
		if at > d.best {
			d.best = at
			tick()
			d.progress(at)
		}
		if at > d.req.Want.Size {
			return errors.Join(d.mismatch(), d.to.Restart(ctx))
		}
		if len(d.buf) == cap(d.buf) || readErr != nil {
			// A cancelled context must not lose what arrived before.
			if err := d.to.Append(context.WithoutCancel(ctx), d.buf); err != nil {
				return err
			}
			d.buf = d.buf[:0]
		}
		switch {
		case readErr == nil && d.to.Received() < d.req.Want.Size:
			continue
		case readErr == nil || errors.Is(readErr, io.EOF):
			return d.tail(ctx, body)
		}
		return again("read config: %w", readErr)
	}
}

// tail checks that the body ends at its announced size.
func (d *download) tail(ctx context.Context, body io.Reader) error {
	if d.to.Received() < d.req.Want.Size {
		return again("read config: the body ended at %d of %d bytes", d.to.Received(), d.req.Want.Size)
	}
	var one [1]byte
	if n, _ := io.ReadFull(body, one[:]); n > 0 { // whatever the error, the hash decides
		return errors.Join(d.mismatch(), d.to.Restart(ctx))
	}
	return nil
}

// judge requests the identity coding from now on if a compressed answer gained nothing.
func (d *download) judge(resp *http.Response, err error) error {
	if err == nil {
		return nil
	}
	if resp.Header.Get("Content-Encoding") != "" && d.to.Received() == 0 {
		d.plain = true
	}
	if errors.Is(err, errStalled) && !errors.Is(err, errAgain) {
		return again("read config: %w", err)
	}
	return err
}
