package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

const (
	eventsDefault = 100
	eventsMost    = 1000
	eventsBatch   = 500
	// eventsScan bounds how many events of other projects one page reads past.
	eventsScan = 10_000
)

func (s *server) mountEvents() {
	op := serve.Endpoint(http.MethodGet, "/api/v1/events", "list-events",
		"Committed changes, newest first; with Accept: text/event-stream as they happen, resumed by Last-Event-ID")
	least, most := 1.0, float64(eventsMost)
	op.Parameters = append(op.Parameters,
		serve.QueryParam("limit", "", huma.Schema{Type: huma.TypeInteger, Format: "int32", Minimum: &least, Maximum: &most, Default: eventsDefault}),
		serve.QueryParam("cursor", "next of the page before", serve.Formatted("cursor")),
		serve.QueryParam("project", "only what belongs to this project", serve.Formatted("name")),
		serve.QueryParam("after", "stream what follows this event", serve.Formatted("event-id")))
	s.Stream(serve.ForViewers, op, s.events)
}

func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	project, err := listProject(r.Context(), r.URL.Query().Get("project"))
	if err != nil {
		return err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return s.streamEvents(w, r, project)
	}
	return s.listEvents(w, r, project)
}

func (s *server) listEvents(w http.ResponseWriter, r *http.Request, project fleet.ProjectName) error {
	limit := eventsDefault
	if text := r.URL.Query().Get("limit"); text != "" {
		limit, _ = strconv.Atoi(text) // checked with its schema
	}
	place, err := placeOf(r.URL.Query().Get("cursor"))
	if err != nil {
		return err
	}
	var before postgres.Cursor
	if place != "" {
		if before, err = postgres.ParseCursor(place); err != nil {
			return badCursor(place)
		}
	}
	list, err := s.eventsBefore(r.Context(), before, project, limit)
	if err != nil {
		return err
	}
	return serve.AnswerJSON(w, http.StatusOK, list)
}

// eventsBefore collects a page of one project's events, or of all. A page may be short and
// still have a next one.
func (s *server) eventsBefore(ctx context.Context, before postgres.Cursor, project fleet.ProjectName, limit int) (api.List[api.Event], error) {
	out := api.List[api.Event]{Items: []api.Event{}}
	for scanned := 0; scanned < eventsScan; {
		batch := min(eventsBatch, limit+1)
		if project != "" {
			batch = eventsBatch
		}
		rows, err := s.store.ListEvents(ctx, before, int32(batch))
		if err != nil {
			return out, err
		}
		for _, e := range rows {
			if len(out.Items) == limit {
				out.Next = cursorOf(before.String())
				return out, nil
			}
			before = e.Cursor
			if project == "" || e.Project == project {
				out.Items = append(out.Items, eventView(e))
			}
		}
		if len(rows) < batch {
			return out, nil
		}
		scanned += len(rows)
	}
	out.Next = cursorOf(before.String())
	return out, nil
}

func eventView(e postgres.Event) api.Event {
	before, after := hideChange(e.Before, e.After)
	view := api.Event{
		ID: e.Cursor.String(), At: e.At, Type: e.Type, Kind: string(e.Key.Kind), Project: string(e.Project), Name: e.Key.Name,
		UID: e.UID, Generation: e.Generation, ResourceVersion: strconv.FormatInt(e.Cursor.Seq, 10), Actor: e.Actor,
		Before: before, After: after, Region: e.Region,
	}
	if e.Key.Kind == fleet.KindInstance || e.Key.Kind == postgres.KindNode {
		view.Site = e.Key.Scope
	}
	return view
}

// streamEvents sends every change after a place in the feed, until the client goes or its
// token ends.
func (s *server) streamEvents(w http.ResponseWriter, r *http.Request, project fleet.ProjectName) error {
	at, err := s.streamStart(r)
	if err != nil {
		return err
	}
	ctx, end, err := s.streams.begin(r.Context(), serve.CallOf(r.Context()).Hash)
	if err != nil {
		return err
	}
	defer end()
	s.streaming.Inc()
	defer s.streaming.Dec()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass each event on at once
	w.WriteHeader(http.StatusOK)
	f := &feed{s: s, out: s.Rolling(w, func(int) {}), at: at, project: project}
	if err := f.run(ctx); err != nil && r.Context().Err() == nil {
		s.Log.Info("event stream ended", "err", err)
	}
	return nil
}

func (s *server) streamStart(r *http.Request) (postgres.Cursor, error) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	if last == "" {
		return s.store.FeedEnd(r.Context())
	}
	at, err := postgres.ParseCursor(last)
	if err != nil {
		return at, err
	}
	return at, s.store.FeedKept(r.Context(), at)
}

// feed is one event stream.
type feed struct {
	s       *server
	out     *serve.RollingWriter
	at      postgres.Cursor
	project fleet.ProjectName
}

func (f *feed) run(ctx context.Context) error {
	// The id alone is no event, but the place to come back to when the stream breaks before one.
	if err := f.write([]byte(": the feed begins\nid: " + f.at.String() + "\n\n")); err != nil {
		return err
	}
	alive := time.NewTicker(f.s.keepAlive)
	defer alive.Stop()
	idle := time.NewTicker(f.s.idlePoll)
	defer idle.Stop()
	for {
		full, err := f.send(ctx)
		if err != nil {
			return err
		}
		if full {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.s.stopping:
			return nil // the client resumes at another server
		case <-idle.C:
		case <-alive.C:
			if err := f.write([]byte(": still here\n\n")); err != nil {
				return err
			}
		}
	}
}

// send writes what follows; full says that there may be more at once.
func (f *feed) send(ctx context.Context) (full bool, err error) {
	rows, err := f.s.store.ReadFeed(ctx, f.at, eventsBatch)
	if err != nil {
		return false, err
	}
	var text bytes.Buffer
	for _, e := range rows {
		f.at = e.Cursor
		if f.project != "" && e.Project != f.project {
			continue
		}
		data, err := json.Marshal(eventView(e))
		if err != nil {
			return false, err
		}
		text.WriteString("id: " + e.Cursor.String() + "\ndata: ")
		text.Write(data)
		text.WriteString("\n\n")
	}
	if text.Len() > 0 {
		err = f.write(text.Bytes())
	}
	return len(rows) == eventsBatch, err
}

func (f *feed) write(text []byte) error {
	if _, err := io.Copy(f.out, bytes.NewReader(text)); err != nil {
		return err
	}
	return f.out.FlushError()
}
