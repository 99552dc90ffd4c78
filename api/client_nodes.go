package api

import (
	"context"
	"net/http"
)

// Node reads one node.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	var n Node
	_, err := c.do(ctx, readCall(nil, "nodes", name), &n)
	return n, err
}

// Nodes lists the nodes of all sites, or of one.
func (c *Client) Nodes(ctx context.Context, p Page) (List[Node], error) {
	var l List[Node]
	_, err := c.do(ctx, readCall(p.query(), "nodes"), &l)
	return l, err
}

// RevokeNode takes a node's key back.
func (c *Client) RevokeNode(ctx context.Context, name string, m Mutation) (Node, error) {
	var n Node
	_, err := c.do(ctx, writeCall(http.MethodPost, m, nil, "nodes", name, "revoke"), &n)
	return n, err
}

// RotateNodeKey has a node change its key; reading the node says when that is done.
func (c *Client) RotateNodeKey(ctx context.Context, name string, m Mutation) (Node, error) {
	var n Node
	_, err := c.do(ctx, writeCall(http.MethodPost, m, nil, "nodes", name, "rotate-key"), &n)
	return n, err
}

// ReconcileNode has a node compared with its site's expected set.
func (c *Client) ReconcileNode(ctx context.Context, node string, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: "node", Name: node}, "reconcile", nil, m)
}

// ReconcileSite has each node of a site's pair compared.
func (c *Client) ReconcileSite(ctx context.Context, site string, m Mutation) (AcceptedAll, error) {
	var a AcceptedAll
	_, err := c.do(ctx, writeCall(http.MethodPost, m, nil, "sites", site, "reconcile"), &a)
	return a, err
}

// FailoverSite makes another node the active one of a site.
func (c *Client) FailoverSite(ctx context.Context, site string, in FailoverRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: KindSite, Name: site}, "failover", in, m)
}

// Reconciles lists the last comparisons of a node, newest first.
func (c *Client) Reconciles(ctx context.Context, node string, limit int) (List[Reconcile], error) {
	var l List[Reconcile]
	_, err := c.do(ctx, readCall(Page{Limit: limit}.query(), "nodes", node, "reconciles"), &l)
	return l, err
}

// Orphans lists what waits on a node for an operator, by name.
func (c *Client) Orphans(ctx context.Context, node string, p Page) (List[Orphan], error) {
	var l List[Orphan]
	_, err := c.do(ctx, readCall(p.query(), "nodes", node, "orphans"), &l)
	return l, err
}

// ApproveOrphans lets a node drop orphans, and has it compared.
func (c *Client) ApproveOrphans(ctx context.Context, node string, in OrphanApproval, m Mutation) (Accepted, error) {
	return c.accepted(ctx, writeCall(http.MethodPost, m, in, "nodes", node, "orphans", "approve"))
}

// DrainNode empties a node.
func (c *Client) DrainNode(ctx context.Context, node string, in NodeDrainRequest, m Mutation) (Accepted, error) {
	return c.Ask(ctx, ObjectKey{Kind: "node", Name: node}, "drain", in, m)
}

// CordonNode keeps new work away from a node.
func (c *Client) CordonNode(ctx context.Context, node string, in CordonRequest, m Mutation) (Node, error) {
	var n Node
	_, err := c.do(ctx, writeCall(http.MethodPost, m, in, "nodes", node, "cordon"), &n)
	return n, err
}

// UncordonNode lets new work come to a node again.
func (c *Client) UncordonNode(ctx context.Context, node string, m Mutation) (Node, error) {
	var n Node
	_, err := c.do(ctx, writeCall(http.MethodPost, m, nil, "nodes", node, "uncordon"), &n)
	return n, err
}
