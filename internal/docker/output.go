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

// tail is how far the output of a container was read: Offset is that of the first byte behind what
// the engine wrote at At.
type tail struct {
	container string
	offset    int64
	at        time.Time
}

// maxRead bounds what one Output gives, maxFrame one piece that the engine sends.
const (
	maxRead  = 256 << 10
	maxFrame = 1 << 20
)

// Output reads what a replica printed from an offset on.
func (d *Driver) Output(ctx context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error) {
	none := guardian.Output{Offset: from, Next: from}
	c, err := d.engine.inspect(ctx, nameOf(id))
	if absent(err) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	at := d.tailOf(id, c)
	if at.offset > from { // nobody but the reader of this node asks, and it asks again from where it was
		at = firstTail(c)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"stdout": {"1"}, "stderr": {"1"}, "timestamps": {"1"}}
	if !at.at.IsZero() {
		since := at.at.Add(1)
		query.Set("since", strconv.FormatInt(since.Unix(), 10)+"."+pad(since.Nanosecond()))
	}
	body, err := d.engine.open(ctx, request{method: http.MethodGet, path: "/containers/" + c.ID + "/logs", query: query})
	if err != nil {
		return none, err
	}
	defer body.Close()
	out, err := at.read(body, from)
	if err == nil {
		d.mu.Lock()
		d.tails[id] = at
		d.mu.Unlock()
	}
	return out, err
}

func pad(nanoseconds int) string {
	digits := strconv.Itoa(nanoseconds)
	return strings.Repeat("0", 9-len(digits)) + digits
}

func firstTail(c inspected) tail {
	offset, _ := strconv.ParseInt(c.Config.Labels[labelOutput], 10, 64) // 0 as for one that has no label
	return tail{container: c.ID, offset: offset}
}

func (d *Driver) tailOf(id fleet.ReplicaID, c inspected) tail {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at, has := d.tails[id]; has && at.container == c.ID {
		return at
	}
	return firstTail(c)
}

func (d *Driver) forget(id fleet.ReplicaID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tails, id)
}

// read takes whole frames until there is enough, and leaves the tail before the first that was not
// given whole. What ends before the wanted offset was rotated away: the count goes on from there.
func (t *tail) read(body io.Reader, from int64) (guardian.Output, error) {
	out := guardian.Output{Offset: from, Next: from}
	for len(out.Data) < maxRead {
		at, text, err := frame(body)
		if errors.Is(err, io.EOF) {
			t.offset = max(t.offset, from)
			return out, nil
		}
		if err != nil {
			return out, err
		}
		end := t.offset + int64(len(text))
		if end > out.Next {
			out.Data = append(out.Data, text[max(out.Next-t.offset, 0):]...)
			out.Next = end
		}
		t.offset, t.at = end, at
	}
	return out, nil
}

// frame reads one piece of the engine's stream: a header of 8 bytes that ends in the length, the
// time and a space, and what was printed.
func frame(body io.Reader) (at time.Time, text []byte, err error) {
	header := make([]byte, 8)
	if _, err := io.ReadFull(body, header); err != nil {
		if errors.Is(err, io.EOF) {
			return at, nil, io.EOF
		}
		return at, nil, fleet.Errorf(fleet.Communication, "read the engine's output: %w", err)
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size > maxFrame {
		return at, nil, fleet.Errorf(fleet.Communication, "a piece of output of %d bytes", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(body, raw); err != nil {
		return at, nil, fleet.Errorf(fleet.Communication, "read the engine's output: %w", err)
	}
	stamp, text, _ := bytes.Cut(raw, []byte(" "))
	if at, err = time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return at, nil, fleet.Errorf(fleet.Communication, "a piece of output without its time")
	}
	return at, text, nil
}
