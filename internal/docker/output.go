package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// maxRead bounds what one request for output gives, maxFrame one piece that the engine sends.
const (
	maxRead  = 256 << 10
	maxFrame = 1 << 20
)

// Output reads what a replica printed from an offset on. Of one that has no container yet, it is what
// its last command before the start printed, if that failed.
func (d *Driver) Output(ctx context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error) {
	none := guardian.Output{Offset: from, Next: from}
	c, err := d.engine.inspect(ctx, nameOf(id))
	if absent(err) {
		c, err = d.engine.inspect(ctx, beforeOf(id))
	}
	if absent(err) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	d.reading.Lock()
	defer d.reading.Unlock()
	t, err := d.tailOf(id, c, from)
	if err != nil {
		return none, err
	}
	if !t.holds(from) {
		if err := d.engine.readInto(ctx, t, from); err != nil {
			delete(d.tails, id)
			return none, err
		}
	}
	return t.output(from), nil
}

// readInto reads on from the mark of a tail.
func (e *engine) readInto(ctx context.Context, t *tail, from int64) error {
	ctx, cancel := limited(ctx, outputLimit)
	defer cancel()
	query := url.Values{"stdout": {"1"}, "stderr": {"1"}, "timestamps": {"1"}}
	if at := t.marks[0].At; !at.IsZero() {
		query.Set("since", strconv.FormatInt(at.Unix(), 10)+"."+pad(at.Nanosecond()))
	}
	body, err := e.open(ctx, request{method: http.MethodGet, path: "/containers/" + t.container + "/logs", query: query})
	if err != nil {
		return err
	}
	defer body.Close()
	return t.read(body, from)
}

func pad(nanoseconds int) string {
	digits := strconv.Itoa(nanoseconds)
	return strings.Repeat("0", 9-len(digits)) + digits
}

// frame reads one piece of the engine's stream: a header of 8 bytes that ends in the length, the
// time and a space, and what was printed.
func frame(body io.Reader) (at time.Time, text []byte, err error) {
	header := make([]byte, 8)
	if _, err := io.ReadFull(body, header); err != nil {
		if errors.Is(err, io.EOF) {
			return at, nil, io.EOF
		}
		return at, nil, fleet.Errorf(fleet.Unavailable, "read the engine's output: %w", err)
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size > maxFrame {
		return at, nil, fleet.Errorf(fleet.Unavailable, "a piece of output of %d bytes", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(body, raw); err != nil {
		return at, nil, fleet.Errorf(fleet.Unavailable, "read the engine's output: %w", err)
	}
	stamp, text, _ := bytes.Cut(raw, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return at, nil, fleet.Errorf(fleet.Unavailable, "a piece of output without its time")
	}
	return at, text, nil
}
