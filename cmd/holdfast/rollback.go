package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const rollbackLong = `Release the content of an earlier revision under a new number.

Without --revision it is the deployed revision when the desired one is not deployed, else
the deployed one before it.`

func (c *cli) newRollbackCommand() *cobra.Command {
	var revision int64
	cmd := c.newInstanceVerb(instanceVerb{
		use: "rollback", short: "Go back to an earlier revision of instances",
		do: func(ctx context.Context, client *api.Client, key fleet.ObjectKey, f *mutationFlags) (api.Accepted, error) {
			return client.Rollback(ctx, key, api.RollbackRequest{Revision: revision, Reason: f.reason}, f.mutation())
		},
	})
	cmd.Long = rollbackLong
	cmd.Flags().Int64Var(&revision, "revision", 0, "revision to go back to")
	roll := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("revision") && revision < 1:
			return &usageError{errors.New("--revision counts from 1")}
		case revision > 0 && len(args) > 1:
			return &usageError{errors.New("--revision is for a single instance: each has its own numbers")}
		}
		return roll(cmd, args)
	}
	return cmd
}
