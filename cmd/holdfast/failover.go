package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const failoverLong = `Make another node the active one of a site. The active node is asked to stop its instances and
release its lease. If it is unreachable, or with --force, the votes wait until its lease has expired.
The votes of the site's two nodes and of the region decide, so there are never two active nodes.`

func (c *cli) newFailoverCommand() *cobra.Command {
	var f mutationFlags
	var in api.FailoverRequest
	cmd := &cobra.Command{
		Use: "failover SITE", Short: "Make another node the active one of a site", Args: cobra.ExactArgs(1), Long: failoverLong,
		Example: "  holdfast failover plant-1\n  holdfast failover plant-1 --to plant-1-b --force", ValidArgsFunction: c.completeObjects("site"),
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&in.To, "to", "", "the node to become active (default the other of the pair)")
	cmd.Flags().BoolVar(&in.Force, "force", false, "skip asking the active node: wait until its lease expires")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := objectKey(fleet.KindSite, args[0], "")
		if err != nil {
			return err
		}
		return c.change(cmd.Context(), "failover accepted", &f, []target{{
			key: key, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
				return client.FailoverSite(ctx, key.Name, in, f.mutation())
			},
		}})
	}
	return cmd
}
