package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// Mutation is what every change can carry besides its body.
type Mutation struct {
	// IfMatch is the ETag that the object must still have; "" for any.
	IfMatch string
	// IdempotencyKey makes repeats one change; a random one is taken when it is empty.
	IdempotencyKey string
	// DryRun answers what would happen, and changes nothing.
	DryRun bool
	// Region is the region that created a declared object; "" is the object of the region that is called, or the only copy
	// that it owns.
	Region string
	// Project is that of the object, or the one to declare it in where the body names none; "" is any, or the default.
	Project string
}

// Page asks for a part of a list. Zero values leave the choice to the region.
type Page struct {
	Limit   int
	Cursor  string
	Project string
	// Region lists copies of what this region created; "" lists the region's own objects.
	Region string
	// Site lists the nodes of this site only; for nodes.
	Site string
}

func (p Page) query() url.Values {
	q := url.Values{}
	queryInt(q, "limit", int64(p.Limit))
	queryText(q, "cursor", p.Cursor)
	queryText(q, "project", p.Project)
	queryText(q, "region", p.Region)
	queryText(q, "site", p.Site)
	return q
}

// clientCall is one request to the region, in a form that can be sent again.
type clientCall struct {
	method   string
	segments []string // below /api/v1
	query    url.Values
	header   http.Header
	body     any   // an io.Reader and encoded are sent as they are, everything else as JSON
	size     int64 // of a body that is an io.Reader
}

// encoded is a body that is JSON already.
type encoded []byte

func readCall(query url.Values, segments ...string) clientCall {
	return clientCall{method: http.MethodGet, segments: segments, query: query, header: http.Header{}}
}

// writeCall is a call with the headers of a mutation: the key is fixed before the first try,
// so that a retry is known as one.
func writeCall(method string, m Mutation, body any, segments ...string) clientCall {
	r := clientCall{method: method, segments: segments, query: url.Values{}, header: http.Header{}, body: body}
	key := m.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	r.header.Set("Idempotency-Key", key)
	if m.IfMatch != "" {
		r.header.Set("If-Match", m.IfMatch)
	}
	if m.DryRun {
		r.query.Set("dryRun", "true")
	}
	queryText(r.query, "region", m.Region)
	queryText(r.query, "project", m.Project)
	return r
}

const maxClientAnswer = 256 << 20

// do makes a call, again where a repeat is harmless, and decodes the answer into out.
func (c *Client) do(ctx context.Context, r clientCall, out any) (http.Header, error) {
	var header http.Header
	err := c.try(ctx, r, func(resp *http.Response) error {
		header = resp.Header
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxClientAnswer))
		if err != nil {
			return c.unreachable(err)
		}
		if out == nil || len(bytes.TrimSpace(body)) == 0 {
			return nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			return fleet.Errorf(Internal, "read the answer to %s %s: %w", r.method, resp.Request.URL.Path, err).
				WithHint("check that the address is a Holdfast region of this version")
		}
		return nil
	})
	return header, err
}

// try sends a call until it is answered by something else than "not now".
func (c *Client) try(ctx context.Context, r clientCall, read func(*http.Response) error) error {
	for attempt := 1; ; attempt++ {
		err := c.once(ctx, r, read)
		if err == nil || attempt > len(c.pauses) || !again(err) {
			return err
		}
		wait := max(c.pauses[attempt-1], retryAfter(err))
		c.retry(Retry{Attempt: attempt, Of: len(c.pauses) + 1, Pause: wait, Err: err})
		if paused := pause.For(ctx, wait); paused != nil {
			return errors.Join(paused, err)
		}
	}
}

func (c *Client) once(ctx context.Context, r clientCall, read func(*http.Response) error) error {
	req, err := c.request(ctx, r)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp)
}

// request builds the HTTP request of a call; a body that is a stream is sent as it is.
func (c *Client) request(ctx context.Context, r clientCall) (*http.Request, error) {
	path := "/api/v1"
	for _, s := range r.segments {
		if s == "" || s == "." || s == ".." {
			return nil, fleet.Errorf(Invalid, "invalid name %q", s)
		}
		path += "/" + url.PathEscape(s)
	}
	if len(r.query) > 0 {
		path += "?" + r.query.Encode()
	}
	stream, _ := r.body.(io.Reader)
	if text, ok := r.body.(encoded); ok {
		stream = bytes.NewReader(text)
	}
	if r.body != nil && stream == nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fleet.Errorf(Invalid, "encode the request: %w", err)
		}
		stream = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+path, stream)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header = r.header.Clone()
	if r.size > 0 {
		req.ContentLength = r.size
	}
	if r.body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// send turns everything but a 2xx into an error.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, context.Cause(ctx))
		}
		return nil, c.unreachable(err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, ReadRefusal(resp)
	}
	return resp, nil
}

func queryText(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func queryInt(q url.Values, name string, value int64) {
	if value != 0 {
		q.Set(name, fmt.Sprint(value))
	}
}

// Quoted makes an ETag of what a person types: a bare resource version is put in quotes.
func Quoted(etag string) string {
	if etag == "" || etag == "*" || strings.HasSuffix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}
