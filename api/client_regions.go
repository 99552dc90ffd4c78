package api

import (
	"context"
	"net/http"
)

// InviteRegion makes a token that lets one region join once; only this answer shows it.
func (c *Client) InviteRegion(ctx context.Context, in RegionInvitation, m Mutation) (Token, error) {
	return c.createToken(ctx, writeCall(http.MethodPost, m, in, "region-invitations"))
}

// RegionInvitations lists invitations, without their secret.
func (c *Client) RegionInvitations(ctx context.Context, p Page) (List[Token], error) {
	return c.listTokens(ctx, readCall(p.query(), "region-invitations"))
}

// RevokeRegionInvitation voids an invitation; a region that used it stays a member.
func (c *Client) RevokeRegionInvitation(ctx context.Context, id string, m Mutation) error {
	_, err := c.do(ctx, writeCall(http.MethodDelete, m, nil, "region-invitations", id), nil)
	return err
}

// JoinRegion makes this region a member through another one, and returns that one.
func (c *Client) JoinRegion(ctx context.Context, in RegionJoin, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, in, "join")
}

// DisableRegion ends all traffic with a peer, and deletes nothing.
func (c *Client) DisableRegion(ctx context.Context, name string, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, nil, name, "disable")
}

// EnableRegion allows traffic with a peer again.
func (c *Client) EnableRegion(ctx context.Context, name string, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, nil, name, "enable")
}

// RemoveRegion forgets a peer, and returns it as it was. Its name joins again only by a new invitation.
func (c *Client) RemoveRegion(ctx context.Context, name string, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, nil, name, "remove")
}

func (c *Client) turnRegion(ctx context.Context, m Mutation, in any, path ...string) (Object, error) {
	var o Object
	_, err := c.do(ctx, writeCall(http.MethodPost, m, in, append([]string{"regions"}, path...)...), &o)
	return o, err
}
