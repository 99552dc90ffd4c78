package api

import (
	"context"
	"net/http"
)

// CreateToken makes an API token; only this answer shows it.
func (c *Client) CreateToken(ctx context.Context, in TokenRequest, m Mutation) (Token, error) {
	return c.createToken(ctx, writeCall(http.MethodPost, m, in, "tokens"))
}

// Tokens lists API tokens, without their secret.
func (c *Client) Tokens(ctx context.Context, p Page) (List[Token], error) {
	return c.listTokens(ctx, readCall(p.query(), "tokens"))
}

// RevokeToken ends an API token.
func (c *Client) RevokeToken(ctx context.Context, id string, m Mutation) error {
	_, err := c.do(ctx, writeCall(http.MethodDelete, m, nil, "tokens", id), nil)
	return err
}

// CreateJoinToken makes a token that enrols one node once; only this answer shows it.
func (c *Client) CreateJoinToken(ctx context.Context, in JoinTokenRequest, m Mutation) (Token, error) {
	return c.createToken(ctx, writeCall(http.MethodPost, m, in, "join-tokens"))
}

// JoinTokens lists join tokens, without their secret.
func (c *Client) JoinTokens(ctx context.Context, p Page) (List[Token], error) {
	return c.listTokens(ctx, readCall(p.query(), "join-tokens"))
}

// RevokeJoinToken ends a join token that was not used.
func (c *Client) RevokeJoinToken(ctx context.Context, id string, m Mutation) error {
	_, err := c.do(ctx, writeCall(http.MethodDelete, m, nil, "join-tokens", id), nil)
	return err
}

func (c *Client) createToken(ctx context.Context, r clientCall) (Token, error) {
	var t Token
	_, err := c.do(ctx, r, &t)
	return t, err
}

func (c *Client) listTokens(ctx context.Context, r clientCall) (List[Token], error) {
	var l List[Token]
	_, err := c.do(ctx, r, &l)
	return l, err
}
