package region

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

const healURL = "http://region.test"

var errHealLink = errors.New("the link is cut")

// healLink is the way of one life of a node to the region: no sockets. What happens on it
// is drawn from the seed of the step; requests that a node makes at once are told apart by
// nothing but their order, so on those nothing is drawn.
type healLink struct {
	life *healLife
}

func (l *healLink) RoundTrip(req *http.Request) (*http.Response, error) {
	w, n := l.life.node.world, l.life.node
	quiet := strings.Contains(req.URL.Path, "/api/internal/deployments/") && l.life.comparing.Load()
	if l.life.dead.Load() || n.cut {
		return nil, errHealLink
	}
	if !quiet {
		w.meanwhile("request of " + string(n.name) + " " + healPath(req))
		if w.chance(12) {
			w.say("lost: request of %s %s", n.name, healPath(req))
			return nil, errHealLink
		}
		if l.life.dead.Load() || n.cut {
			return nil, errHealLink
		}
	}
	rec := httptest.NewRecorder()
	if err := w.serve(rec, req); err != nil {
		return nil, err
	}
	if !quiet {
		if w.chance(12) {
			w.say("lost: answer to %s %s", n.name, healPath(req))
			return nil, errHealLink
		}
		w.meanwhile("answer to " + string(n.name) + " " + healPath(req))
	}
	if l.life.dead.Load() || n.cut {
		return nil, errHealLink
	}
	res := rec.Result()
	res.Request = req
	return res, nil
}

// serve is the handler at work; one that breaks off breaks the link.
func (w *healWorld) serve(rec *httptest.ResponseRecorder, req *http.Request) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if r != http.ErrAbortHandler { //nolint:errorlint // what net/http compares with
				w.fail("the handler panics: %v", r)
			}
			err = errHealLink
		}
	}()
	in := req.Clone(req.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI = ""
	before := w.withoutRight(in)
	w.region.handler.ServeHTTP(rec, in)
	if after := w.withoutRight(in); after > before {
		w.fail("what a node applied without the right to is deployed by the results of a batch")
	}
	_, _ = io.Copy(io.Discard, in.Body) // as a server does
	return nil
}

// healPath is a path without the ids in it.
func healPath(req *http.Request) string {
	parts := strings.Split(req.URL.Path, "/")
	return req.Method + " " + parts[len(parts)-1]
}
