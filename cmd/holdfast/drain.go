package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

const drainLong = `Have something stop taking new work, finish what it has, and go. From the request on nothing
new is sent to it; at the deadline it is cut off. "holdfast get providers" shows what is in
flight and until when.`

func (c *cli) newDrainCommand() *cobra.Command {
	group := newGroup("drain", "Have a provider finish what it has, and go", c.newDrainProviderCommand())
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
