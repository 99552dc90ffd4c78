package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newEnableCommand() *cobra.Command {
	return c.newInstanceVerb(instanceVerb{
		use: "enable", short: "Start instances",
		do: func(ctx context.Context, client *api.Client, key fleet.ObjectKey, f *mutationFlags) (api.Accepted, error) {
			return client.Enable(ctx, key, api.ActionRequest{Reason: f.reason}, f.mutation())
		},
	})
}
