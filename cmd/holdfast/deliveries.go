package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var deliveryHeader = []string{"ID", "ATTEMPT", "ACTION", "REVISION", "GENERATION", "HASH", "STATE", "REASON", "NODES", "BY", "WHY", "CREATED", "ENDED"}

func (c *cli) deliveryItem(d api.Delivery) item {
	state := d.State
	if d.SettledAs != "" {
		state += " (settled as " + d.SettledAs + ")"
	}
	return item{name: "delivery/" + d.ID, value: d, cells: []string{
		d.ID, number(d.Attempt), string(d.Action), change(d.FromRevision, d.Revision), change(d.FromGeneration, d.Generation),
		short(d.RevisionHash), state, d.Reason, nodeStates(d.Nodes), d.RequestedBy, d.Why, c.ago(d.CreatedAt), c.agoOf(d.EndedAt),
	}}
}

// change is a number before and after.
func change(from, to int64) string { return fmt.Sprintf("%d -> %d", from, to) }

func nodeStates(nodes []api.NodeProgress) string {
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = fmt.Sprintf("%s:%s", n.Node, n.State)
	}
	return strings.Join(texts, ",")
}

func (c *cli) newDeliveriesCommand() *cobra.Command {
	var site string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "deliveries SITE/NAME", Short: "Show the deliveries of an instance: who, what, when and why, newest first",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeInstances,
	}
	c.addSiteFlag(cmd, &site)
	w.add(cmd, 20)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := instanceKey(args[0], site)
		if err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			return c.deliveriesView(ctx, client, key, w.limit)
		})
	}
	return cmd
}

func (c *cli) deliveriesView(ctx context.Context, client *api.Client, key fleet.ObjectKey, limit int) (view, error) {
	deliveries, next, err := collect(limit, func(p api.Page) (api.List[api.Delivery], error) {
		return client.Deliveries(ctx, key, p)
	})
	v := view{header: deliveryHeader, next: next}
	for _, d := range deliveries {
		v.items = append(v.items, c.deliveryItem(d))
	}
	return v, err
}
