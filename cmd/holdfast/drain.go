package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const drainLong = `Make a provider or node stop taking new work, finish its work, and disconnect. From the request on it
gets no new work; at the deadline its connection is cut. "holdfast get providers" shows what is in
flight and the deadline.`

func (c *cli) newDrainCommand() *cobra.Command {
	group := newGroup("drain", "Make a node or a provider finish its work and disconnect", c.newDrainNodeCommand(), c.newDrainProviderCommand())
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
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, shown to the provider")
	cmd.Flags().DurationVar(&deadline, "deadline", deadline, "time until its connection is cut")
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

const drainNodeLong = `Empty a node, and wait for it. The node is cordoned. If it is its site's active, its peer takes over
first. Then it finishes its work and closes its connection, which is cut at the deadline. A second
drain joins the running one, and the earlier deadline counts.

If there is no other place for what runs, nothing is stopped and the drain fails. With --force it is
stopped: at once if the site has no other node, else at the deadline. Interrupting the wait does not
end the drain; "holdfast operations cancel" does, and the node stays cordoned until
"holdfast uncordon".`

func (c *cli) newDrainNodeCommand() *cobra.Command {
	return c.newVerb(verb{
		word: "drain", use: "node NAME...", short: "Empty nodes", long: drainNodeLong, keys: each(nodeKey),
		example: "  holdfast drain node plant-1-a --reason 'new disk' --deadline 5m", complete: c.completeObjects("node"),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			var in api.NodeDrainRequest
			deadline := fleet.DefaultDrain
			f.addAsk(cmd)
			cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, shown to the node and with it")
			cmd.Flags().DurationVar(&deadline, "deadline", deadline, "time until its connection is cut")
			cmd.Flags().BoolVar(&in.Force, "force", false, "stop what runs there if there is no other place for it")
			return func(int) (any, error) {
				in.DeadlineSeconds = int64(deadline.Seconds())
				return in, aSecondAtLeast("deadline", deadline)
			}
		},
	})
}
