package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

var press7 = fleet.InstanceKey("plant-1", "press-7")

// clientOf makes a client of a handler, which pauses hardly between its tries.
func clientOf(t *testing.T, handler http.HandlerFunc, options ...ClientOption) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options = append([]ClientOption{WithPauses(time.Millisecond, time.Millisecond, time.Millisecond)}, options...)
	c, err := NewClient(server.URL, "secret", options...)
	require.NoError(t, err)
	return c
}

// requests remembers what arrived.
type requests struct {
	mu     sync.Mutex
	seen   []*http.Request
	bodies []string
}

func (r *requests) add(req *http.Request) int {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.bodies = append(r.seen, req), append(r.bodies, string(body))
	return len(r.seen)
}

func (r *requests) all() ([]*http.Request, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen), slices.Clone(r.bodies)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// hangUp breaks the connection of a request.
func hangUp(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func TestClientRetries(t *testing.T) {
	t.Parallel()

	t.Run("a lost answer is asked for again under the same key", func(t *testing.T) {
		t.Parallel()
		var seen requests
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			switch seen.add(r) {
			case 1:
				hangUp(w)
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 3: // a part of an answer
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"operation":`)
				w.(http.Flusher).Flush()
				hangUp(w)
			default:
				answer(w, 202, Accepted{Operation: &Operation{ID: "o1"}})
			}
		})
		got, err := c.Deploy(t.Context(), press7, ActionRequest{Reason: "why"}, Mutation{IfMatch: `"7"`})
		require.NoError(t, err)
		require.Equal(t, "o1", got.Operation.ID)
		all, bodies := seen.all()
		require.Len(t, all, 4)
		key := all[0].Header.Get("Idempotency-Key")
		require.NotEmpty(t, key)
		for i, r := range all {
			require.Equal(t, key, r.Header.Get("Idempotency-Key"))
			require.Equal(t, `"7"`, r.Header.Get("If-Match"))
			require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
			require.JSONEq(t, `{"reason":"why"}`, bodies[i])
		}
		_, err = c.Deploy(t.Context(), press7, ActionRequest{}, Mutation{})
		require.NoError(t, err)
		all, _ = seen.all()
		require.NotEqual(t, key, all[4].Header.Get("Idempotency-Key"), "another call is another change")
	})

	t.Run("end when the region stays away, and are told", func(t *testing.T) {
		t.Parallel()
		var seen requests
		var told []Retry
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			seen.add(r)
			w.WriteHeader(http.StatusServiceUnavailable)
		}, WithRetryNotice(func(r Retry) { told = append(told, r) }))
		_, err := c.Nodes(t.Context(), Page{})
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		all, _ := seen.all()
		require.Len(t, all, 4)
		require.Len(t, told, 3)
		require.Equal(t, 1, told[0].Attempt)
		require.Equal(t, 4, told[0].Of)
	})

	t.Run("are not made of an answer", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{400, 401, 403, 404, 409, 412, 422, 500, 502} {
			var seen requests
			c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
				seen.add(r)
				w.WriteHeader(status)
			})
			_, err := c.Nodes(t.Context(), Page{})
			require.Error(t, err)
			all, _ := seen.all()
			require.Len(t, all, 1, "status %d", status)
		}
	})

	t.Run("wait as long as Retry-After says, and no longer than the caller", func(t *testing.T) {
		t.Parallel()
		ctx, leave := context.WithCancel(t.Context())
		var told Retry
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, WithRetryNotice(func(r Retry) { told = r; leave() }))
		_, err := c.Nodes(ctx, Page{})
		require.Equal(t, maxRetryAfter, told.Pause)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err), "with what was wrong")
	})
}

func TestClientErrors(t *testing.T) {
	t.Parallel()

	t.Run("have the kind, field and hint of the problem", func(t *testing.T) {
		t.Parallel()
		for _, kind := range fleet.Kinds() {
			c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(418)
				_ = json.NewEncoder(w).Encode(Problem{Type: "https://x.example/problems/" + string(kind), Detail: "d", Field: "/f", Hint: "h"})
			})
			_, err := c.Node(t.Context(), "n")
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []string{string(kind), "d", "/f", "h"}, []string{string(e.Kind), e.Message, e.Field, e.Hint})
			p := ProblemOf(fmt.Errorf("wrapped: %w", err))
			require.Equal(t, "https://x.example/problems/"+string(kind), p.Type)
			require.Equal(t, 418, p.Status)
		}
	})

	t.Run("take the status when something in between answers", func(t *testing.T) {
		t.Parallel()
		for status, kind := range map[int]fleet.Kind{
			401: fleet.Unauthenticated, 403: fleet.Denied, 404: fleet.NotFound, 409: fleet.Conflict, 412: fleet.Precondition,
			413: fleet.TooLarge, 415: fleet.Invalid, 422: fleet.IllegalState, 429: fleet.RateLimited, 500: fleet.Internal,
			502: fleet.Unavailable, 504: fleet.Unavailable,
		} {
			c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "<html>proxy</html>")
			}, WithPauses())
			_, err := c.Node(t.Context(), "n")
			require.Equal(t, kind, fleet.KindOf(err), "status %d", status)
			require.NotContains(t, err.Error(), "<html>")
		}
	})

	t.Run("say so when the answer is none of ours", func(t *testing.T) {
		t.Parallel()
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		_, err := c.Node(t.Context(), "n")
		require.Equal(t, fleet.Internal, fleet.KindOf(err))
		require.ErrorContains(t, err, "check that the address is a Holdfast region")
	})

	t.Run("of an address or a name come before any request", func(t *testing.T) {
		t.Parallel()
		for _, address := range []string{"", "host:80", "ftp://x", "http://", "http://user:pw@x", "http://x?token=1"} {
			_, err := NewClient(address, "")
			require.Equal(t, fleet.Invalid, fleet.KindOf(err), address)
		}
		c := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) })
		for _, name := range []string{"", ".", ".."} {
			_, err := c.Node(t.Context(), name)
			require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		}
	})
}

func TestClientCalls(t *testing.T) {
	t.Parallel()

	t.Run("escape names, and send queries as the contract names them", func(t *testing.T) {
		t.Parallel()
		var seen requests
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) { seen.add(r); answer(w, 200, struct{}{}) })
		ctx := t.Context()
		_, _ = c.Node(ctx, "a/b?c")
		_, _ = c.Objects(ctx, fleet.KindInstance, "plant-1", Page{Limit: 3, Cursor: "x y", Project: "p"})
		_, _ = c.Operation(ctx, "o", 30*time.Second)
		_, _ = c.StageInstance(ctx, press7, InstancePut{}, Mutation{DryRun: true})
		_, _ = c.Logs(ctx, press7, LogQuery{Node: "n", After: 9})
		_ = c.RevokeJoinToken(ctx, "t", Mutation{})
		_, _ = c.StageFleet(ctx, "f", FleetPut{}, Mutation{})
		_, _ = c.TurnFleet(ctx, "f", "retry", ActionRequest{}, Mutation{})
		_, _ = c.FleetTargets(ctx, "f", FleetTargetQuery{Run: 2, State: fleet.FleetTargetFailed, Page: Page{Limit: 3, Cursor: "c"}})
		_, _ = c.FleetRuns(ctx, "f", Page{Limit: 1})
		_, _ = c.Operations(ctx, OperationQuery{Fleet: "f"})
		_, _, _ = c.Object(ctx, fleet.ObjectKey{Kind: fleet.KindFleet, Name: "f"})
		_, _, _ = c.ObjectOf(ctx, press7, Page{Project: "p", Region: "eu"})
		_, _ = c.Delete(ctx, press7, Mutation{Project: "p"})
		var got []string
		all, _ := seen.all()
		for _, r := range all {
			got = append(got, r.Method+" "+r.URL.RequestURI())
		}
		require.Equal(t, []string{
			"GET /api/v1/nodes/a%2Fb%3Fc",
			"GET /api/v1/sites/plant-1/instances?cursor=x+y&limit=3&project=p",
			"GET /api/v1/operations/o?wait=30s",
			"PUT /api/v1/sites/plant-1/instances/press-7?deploy=false&dryRun=true",
			"GET /api/v1/sites/plant-1/instances/press-7/logs?after=9&node=n",
			"DELETE /api/v1/join-tokens/t",
			"PUT /api/v1/fleets/f?deploy=false",
			"POST /api/v1/fleets/f/retry",
			"GET /api/v1/fleets/f/targets?cursor=c&limit=3&run=2&state=failed",
			"GET /api/v1/fleets/f/runs?limit=1",
			"GET /api/v1/operations?fleet=f",
			"GET /api/v1/fleets/f",
			"GET /api/v1/sites/plant-1/instances/press-7?project=p&region=eu",
			"DELETE /api/v1/sites/plant-1/instances/press-7?project=p",
		}, got)
	})

	t.Run("give the ETag with the object", func(t *testing.T) {
		t.Parallel()
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"opaque"`)
			answer(w, 200, Object{Name: "press-7"})
		})
		o, etag, err := c.Object(t.Context(), press7)
		require.NoError(t, err)
		require.Equal(t, "press-7", o.Name)
		require.Equal(t, `"opaque"`, etag)
		require.Equal(t, []string{`"7"`, `"7"`, "*", ""}, []string{Quoted("7"), Quoted(`"7"`), Quoted("*"), Quoted("")})
	})

	t.Run("stream a config, and say when it broke off", func(t *testing.T) {
		t.Parallel()
		body := strings.Repeat("x", 3<<20)
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
		var got bytes.Buffer
		n, err := c.Config(t.Context(), press7, &got)
		require.NoError(t, err)
		require.Equal(t, int64(len(body)), n)
		require.Equal(t, body, got.String())

		c = clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			hangUp(w)
		})
		got.Reset()
		_, err = c.Config(t.Context(), press7, &got)
		require.ErrorContains(t, err, "ended after 4 bytes")
		require.Equal(t, "half", got.String(), "nothing is written twice")
	})
}

func TestClientWatchesEvents(t *testing.T) {
	t.Parallel()

	t.Run("over broken streams, each event once", func(t *testing.T) {
		t.Parallel()
		var seen requests
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			n := seen.add(r)
			if r.Header.Get("Accept") != "text/event-stream" {
				t.Errorf("asked for %s", r.Header.Get("Accept"))
			}
			_, _ = fmt.Fprintf(w, ": hello\r\n\r\nid: %d\r\nevent: x\r\ndata: {\"id\":\"%d\",\r\ndata: \"name\":\"a\"}\r\n\r\n", n, n)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "data: {\"id\":\"lost")
			hangUp(w)
		})
		enough := errors.New("enough")
		var got []string
		err := c.WatchEvents(t.Context(), EventQuery{After: "0", Project: "p"}, func(e Event) error {
			got = append(got, e.ID+e.Name)
			if len(got) == 2 {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, []string{"1a", "2a"}, got)
		all, _ := seen.all()
		require.Equal(t, "0", all[0].Header.Get("Last-Event-ID"))
		require.Equal(t, "1", all[1].Header.Get("Last-Event-ID"))
	})

	t.Run("from now on, also when the stream breaks before the first", func(t *testing.T) {
		t.Parallel()
		var seen requests
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			switch seen.add(r) {
			case 1:
				answer(w, 200, List[Event]{Items: []Event{{ID: "41"}}})
			case 2:
				w.(http.Flusher).Flush()
				hangUp(w)
			default:
				_, _ = io.WriteString(w, "data: {\"id\":\"42\"}\n\n")
			}
		})
		enough := errors.New("enough")
		err := c.WatchEvents(t.Context(), EventQuery{}, func(e Event) error {
			require.Equal(t, "42", e.ID)
			return enough
		})
		require.ErrorIs(t, err, enough)
		all, _ := seen.all()
		require.Equal(t, "41", all[2].Header.Get("Last-Event-ID"))
	})

	t.Run("from the place that the stream began at, while there is no event at all", func(t *testing.T) {
		t.Parallel()
		var seen requests
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			switch seen.add(r) {
			case 1:
				answer(w, 200, List[Event]{})
			case 2:
				_, _ = io.WriteString(w, ": the feed begins\nid: 1.7.0\n\nid: 1.8.0\n")
				w.(http.Flusher).Flush()
				hangUp(w)
			default:
				_, _ = io.WriteString(w, "id: 1.9.3\ndata: {\"id\":\"1.9.3\"}\n\n")
			}
		})
		enough := errors.New("enough")
		var places []string
		err := c.WatchEvents(t.Context(), EventQuery{Placed: func(id string) { places = append(places, id) }}, func(Event) error { return enough })
		require.ErrorIs(t, err, enough)
		all, _ := seen.all()
		require.Equal(t, "1.7.0", all[2].Header.Get("Last-Event-ID"))
		require.Equal(t, []string{"1.7.0"}, places, "an event that was not handled comes again")
	})

	t.Run("until the region refuses or the caller goes", func(t *testing.T) {
		t.Parallel()
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })
		require.Equal(t, fleet.Denied, fleet.KindOf(c.WatchEvents(t.Context(), EventQuery{After: "0"}, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		c = clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
		})
		require.ErrorIs(t, c.WatchEvents(ctx, EventQuery{After: "0"}, nil), context.Canceled)
	})
}
