package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DefaultHost is the default address of an engine.
const DefaultHost = "unix:///var/run/docker.sock"

// maxAnswer bounds an answer that is neither output nor a list. It has room for a container with the longest command,
// which is in it twice, and the longest description of an image.
const maxAnswer = 4 << 20

// The time limits of calls: of reads, of actions, and of reads of output. A wait and the pull of an image have
// none of these.
const (
	readLimit   = 10 * time.Second
	doLimit     = time.Minute
	outputLimit = 30 * time.Second
	noLimit     = -1
)

// engine calls the Engine API.
type engine struct {
	http  *http.Client
	limit time.Duration // of calls without their own

	mu      sync.Mutex
	version apiVersion // the negotiated version, zero before
}

// newEngine uses a unix socket; an engine elsewhere does not run on this machine.
func newEngine(host string) (*engine, error) {
	path, unix := strings.CutPrefix(host, "unix://")
	if !unix || path == "" {
		return nil, fleet.Errorf(fleet.Invalid, "invalid engine address %.80q: want a unix socket of this machine", host).
			At("docker").WithHint("for example " + DefaultHost)
	}
	dialer := &net.Dialer{}
	return &engine{limit: readLimit, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
	}}}, nil
}

// request is one call; body is sent as JSON. A zero limit is the engine's.
type request struct {
	method, path string
	query        url.Values
	body         any
	limit        time.Duration
}

// open makes a call and gives its answer; an unsuccessful answer is an error of its kind.
func (e *engine) open(ctx context.Context, r request) (io.ReadCloser, error) {
	version, err := e.agreed(ctx)
	if err != nil {
		return nil, err
	}
	r.path = "/v" + version.String() + r.path
	resp, err := e.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, errors.Join(e.refusal(resp), resp.Body.Close())
	}
	return resp.Body, nil
}

// send makes one request, and accepts any answer. An unreachable engine is unavailable, unlike a region that
// does not answer, which has its own kind.
func (e *engine) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, fleet.Errorf(fleet.Internal, "encode the request to the engine: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	at := url.URL{Scheme: "http", Host: "engine", Path: r.path, RawQuery: r.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "ask the engine: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // the URL is of no use to people
	}
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "reach the engine: %w", err)
	}
	return resp, nil
}

// call makes a call and decodes its answer, unless into is nil.
func (e *engine) call(ctx context.Context, r request, into any) error {
	ctx, cancel := limited(ctx, cmp.Or(r.limit, e.limit))
	defer cancel()
	body, err := e.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fleet.Errorf(fleet.Unavailable, "read the engine's answer: %w", err)
	}
	return nil
}

func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == noLimit {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fleet.Errorf(fleet.Unavailable, "the engine took longer than %s", limit))
}

// refusal makes an error of the engine's message; its messages contain no output of programs.
func (e *engine) refusal(resp *http.Response) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&said) // the status is enough
	kind := fleet.Unavailable
	switch resp.StatusCode {
	case http.StatusNotFound:
		kind = fleet.NotFound
	case http.StatusConflict:
		kind = fleet.Conflict
	case http.StatusBadRequest:
		kind = fleet.Invalid
		if strings.Contains(said.Message, "client version") { // the engine was replaced by another one
			kind = fleet.Unavailable
			e.agree(apiVersion{})
		}
	}
	return fleet.Errorf(kind, "the engine answered %d: %.300s", resp.StatusCode, said.Message)
}

// absent tells whether the object of a call was not found.
func absent(err error) bool { return fleet.KindOf(err) == fleet.NotFound }
