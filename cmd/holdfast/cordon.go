package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

const cordonLong = `A cordoned node keeps running what it has, but gets no new work: it takes over no site and gets no
executions of modules. A drain cordons too. The node stays cordoned across all restarts, until
"holdfast uncordon".`

func (c *cli) newCordonCommand() *cobra.Command {
	var f mutationFlags
	var in api.CordonRequest
	cmd := &cobra.Command{
		Use: "cordon NODE...", Short: "Keep new work away from nodes", Args: cobra.MinimumNArgs(1), Long: cordonLong,
		Example: "  holdfast cordon plant-1-a --reason 'new disk'", ValidArgsFunction: c.completeObjects("node"),
	}
	f.addAsk(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, shown with the node")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.turnNodes(cmd.Context(), args, func(ctx context.Context, client *api.Client, name string) (api.Node, error) {
			return client.CordonNode(ctx, name, in, f.mutation())
		})
	}
	return cmd
}

func (c *cli) newUncordonCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "uncordon NODE...", Short: "Allow new work on nodes again", Args: cobra.MinimumNArgs(1), Long: cordonLong,
		Example: "  holdfast uncordon plant-1-a", ValidArgsFunction: c.completeObjects("node"),
	}
	f.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.turnNodes(cmd.Context(), args, func(ctx context.Context, client *api.Client, name string) (api.Node, error) {
			return client.UncordonNode(ctx, name, f.mutation())
		})
	}
	return cmd
}

// turnNodes changes each node, and shows the changed ones.
func (c *cli) turnNodes(ctx context.Context, names []string, ask func(context.Context, *api.Client, string) (api.Node, error)) error {
	for _, name := range names {
		if _, err := nodeKey(name); err != nil {
			return err
		}
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	v := view{header: nodeHeader, single: len(names) == 1}
	var failures []error
	for _, name := range names {
		n, err := ask(ctx, client, name)
		if err != nil {
			failures = append(failures, err)
			if hopeless(ctx, err) {
				break
			}
			continue
		}
		v.items = append(v.items, c.nodeItem(n))
	}
	if len(v.items) > 0 {
		if err := c.print(v); err != nil {
			return err
		}
	}
	return c.reportAll(failures)
}
