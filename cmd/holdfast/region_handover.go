package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const handOverLong = `Have another region control an organization, a project or a service: its policy names that region, which
then owns the holder and what is shared under it. Run this in the region that controls it now. That region
writes nothing more under it; the new one claims it when it has all that was written before. Cancel the
operation to keep it.

With --force, run it in the new region: it claims the holder without its owner, for example because that region is lost.
What the owner wrote and the new region never had is listed there when it returns.`

func (c *cli) newHandOverCommand() *cobra.Command {
	var f mutationFlags
	var in api.HandOverRequest
	cmd := &cobra.Command{
		Use: "handover HOLDER --to REGION", Short: "Have another region control an organization, a project or a service", Args: cobra.ExactArgs(1),
		Long: handOverLong, Example: "  holdfast region handover project/line-a --to us\n  holdfast --context us region handover project/line-a --to us --force",
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	c.addRegion(cmd, &f)
	cmd.Flags().StringVar(&in.To, "to", "", "the region that is to control it")
	cmd.Flags().BoolVar(&in.Force, "force", false, "claim it without its owner; send it to the new region")
	_ = cmd.RegisterFlagCompletionFunc("to", c.completeObjects("region")) // fails for a flag that is not there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		holder, err := fleet.ParseHolder("holder", args[0])
		if err == nil {
			err = fleet.ValidateName("to", in.To)
		}
		if err != nil {
			return &usageError{err}
		}
		return c.change(cmd.Context(), "hand-over accepted", &f, []target{{
			key: holder, do: func(ctx context.Context, client *api.Client, m api.Mutation) (api.Accepted, error) {
				return client.HandOver(ctx, holder, in, m)
			},
		}})
	}
	return cmd
}
