package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
)

// newMigrateCommand brings a database to this version's schema, or prints the SQL for operators who apply it by
// hand (N72). Servers migrate by themselves unless --migrate=never is set.
func (c *cli) newMigrateCommand() *cobra.Command {
	var url, name string
	var show bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring a database to this version's schema", Args: cobra.NoArgs,
		Long: `Bring a database to this version's schema.

With --print it changes nothing and prints the missing SQL, or that for an empty database if
--database-url is empty. The script is one transaction and records what it does:

  holdfast admin migrate --print --database-url "$URL" > migrate.sql
  psql -v ON_ERROR_STOP=1 -f migrate.sql "$URL"

The script refuses a database of another version, so a second run changes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if show {
				script, err := postgres.MigrationScript(cmd.Context(), url)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(c.stdout, script)
				return err
			}
			s, err := store.Open(cmd.Context(), url, name)
			if err != nil {
				return err
			}
			s.Close()
			_, err = fmt.Fprintln(c.stdout, "the schema matches this version")
			return err
		},
	}
	cmd.Flags().StringVar(&url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&name, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	cmd.Flags().BoolVar(&show, "print", false, "print the missing SQL, to apply it by hand; change nothing")
	return cmd
}
