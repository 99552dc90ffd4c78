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

// maxRead bounds the output of one request, maxFrame one piece from the engine.
const (
	maxRead  = 256 << 10
	maxFrame = 1 << 20
)

// Output reads a replica's output from an offset. For a replica without a container it is the output of its
// last command before the start, if that failed.
func (d *Driver) Output(ctx context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error) {
	none := guardian.Output{Offset: from, Next: from}
	c, err := d.inspect(ctx, id, nameOf(id))
	if absent(err) {
		c, err = d.inspect(ctx, id, beforeOf(id))
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
	if t.holds(from) || t.ended == c.State.StartedAt {
		return t.output(from), nil
	}
	newest, gap := t.last, t.gap
	if t.quiet && c.State.Running {
		if newest, err = d.engine.newest(ctx, t); err != nil || newest.Equal(t.last) {
			return none, err
		}
	}
	err = d.engine.readInto(ctx, t, from)
	switch {
	case errors.Is(err, errCut) && t.cuts < maxCuts: // it may have been busy
		t.cuts, t.gap = t.cuts+1, gap
		return none, fleet.Errorf(fleet.Unavailable, "read output: %w", err)
	case err != nil && !errors.Is(err, errCut):
		delete(d.tails, id)
		return none, err
	}
	if t.quiet = !t.holds(from); t.quiet {
		t.last = newest // pieces before it are not read again
	} else {
		t.cuts = 0
	}
	if t.quiet && !c.State.Running {
		t.ended = c.State.StartedAt
	}
	return t.output(from), nil
}

// maxCuts is how often in a row an engine may report that it cannot read its output before the driver believes
// it.
const maxCuts = 5

// newest reads only the time of the last piece, which costs an engine little: if that piece was read last,
// there is no more. Further pieces of the same time are read with the next one, or at the end.
func (e *engine) newest(ctx context.Context, t *tail) (time.Time, error) {
	ctx, cancel := limited(ctx, outputLimit)
	defer cancel()
	body, err := e.logs(ctx, t.container, url.Values{"tail": {"1"}})
	if err != nil {
		return time.Time{}, err
	}
	defer body.Close()
	at, _, err := frame(body)
	switch {
	case errors.Is(err, io.EOF):
		return t.last, nil
	case errors.Is(err, errCut): // reading everything gives more details
		return time.Time{}, nil
	}
	return at, err
}

// readInto continues from the mark of a tail.
func (e *engine) readInto(ctx context.Context, t *tail, from int64) error {
	ctx, cancel := limited(ctx, outputLimit)
	defer cancel()
	query := url.Values{}
	if at := t.marks[0].At; !at.IsZero() {
		query.Set("since", strconv.FormatInt(at.Unix(), 10)+"."+pad(at.Nanosecond()))
	}
	body, err := e.logs(ctx, t.container, query)
	if err != nil {
		return err
	}
	defer body.Close()
	return t.read(body, from)
}

// logs opens the output of a container, with its times.
func (e *engine) logs(ctx context.Context, id string, query url.Values) (io.ReadCloser, error) {
	for _, name := range []string{"stdout", "stderr", "timestamps"} {
		query.Set(name, "1")
	}
	return e.open(ctx, request{method: http.MethodGet, path: "/containers/" + id + "/logs", query: query})
}

func pad(nanoseconds int) string {
	digits := strconv.Itoa(nanoseconds)
	return strings.Repeat("0", 9-len(digits)) + digits
}

// errCut: the engine reported in the stream that it cannot read its output.
var errCut = errors.New("the engine cannot read the rest of its stored output")

// engineErrors is the stream of the engine's own messages.
const engineErrors = 3

// frame reads one piece of the engine's stream: a header of 8 bytes, with the stream first and the length last;
// then the time, a space, and the output.
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
		return at, nil, fleet.Errorf(fleet.Unavailable, "read the engine's output: a piece has %d bytes", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(body, raw); err != nil {
		return at, nil, fleet.Errorf(fleet.Unavailable, "read the engine's output: %w", err)
	}
	if header[0] == engineErrors {
		return at, nil, errCut
	}
	stamp, text, _ := bytes.Cut(raw, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return at, nil, fleet.Errorf(fleet.Unavailable, "read the engine's output: a piece has no time")
	}
	return at, text, nil
}
