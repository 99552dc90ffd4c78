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

// DefaultHost is where an engine listens unless it is told otherwise.
const DefaultHost = "unix:///var/run/docker.sock"

// maxAnswer bounds what is read of one answer that is not output, unless it is said.
const maxAnswer = 4 << 20

// How long an engine may take for a call: for one that reads, one that has it do something, and one
// that reads output. A wait and the pull of an image have no such time.
const (
	readLimit   = 10 * time.Second
	doLimit     = time.Minute
	outputLimit = 30 * time.Second
	noLimit     = -1
)

// engine calls the Engine API.
type engine struct {
	http  *http.Client
	limit time.Duration // of calls that name none

	mu      sync.Mutex
	version apiVersion // that was agreed on, zero before
}

// newEngine speaks to a unix socket; other ways to an engine have no owner on this machine.
func newEngine(host string) (*engine, error) {
	path, unix := strings.CutPrefix(host, "unix://")
	if !unix || path == "" {
		return nil, fleet.Errorf(fleet.Invalid, "%.80q is not the address of an engine on this machine", host).
			At("docker").WithHint("for example " + DefaultHost)
	}
	dialer := &net.Dialer{}
	return &engine{limit: readLimit, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
	}}}, nil
}

// request is one call; body is sent as JSON. Limit is the engine's own unless it is said, and so is most,
// the bytes that are read of the answer.
type request struct {
	method, path string
	query        url.Values
	body         any
	limit        time.Duration
	most         int64
}

// open makes a call and gives its answer; an answer that is no success is an error of its kind.
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

// send makes one request, whatever the answer. An engine that is away is unavailable, as a region
// is not that does not answer: that has a word of its own.
func (e *engine) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, fleet.Errorf(fleet.Internal, "encode what the engine is asked: %w", err)
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
		err = failed.Err // what was asked says nothing to people
	}
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "reach the engine: %w", err)
	}
	return resp, nil
}

// call makes a call and reads its answer into something, unless that is nil.
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
	if err := json.NewDecoder(io.LimitReader(body, cmp.Or(r.most, maxAnswer))).Decode(into); err != nil {
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

// refusal is what the engine says of its own; its messages hold no output of programs.
func (e *engine) refusal(resp *http.Response) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&said) // its status says enough
	kind := fleet.Unavailable
	switch resp.StatusCode {
	case http.StatusNotFound:
		kind = fleet.NotFound
	case http.StatusConflict:
		kind = fleet.Conflict
	case http.StatusBadRequest:
		kind = fleet.Invalid
		if strings.Contains(said.Message, "client version") { // it is another engine than the one that was asked
			kind = fleet.Unavailable
			e.agree(apiVersion{})
		}
	}
	return fleet.Errorf(kind, "the engine answered %d: %.300s", resp.StatusCode, said.Message)
}

// absent says that what was asked about is not there.
func absent(err error) bool { return fleet.KindOf(err) == fleet.NotFound }
