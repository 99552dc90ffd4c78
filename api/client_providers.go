package api

import (
	"context"
	"net/http"
)

// Providers lists the live connections of the link.
func (c *Client) Providers(ctx context.Context, p Page) (List[Provider], error) {
	var l List[Provider]
	_, err := c.do(ctx, readCall(p.query(), "providers"), &l)
	return l, err
}

// Provider reads one live connection.
func (c *Client) Provider(ctx context.Context, connectionID string) (Provider, error) {
	var p Provider
	_, err := c.do(ctx, readCall(nil, "providers", connectionID), &p)
	return p, err
}

// DrainProvider has a provider finish what it has and close.
func (c *Client) DrainProvider(ctx context.Context, connectionID string, in DrainRequest, m Mutation) (Provider, error) {
	var p Provider
	_, err := c.do(ctx, writeCall(http.MethodPost, m, in, "providers", connectionID, "drain"), &p)
	return p, err
}

// Refusals lists what identities asked for and may not have, newest first.
func (c *Client) Refusals(ctx context.Context, p Page) (List[Refusal], error) {
	var l List[Refusal]
	_, err := c.do(ctx, readCall(p.query(), "refusals"), &l)
	return l, err
}
