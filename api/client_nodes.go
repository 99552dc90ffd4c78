package api

import "context"

// Node reads one node.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	var n Node
	_, err := c.do(ctx, readCall(nil, "nodes", name), &n)
	return n, err
}

// Nodes lists the nodes of all sites.
func (c *Client) Nodes(ctx context.Context, p Page) (List[Node], error) {
	var l List[Node]
	_, err := c.do(ctx, readCall(p.query(), "nodes"), &l)
	return l, err
}
