package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const rollbackLong = `Release the content of an earlier revision under a new number.

Without --revision it restores the deployed revision if the desired one is not deployed, else the
deployed revision before it.`

func (c *cli) newRollbackCommand() *cobra.Command {
	var revision int64
	cmd := c.newInstanceVerb(instanceVerb{
		use: "rollback", short: "Restore an earlier revision of instances",
		do: func(ctx context.Context, client *api.Client, key fleet.ObjectKey, f *mutationFlags) (api.Accepted, error) {
			return client.Rollback(ctx, key, api.RollbackRequest{Revision: revision, Reason: f.reason}, f.mutation())
		},
	})
	cmd.Long = rollbackLong
	cmd.Flags().Int64Var(&revision, "revision", 0, "revision to restore")
	roll := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("revision") && revision < 1:
			return &usageError{errors.New("invalid --revision: want 1 or more")}
		case revision > 0 && len(args) > 1:
			return &usageError{errors.New("--revision needs exactly one instance: each has its own numbers")}
		}
		return roll(cmd, args)
	}
	return cmd
}
