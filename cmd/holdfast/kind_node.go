package main

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
)

var nodeHeader = []string{"NAME", "SITE", "ROLE", "EPOCH", "ENROLLED", "READY", "INSTANCES", "OWED", "SEEN"}

func (c *cli) nodeItem(n api.Node) item {
	enrolled := yesNo(n.Enrolled)
	if n.Revoked {
		enrolled = "revoked"
	}
	return item{name: "node/" + n.Name, value: n, cells: []string{
		n.Name, n.Site, string(n.Role), number(n.Epoch), enrolled, yesNo(n.Ready),
		number(n.Instances), number(n.Owed), c.agoOf(n.SeenAt),
	}}
}

func listNodes(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
	limit := in.limit
	if in.site != "" {
		limit = 0 // the region lists the nodes of all sites
	}
	nodes, next, err := collect(limit, func(p api.Page) (api.List[api.Node], error) { return client.Nodes(ctx, p) })
	var items []item
	for _, n := range nodes {
		if in.site == "" || n.Site == in.site {
			items = append(items, c.nodeItem(n))
		}
	}
	if in.limit > 0 && len(items) > in.limit {
		items, next = items[:in.limit], items[in.limit].name
	}
	return items, next, err
}

func oneNode(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
	n, err := client.Node(ctx, name)
	return c.nodeItem(n), err
}
