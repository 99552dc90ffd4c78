package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newRegionCommand() *cobra.Command {
	return newGroup("region", "Work with the regions that share objects", c.newApplyPolicyCommand())
}

const applyPolicyLong = `Compute anew which regions own and hold what an organization, a project or a service governs, in this
region. A changed policy starts this by itself; the command repeats it. Nothing is delivered, and no
generation or ETag changes.`

func (c *cli) newApplyPolicyCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "apply-policy HOLDER", Short: "Apply a multi-region policy to all that it governs", Args: cobra.ExactArgs(1), Long: applyPolicyLong,
		Example: "  holdfast region apply-policy project/p1",
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		holder, err := fleet.ParseHolder("holder", args[0])
		if err != nil {
			return &usageError{err}
		}
		return c.change(cmd.Context(), "apply-policy accepted", &f, []target{{
			key: holder, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
				return client.ApplyPolicy(ctx, holder, f.mutation())
			},
		}})
	}
	return cmd
}
