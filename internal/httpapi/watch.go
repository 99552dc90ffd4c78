package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// maxSnapshots bounds how many watches of one server send a snapshot at a time; others wait for their turn.
const maxSnapshots = 4

// maxWatchToken is more than the tokens of a watch have, in characters.
const maxWatchToken = 512

// peerBeat is the time between current lines for a peer: the lag that it shows at rest.
const peerBeat = 5 * time.Second

func (s *server) mountWatch() {
	op := serve.Endpoint(http.MethodGet, "/api/v1/watch", "watch",
		"Objects as they are, then as they change: JSON lines (see WatchLine), resumed by the token of a line")
	op.Parameters = append(op.Parameters,
		serve.QueryParam("kind", "only objects of this kind; all kinds without it", serve.Formatted("name")),
		serve.QueryParam("owner", "only what this region owns", serve.Formatted("name")),
		serve.QueryParam("regions", "only what this region has", serve.Formatted("name")),
		serve.QueryParam("project", "only what belongs to this project", serve.Formatted("name")),
		serve.QueryParam("after", "the token of the last current line that was seen", tokenSchema()),
		serve.QueryParam("since", "without after: the token of the first snapshot that broke", tokenSchema()))
	op.Responses = map[string]*huma.Response{"200": {
		Description: "JSON lines",
		Content:     map[string]*huma.MediaType{"application/x-ndjson": {Schema: s.Document().Components.Schemas.Schema(reflect.TypeFor[api.WatchLine](), true, "")}},
	}}
	s.Stream(serve.ForViewers, op, s.watch)
}

func tokenSchema() huma.Schema {
	most := maxWatchToken
	return huma.Schema{Type: huma.TypeString, MaxLength: &most}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	project, err := listProject(r.Context(), q.Get("project"))
	if err != nil {
		return err
	}
	f := watch.Filter{Owner: fleet.RegionName(q.Get("owner")), Region: fleet.RegionName(q.Get("regions")), Project: project}
	if kind := q.Get("kind"); kind != "" {
		known := fleet.ObjectKind(kind).Declared()
		if known.Title == "" {
			return fleet.Errorf(fleet.Invalid, "unknown kind %.40q", kind).At("kind").WithHint("use the name of a kind in lower case, for example instance")
		}
		f.Kinds = []fleet.ObjectKind{known.Kind}
	}
	ctx, end, err := s.streams.begin(r.Context(), serve.CallOf(r.Context()).Hash)
	if err != nil {
		return err
	}
	defer end()
	s.streaming.Inc()
	defer s.streaming.Dec()
	st := &watch.Stream{Filter: f, View: func(o fleet.Object) api.Object { return shown(ctx, o) }, Beat: s.keepAlive}
	return s.stream(ctx, w, st, q.Get("after"), q.Get("since"))
}

// WatchAs streams to a peer all that this region owns and the peer has.
func (h *Handler) WatchAs(ctx context.Context, peer fleet.RegionName, w http.ResponseWriter, after, since string) error {
	f := watch.Filter{Owner: h.s.region, Region: peer}
	return h.s.stream(ctx, w, &watch.Stream{Filter: f, View: ViewOf, Beat: peerBeat}, after, since)
}

// Committed tells watches that something was committed.
func (h *Handler) Committed() { h.s.watched.Wake() }

// stream sends one watch. An error before its first line is answered; a later one ends the stream.
func (s *server) stream(ctx context.Context, w http.ResponseWriter, st *watch.Stream, after, since string) error {
	out := &lines{to: s.Rolling(w, func(int) {})}
	st.Source, st.Reader, st.Self, st.Snapshots, st.Send, st.Stopping = s.store, s.watched, s.region, s.snapshots, out.send, s.stopping
	err := st.Run(ctx, after, since)
	if out.begun && err != nil {
		if ctx.Err() == nil {
			s.Log.Info("watch ended", "err", err)
		}
		return nil
	}
	return err
}

// lines writes JSON lines.
type lines struct {
	to    *serve.RollingWriter
	begun bool
}

func (l *lines) send(all []api.WatchLine) error {
	var text bytes.Buffer
	for _, line := range all {
		b, err := json.Marshal(line)
		if err != nil {
			return err
		}
		text.Write(append(b, '\n'))
	}
	return l.write(text.Bytes())
}

// write sends text. Without any, it says at first that the watch has begun.
func (l *lines) write(text []byte) error {
	begun := l.begun
	if !begun {
		l.begun = true
		l.to.Header().Set("Content-Type", "application/x-ndjson")
		l.to.Header().Set("Cache-Control", "no-store")
		l.to.Header().Set("X-Accel-Buffering", "no") // proxies pass each line on at once
		l.to.WriteHeader(http.StatusOK)
	}
	if len(text) == 0 && begun {
		return nil
	}
	if _, err := io.Copy(l.to, bytes.NewReader(text)); err != nil {
		return err
	}
	return l.to.FlushError()
}
