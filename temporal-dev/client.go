package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	requestTimeout = 45 * time.Second // longer than the longest requested wait
	maxAnswer      = 8 << 20
)

// apiClient calls the region's HTTP API as its first administrator.
type apiClient struct {
	base  string
	token string
	http  http.Client
}

// newClient makes a client; security is nil without TLS.
func newClient(base, token string, security *tls.Config) *apiClient {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = security
	return &apiClient{base: base, token: token, http: http.Client{Timeout: requestTimeout, Transport: transport}}
}

// ready reports whether the server can serve.
func (c *apiClient) ready(ctx context.Context) error {
	return answersTo(ctx, &c.http, c.base+"/readyz")
}

// problem is the part of application/problem+json that operators read.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

// call sends in (nothing when nil) and reads the answer into out (ignored when nil).
func (c *apiClient) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return fleet.Errorf(fleet.Communication, "%s %s: %w", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fleet.Errorf(fleet.Communication, "read the answer of %s %s: %w", method, path, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return refusal(method, path, res, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the answer of %s %s: %w", method, path, err)
	}
	return nil
}

func refusal(method, path string, res *http.Response, text []byte) error {
	kind := fleet.Invalid
	switch {
	case res.StatusCode == http.StatusNotFound:
		kind = fleet.NotFound
	case res.StatusCode >= http.StatusInternalServerError:
		kind = fleet.Unavailable
	}
	var p problem
	detail := res.Status
	if json.Unmarshal(text, &p) == nil && (p.Title != "" || p.Detail != "") {
		detail = fmt.Sprintf("%s: %s %s", res.Status, p.Title, p.Detail)
	}
	return fleet.Errorf(kind, "%s %s: %s", method, path, detail)
}

// exists reports whether an object exists.
func (c *apiClient) exists(ctx context.Context, path string) (bool, error) {
	err := c.call(ctx, http.MethodGet, path, nil, nil)
	if fleet.KindOf(err) == fleet.NotFound {
		return false, nil
	}
	return err == nil, err
}

// operation is the durable record of a request.
type operation struct {
	ID     fleet.OperationID    `json:"id"`
	State  fleet.OperationState `json:"state"`
	Reason string               `json:"reason"`
}

// settle waits until the operation has ended. The region gives every operation a deadline;
// the context bounds how long this waits for it.
func (c *apiClient) settle(ctx context.Context, id fleet.OperationID) (operation, error) {
	path := "/api/v1/operations/" + string(id) + "?wait=30s"
	for {
		var op operation
		err := c.call(ctx, http.MethodGet, path, nil, &op)
		if err == nil && op.State.Ended() {
			return op, nil
		}
		if err != nil && (ctx.Err() != nil || !fleet.KindOf(err).Retryable()) {
			return op, err
		}
		if pause.For(ctx, pollInterval) != nil { // the server may have been restarted
			return op, errors.Join(ctx.Err(), err)
		}
	}
}
