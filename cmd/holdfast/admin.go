package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// newAdminCommand groups the commands that work on a region's database directly.
func (c *cli) newAdminCommand() *cobra.Command {
	return newGroup("admin", "Maintain a region's database", c.newRaiseEraCommand(), c.newMigrateCommand(),
		c.newAdminForceVoteCommand(), c.newResetVotesCommand(), c.newRotateSigningKeyCommand())
}

func (c *cli) newRaiseEraCommand() *cobra.Command {
	var url, name string
	cmd := &cobra.Command{
		Use: "raise-era", Short: "Continue with a database that was restored or moved", Args: cobra.NoArgs,
		Long: `Raise the era of a region after its database was restored from a backup or moved. Later
releases then count as newer than anything that nodes hold. Servers refuse to start on a restored
database until this is done.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := postgres.RaiseEra(cmd.Context(), url, name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "region %s is in era %d\n", r.Name, r.Era)
			return err
		},
	}
	cmd.Flags().StringVar(&url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&name, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	return cmd
}
