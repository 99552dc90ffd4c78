package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
)

var nodeHeader = []string{"NAME", "SITE", "ROLE", "EPOCH", "READY", "INSTANCES", "OWED", "ORPHANS", "SEEN", "LINK", "KEY", "ISOLATION"}

func (c *cli) nodeItem(n api.Node) item {
	return item{name: "node/" + n.Name, value: n, cells: []string{
		n.Name, n.Site, string(n.Role), number(n.Epoch), readyText(n), number(n.Instances), number(n.Owed), number(n.Orphans),
		c.agoOf(n.SeenAt), c.linkText(n.Connection), c.keyText(n.Key), n.Isolation,
	}}
}

// linkText is the state of a node's link, since when, and what it works on.
func (c *cli) linkText(link api.NodeConnection) string {
	text := strings.TrimSpace(string(link.State) + " " + c.agoOf(link.Since))
	if link.InFlight > 0 {
		text += fmt.Sprintf(", %d in flight", link.InFlight)
	}
	return text
}

// keyText is the age of a key, or the state of its rotation.
func (c *cli) keyText(k *api.NodeKey) string {
	switch {
	case k == nil:
		return ""
	case k.Rotation != "":
		return "new key " + k.Rotation
	}
	return c.agoOf(&k.Since)
}

// readyText includes what keeps new work away.
func readyText(n api.Node) string {
	text := yesNo(n.Ready)
	switch {
	case n.Revoked:
		text = "revoked"
	case !n.Enrolled:
		text = "not enrolled"
	}
	switch {
	case n.Drain != nil && n.Drain.EndedAt == nil:
		text += ", draining"
	case n.Cordon != nil:
		text += ", cordoned"
	}
	return text
}

func listNodes(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
	nodes, next, err := collect(in.limit, func(p api.Page) (api.List[api.Node], error) {
		p.Site = in.site
		return client.Nodes(ctx, p)
	})
	var items []item
	for _, n := range nodes {
		items = append(items, c.nodeItem(n))
	}
	return items, next, err
}

func oneNode(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
	n, err := client.Node(ctx, name)
	return c.nodeItem(n), err
}

// describeNode writes a node, its last comparisons, and what still differs.
func (c *cli) describeNode(ctx context.Context, client *api.Client, name string) error {
	n, err := client.Node(ctx, name)
	if err != nil {
		return err
	}
	if err := writeYAML(c.stdout, n); err != nil {
		return err
	}
	last, err := client.Reconciles(ctx, name, describedReconciles)
	if err != nil {
		return err
	}
	comparisons := newTable([]string{"REASON", "STATE", "CREATED", "ENDED", "MESSAGE"})
	for _, r := range last.Items {
		comparisons.add([]string{r.Reason, r.State, stamp(r.CreatedAt), stampOf(r.EndedAt), r.Message})
	}
	if err := comparisons.under(c.stdout, "Last comparisons"); err != nil {
		return err
	}
	differs := newTable([]string{"INSTANCE", "WHY"})
	if r := lastReported(last.Items); r != nil {
		for _, d := range r.Differs {
			differs.add([]string{d.Instance, d.Why})
		}
	}
	return differs.under(c.stdout, "Differs from what its site expects")
}

const describedReconciles = 5

// lastReported is the newest comparison with a result from the node; nil for none.
func lastReported(all []api.Reconcile) *api.Reconcile {
	for i, r := range all {
		if r.Counts != nil || r.Unchanged || r.Refused != "" {
			return &all[i]
		}
	}
	return nil
}
