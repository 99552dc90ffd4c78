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
	case errors.Is(err, errCut) && t.cuts < maxCuts: // it may have been at something else
		t.cuts, t.gap = t.cuts+1, gap
		return none, fleet.Errorf(fleet.Unavailable, "%w what it kept", err)
	case err != nil && !errors.Is(err, errCut):
		delete(d.tails, id)
		return none, err
	}
	if t.quiet = !t.holds(from); t.quiet {
		t.last = newest // what does not belong to what is new is not read for again
	} else {
		t.cuts = 0
	}
	if t.quiet && !c.State.Running {
		t.ended = c.State.StartedAt
	}
	return t.output(from), nil
}

// maxCuts is how often in a row an engine may say that it cannot read what it kept before that is believed.
const maxCuts = 5

// newest is the time of the last piece alone, which costs an engine little: where it is the one that was
// read last, there is no more. Pieces of the same time wait for another, or for the end.
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
	case errors.Is(err, errCut): // reading all says more
		return time.Time{}, nil
	}
	return at, err
}

// readInto reads on from the mark of a tail.
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

// errCut is the engine's own word in the stream that it cannot read what it kept.
var errCut = errors.New("the engine cannot read on")

// engineErrors is the stream of a piece that the engine says of itself.
const engineErrors = 3

// frame reads one piece of the engine's stream: a header of 8 bytes that begins with the stream and ends in
// the length, the time and a space, and what was printed.
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
	if header[0] == engineErrors {
		return at, nil, errCut
	}
	stamp, text, _ := bytes.Cut(raw, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return at, nil, fleet.Errorf(fleet.Unavailable, "a piece of output without its time")
	}
	return at, text, nil
}
