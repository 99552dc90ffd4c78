package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// Events lists committed changes, newest first.
func (c *Client) Events(ctx context.Context, p Page) (List[Event], error) {
	var l List[Event]
	_, err := c.do(ctx, readCall(p.query(), "events"), &l)
	return l, err
}

// reconnectPause keeps a stream that is closed at once from becoming a busy loop.
const reconnectPause = 500 * time.Millisecond

// EventQuery selects the changes to watch: those of a project ("" for all), after the event
// After ("" for those from now on). Placed gets the place where a later watch has to continue, also
// before the first event; nil ignores it.
type EventQuery struct {
	After, Project string
	Placed         func(id string)
}

// WatchEvents hands every change to handle, until ctx ends, handle fails or the region
// refuses. A broken stream is resumed behind the last event that was handled, so none is
// missed and none comes twice.
func (c *Client) WatchEvents(ctx context.Context, in EventQuery, handle func(Event) error) error {
	last, err := c.watchFrom(ctx, in.After)
	if err != nil {
		return err
	}
	placed := func(id string) {
		if last = id; in.Placed != nil {
			in.Placed(id)
		}
	}
	if last != "" {
		placed(last)
	}
	for {
		err := c.streamEvents(ctx, in.Project, last, eventReader{handle, placed})
		var own *unhandled
		if errors.As(err, &own) {
			return own.error
		}
		if err != nil {
			return err
		}
		if err := pause.For(ctx, reconnectPause); err != nil {
			return err
		}
	}
}

// watchFrom finds a place to come back to: the stream may break before its first event.
func (c *Client) watchFrom(ctx context.Context, after string) (string, error) {
	if after != "" {
		return after, nil
	}
	newest, err := c.Events(ctx, Page{Limit: 1})
	if err != nil || len(newest.Items) == 0 {
		return "", err
	}
	return newest.Items[0].ID, nil
}

// streamEvents reads one stream to its end.
func (c *Client) streamEvents(ctx context.Context, project, last string, to eventReader) error {
	r := readCall(Page{Project: project}.query(), "events")
	r.header.Set("Accept", "text/event-stream")
	if last != "" {
		r.header.Set("Last-Event-ID", last)
	}
	return c.try(ctx, r, func(resp *http.Response) error { return to.read(resp) })
}

// unhandled is an error of the receiver, which ends the watch.
type unhandled struct{ error }

const maxEvent = 16 << 20

// eventReader takes what a stream brings: events, and the place after each. An id without an
// event is a place too: a stream begins with one.
type eventReader struct {
	handle func(Event) error
	placed func(id string)
}

// read reads a text/event-stream to its end; how it ends says nothing, because a cut stream
// is resumed like one that was closed.
func (r eventReader) read(resp *http.Response) error {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	var data []byte
	id := ""
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("data:")):
			data = append(append(data, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...), '\n')
		case bytes.HasPrefix(line, []byte("id:")):
			id = string(bytes.TrimSpace(line[len("id:"):]))
		case len(line) == 0:
			if err := r.take(id, data); err != nil {
				return err
			}
			id, data = "", data[:0]
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fleet.Errorf(TooLarge, "an event of more than %d bytes", maxEvent)
	}
	return nil
}

// take hands over one event, or only the place that was named.
func (r eventReader) take(id string, data []byte) error {
	if len(data) > 0 {
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fleet.Errorf(Internal, "read an event: %w", err)
		}
		if err := r.handle(e); err != nil {
			return &unhandled{err}
		}
		id = e.ID
	}
	if id != "" {
		r.placed(id)
	}
	return nil
}
