package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const drainLong = `Have something stop taking new work, finish what it has, and go. From the request on nothing
new is sent to it; at the deadline it is cut off. "holdfast get providers" shows what is in
flight and until when.`

func (c *cli) newDrainCommand() *cobra.Command {
	group := newGroup("drain", "Have a node or a provider finish what it has, and go", c.newDrainNodeCommand(), c.newDrainProviderCommand())
	group.Long = drainLong
	return group
}

func (c *cli) newDrainProviderCommand() *cobra.Command {
	var f mutationFlags
	var in api.DrainRequest
	deadline := 30 * time.Second
	cmd := &cobra.Command{
		Use: "provider CONNECTION", Short: "Drain one connection", Args: cobra.ExactArgs(1), Long: drainLong,
		Example:           "  holdfast drain provider 019a3c5e7f... --reason 'new version' --deadline 2m",
		ValidArgsFunction: c.completeProviders,
	}
	f.addAsk(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, shown to the provider")
	cmd.Flags().DurationVar(&deadline, "deadline", deadline, "when it is cut off, from now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := aSecondAtLeast("deadline", deadline); err != nil {
			return err
		}
		in.DeadlineSeconds = int64(deadline.Seconds())
		client, err := c.connect()
		if err != nil {
			return err
		}
		p, err := client.DrainProvider(cmd.Context(), args[0], in, f.mutation())
		if err != nil {
			return err
		}
		return c.print(single(providerHeader, c.providerItem(p)))
	}
	return cmd
}

const drainNodeLong = `Empty a node, and wait for it. The node is cordoned; where it is a site's active, its peer takes
over first; then it finishes what it has and closes its connection, and is cut off at the
deadline. A second drain joins the one that runs, and the earlier deadline counts.

Where there is no other place for what runs, nothing is stopped and the drain fails, unless
--force is given: then it is stopped at once if the site has no other node, and else at the
deadline. Ending the wait ends nothing; "holdfast operations cancel" ends the drain, and the
node stays cordoned until "holdfast uncordon".`

func (c *cli) newDrainNodeCommand() *cobra.Command {
	var f mutationFlags
	var in api.NodeDrainRequest
	deadline := fleet.DefaultDrain
	cmd := &cobra.Command{
		Use: "node NAME...", Short: "Empty nodes", Args: cobra.MinimumNArgs(1), Long: drainNodeLong,
		Example: "  holdfast drain node plant-1-a --reason 'new disk' --deadline 5m", ValidArgsFunction: c.completeObjects("node"),
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, shown to the node and with it")
	cmd.Flags().DurationVar(&deadline, "deadline", deadline, "when it is cut off, from now")
	cmd.Flags().BoolVar(&in.Force, "force", false, "stop what runs there when there is no other place for it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := aSecondAtLeast("deadline", deadline); err != nil {
			return err
		}
		in.DeadlineSeconds = int64(deadline.Seconds())
		var targets []target
		for _, name := range args {
			key, err := nodeKey(name)
			if err != nil {
				return err
			}
			targets = append(targets, target{key: key, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
				return client.DrainNode(ctx, name, in, f.mutation())
			}})
		}
		return c.change(cmd.Context(), "drain accepted", &f, targets)
	}
	return cmd
}
