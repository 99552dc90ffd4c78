package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DefaultHost is where an engine listens unless it is told otherwise.
const DefaultHost = "unix:///var/run/docker.sock"

// version of the API that is asked for: of engines from 2020 on.
const version = "/v1.41"

// maxAnswer bounds what is read of one answer that is not output.
const maxAnswer = 4 << 20

// engine calls the Engine API.
type engine struct{ http *http.Client }

// newEngine speaks to a unix socket; other ways to an engine have no owner on this machine.
func newEngine(host string) (*engine, error) {
	path, unix := strings.CutPrefix(host, "unix://")
	if !unix || path == "" {
		return nil, fleet.Errorf(fleet.Invalid, "%.80q is not the address of an engine on this machine", host).
			At("docker").WithHint("for example " + DefaultHost)
	}
	dialer := &net.Dialer{}
	return &engine{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
	}}}, nil
}

// request is one call; Body is sent as JSON.
type request struct {
	method, path string
	query        url.Values
	body         any
}

// open makes a call and gives its answer; an answer that is no success is an error of its kind.
func (e *engine) open(ctx context.Context, r request) (io.ReadCloser, error) {
	var body io.Reader = http.NoBody
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, fleet.Errorf(fleet.Internal, "encode what the engine is asked: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	at := url.URL{Scheme: "http", Host: "engine", Path: version + r.path, RawQuery: r.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "ask the engine: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, fleet.Errorf(fleet.Communication, "reach the engine: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, errors.Join(refusal(resp), resp.Body.Close())
	}
	return resp.Body, nil
}

// call makes a call and reads its answer into something, unless that is nil.
func (e *engine) call(ctx context.Context, r request, into any) error {
	body, err := e.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fleet.Errorf(fleet.Communication, "read the engine's answer: %w", err)
	}
	return nil
}

// refusal is what the engine says of its own; its messages hold no output of programs.
func refusal(resp *http.Response) error {
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
	}
	return fleet.Errorf(kind, "the engine answered %d: %.300s", resp.StatusCode, said.Message)
}

// absent says that what was asked about is not there.
func absent(err error) bool { return fleet.KindOf(err) == fleet.NotFound }
