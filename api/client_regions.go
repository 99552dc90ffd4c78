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

// DropCopies drops all copies of what a disabled peer owns.
func (c *Client) DropCopies(ctx context.Context, name string, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, nil, name, "drop-copies")
}

// ResumeWrites accepts writes under a policy before all peers were compared with after a restore of this region.
func (c *Client) ResumeWrites(ctx context.Context, name string, m Mutation) (Object, error) {
	return c.turnRegion(ctx, m, nil, name, "resume-writes")
}

func (c *Client) turnRegion(ctx context.Context, m Mutation, in any, path ...string) (Object, error) {
	var o Object
	_, err := c.do(ctx, writeCall(http.MethodPost, m, in, append([]string{"regions"}, path...)...), &o)
	return o, err
}

// SyncRegion has what this region has of a peer's objects compared with the peer, and repaired.
func (c *Client) SyncRegion(ctx context.Context, name string, in RegionSync, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindRegion, Name: name}, "sync", in, m)
}

// Quarantine lists what a peer sent and this region did not take.
func (c *Client) Quarantine(ctx context.Context, peer string, p Page) (List[SetAside], error) {
	var l List[SetAside]
	_, err := c.do(ctx, readCall(p.query(), "regions", peer, "quarantine"), &l)
	return l, err
}

// LostWrites lists states of objects that their owners do not know, oldest first.
func (c *Client) LostWrites(ctx context.Context, p Page) (List[LostWrite], error) {
	var l List[LostWrite]
	_, err := c.do(ctx, readCall(p.query(), "lost-writes"), &l)
	return l, err
}
