package httpapi

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// watched is an open watch, read in the background.
type watched struct {
	t     *testing.T
	lines chan api.WatchLine
	shown int64 // lines of objects and of what is gone
}

func watchedOf(t *testing.T, resp *http.Response) *watched {
	t.Helper()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	w := &watched{t: t, lines: make(chan api.WatchLine, 2000)}
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l api.WatchLine
			if len(lines.Bytes()) > 0 && json.Unmarshal(lines.Bytes(), &l) == nil {
				w.lines <- l
			}
		}
	}()
	return w
}

func (r *region) watch(token, query string) *watched {
	r.t.Helper()
	resp, err := plain.Do(r.request(token, http.MethodGet, "/api/v1/watch"+query, nil))
	require.NoError(r.t, err)
	return watchedOf(r.t, resp)
}

// watchAs is the stream that a peer gets.
func (r *region) watchAs(peer fleet.RegionName, after string) *watched {
	r.t.Helper()
	h := &Handler{s: r.server}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := h.WatchAs(req.Context(), peer, w, after, ""); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	r.t.Cleanup(web.Close)
	r.t.Cleanup(web.CloseClientConnections)
	resp, err := plain.Get(web.URL) //nolint:noctx // a test's own server
	require.NoError(r.t, err)
	return watchedOf(r.t, resp)
}

func (w *watched) next() api.WatchLine {
	w.t.Helper()
	select {
	case l := <-w.lines:
		return l
	case <-time.After(patience):
		w.t.Fatal("no line")
		return api.WatchLine{}
	}
}

// until gives what a watch shows, one word a line, up to a line of a type.
func (w *watched) until(kind string) (words []string, last api.WatchLine) {
	w.t.Helper()
	for {
		l := w.next()
		if l.Type == kind {
			return words, l
		}
		word := l.Type
		switch {
		case l.Type == api.WatchSnapshot:
			continue
		case l.Object != nil:
			w.shown++
			word = l.Object.Kind + "/" + l.Object.Name
		case l.Gone != nil:
			w.shown++
			word = l.Gone.Reason + " " + l.Gone.Kind + "/" + l.Gone.Name
		}
		if !slices.Contains(words, word) { // another transaction of this Postgres may have a change come twice
			words = append(words, word)
		}
	}
}

func (w *watched) current() (words []string, token string) {
	w.t.Helper()
	words, last := w.until(api.WatchCurrent)
	return words, last.Token
}

// M47, M32, X24
func TestWatch(t *testing.T) {
	t.Parallel()

	t.Run("begins with what there is and its size, and goes on with what changes", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put("/api/v1/projects/one", nil)
		w := r.watch(r.viewer, "")
		first, size := w.until(api.WatchSnapshotSize)
		require.Equal(t, []string{"project/one", "site/plant-1"}, first)
		require.Equal(t, w.shown, size.Count)
		require.NotEmpty(t, w.next().Token)
		put := into[api.Accepted](t, r.put("/api/v1/projects/two", `{"labels":{"a":"b"}}`))
		l := w.next()
		for l.Object == nil || l.Object.Name != "two" { // what was there before may come once more
			l = w.next()
		}
		require.Equal(t, put.Object.UID, l.Object.UID)
		require.Equal(t, map[string]string{"a": "b"}, l.Object.Labels)
		require.Equal(t, put.Object.ResourceVersion, l.Object.ResourceVersion)
		require.Positive(t, l.Number)
		_, _ = w.current()
		r.call(r.admin, http.MethodDelete, "/api/v1/projects/two", nil)
		more, _ := w.current()
		for len(more) == 0 || more[0] == "project/two" {
			more, _ = w.current()
		}
		require.Equal(t, []string{"deleted project/two"}, more)
	})

	t.Run("resumes where it was, and begins anew where that is of no use", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/one", nil)
		_, token := r.watch(r.viewer, "?kind=project").current()
		r.put("/api/v1/projects/two", nil)
		r.call(r.admin, http.MethodDelete, "/api/v1/projects/one", nil)
		after := "&after=" + token
		var all []string
		for w := r.watch(r.viewer, "?kind=project"+after); len(all) < 2; {
			words, _ := w.current()
			all = append(all, words...)
		}
		require.ElementsMatch(t, []string{"project/two", "deleted project/one"}, all)

		words, reset := r.watch(r.viewer, "?kind=site"+after).until(api.WatchSnapshotSize)
		require.Equal(t, []string{api.WatchHardReset}, words, "of another filter")
		require.Zero(t, reset.Count)

		r.sql(`UPDATE feed_horizon SET era = 1, xid = pg_current_xact_id(), seq = 1000000`)
		l := r.watch(r.viewer, "?kind=project"+after).next()
		require.Equal(t, api.WatchLine{Type: api.WatchHardReset, Reason: "collected"}, l)

		for _, bad := range []string{"x", token + "!", "AAAA"} {
			require.Equal(t, http.StatusBadRequest, r.get("/api/v1/watch?after="+bad).status, bad)
		}
		require.Equal(t, http.StatusBadRequest, r.get("/api/v1/watch?kind=nothing").status)
	})

	t.Run("begins anew after a restore that undid what was seen", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/one", nil)
		_, before := r.watch(r.viewer, "").current()
		w := r.watch(r.viewer, "")
		_, _ = w.current()
		r.put("/api/v1/projects/two", nil)
		var words []string
		seen := ""
		for !slices.Contains(words, "project/two") { // a line before it may be a beat's
			words, seen = w.current()
		}
		r.sql(`DELETE FROM objects WHERE name = 'two'`)
		r.sql(`DELETE FROM events WHERE name = 'two'`)
		_, err := postgres.RaiseEra(t.Context(), r.database, "test")
		require.NoError(t, err)
		require.Equal(t, "collected", r.watch(r.viewer, "?after="+seen).next().Reason)
		_ = before
		put := into[api.Accepted](t, r.put("/api/v1/projects/three", nil))
		require.Greater(t, len(put.Object.ResourceVersion), 12, "numbers of a new era are above all earlier ones")
	})

	t.Run("shows a restricted token its project, and hides what is secret", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/mine", nil)
		r.put("/api/v1/projects/other", nil)
		mine := r.token("viewer", "mine")
		w := r.watch(mine, "")
		first, _ := w.until(api.WatchSnapshotSize)
		require.Equal(t, []string{"project/mine"}, first)
		require.Equal(t, http.StatusForbidden, r.call(mine, http.MethodGet, "/api/v1/watch?project=other", nil).status)
	})

	t.Run("gives a peer what it has, and tells when it loses it", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/one", nil)
		r.put("/api/v1/projects/two", nil)
		share := func(name, regions string) {
			r.sql(`UPDATE objects SET syncing = $2 WHERE name = $1`, name, json.RawMessage(`{"owningRegion":"test","regions":[`+regions+`]}`))
		}
		share("one", `"test","us"`)
		w := r.watchAs("us", "")
		first, token := w.current()
		require.Equal(t, []string{"project/one", api.WatchSnapshotSize}, first)
		r.put("/api/v1/projects/two", `{"labels":{"a":"1"}}`) // which it never had
		r.put("/api/v1/projects/one", `{"labels":{"a":"1"}}`) // computes the regions again
		var all []string
		for len(all) == 0 {
			all, _ = w.current()
		}
		require.Equal(t, []string{"removed project/one"}, all)
		resumed, _ := r.watchAs("us", token).until(api.WatchCurrent)
		require.Equal(t, "removed project/one", strings.Join(resumed, ", "))
	})
}
