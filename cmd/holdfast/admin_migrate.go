package main

import (
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// newMigrateCommand brings a database to this version's schema, or prints the SQL that
// would, for operators who apply it by hand (N72). Servers migrate by themselves.
func (c *cli) newMigrateCommand() *cobra.Command {
	var url, name string
	var show bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring a database to this version's schema", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if show {
				return c.printMigrations()
			}
			s, err := postgres.Open(cmd.Context(), url, name)
			if err != nil {
				return err
			}
			s.Close()
			_, err = fmt.Fprintln(c.stdout, "the schema is that of this version")
			return err
		},
	}
	cmd.Flags().StringVar(&url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&name, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	cmd.Flags().BoolVar(&show, "print", false, "print the SQL instead, to be applied by hand")
	return cmd
}

func (c *cli) printMigrations() error {
	files := postgres.Migrations()
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c.stdout, "-- %s\n%s\n", name, text); err != nil {
			return err
		}
	}
	return nil
}
