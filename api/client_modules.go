package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Modules lists what providers offer, of one namespace or of all.
func (c *Client) Modules(ctx context.Context, namespace string, p Page) (List[Module], error) {
	q := p.query()
	q.Del("project")
	queryText(q, "namespace", namespace)
	var l List[Module]
	_, err := c.do(ctx, readCall(q, "modules"), &l)
	return l, err
}

// Module reads what is offered under one name.
func (c *Client) Module(ctx context.Context, name string) (Module, error) {
	var m Module
	_, err := c.do(ctx, readCall(nil, "modules", name), &m)
	return m, err
}

// Execute runs a module and waits for its answer, timeout 0 for the region's own choice. The
// key makes the client's own repeats one execution.
func (c *Client) Execute(ctx context.Context, module string, input []byte, timeout time.Duration, m Mutation) ([]byte, error) {
	return c.output(ctx, executeCall(module, input, timeout, m))
}

// ExecuteDurable starts an execution that outlives servers and providers.
func (c *Client) ExecuteDurable(ctx context.Context, module string, input []byte, timeout time.Duration, m Mutation) (Accepted, error) {
	call := executeCall(module, input, timeout, m)
	call.query.Set("durable", "true")
	return c.accepted(ctx, call)
}

func executeCall(module string, input []byte, timeout time.Duration, m Mutation) clientCall {
	call := writeCall(http.MethodPost, m, encoded(input), "modules", module, "execute")
	queryInt(call.query, "timeout", int64((timeout+time.Second-1)/time.Second))
	return call
}

// ExecutionOutput reads what a durable execution answered.
func (c *Client) ExecutionOutput(ctx context.Context, operation string) ([]byte, error) {
	return c.output(ctx, readCall(url.Values{}, "operations", operation, "output"))
}

func (c *Client) output(ctx context.Context, call clientCall) ([]byte, error) {
	var out []byte
	err := c.try(ctx, call, func(resp *http.Response) error {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxClientAnswer))
		out = body
		if err != nil {
			return c.unreachable(err)
		}
		return nil
	})
	return out, err
}
