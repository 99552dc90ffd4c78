package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/store"
)

// newRotateSigningKeyCommand gives a region a new key to sign its nodes' commands with.
func (c *cli) newRotateSigningKeyCommand() *cobra.Command {
	var url, name string
	var after time.Duration
	var stolen bool
	cmd := &cobra.Command{
		Use: "rotate-signing-key", Short: "Sign commands to nodes with a new key", Args: cobra.NoArgs,
		Long: `Give a region a new key to sign commands to its nodes with. Nodes learn it with their next
report. Servers sign with it after --after; commands signed with the old key stay valid for a while.
A disconnected node learns the new key with its first command.

With --stolen the old keys are void at once. Use it if the database or a backup of it may have been
read by an attacker. Commands that are under way are sent again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rotate := keyring.Rotate{After: after, Overlap: 2 * keyring.CommandLife}
			if stolen {
				rotate = keyring.Rotate{}
			}
			s, err := store.Open(cmd.Context(), url, name)
			if err != nil {
				return err
			}
			defer s.Close()
			at, err := s.RotateSigningKey(cmd.Context(), rotate)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "region %s signs with a new key from %s on\n", name, at.UTC().Format(time.RFC3339))
			return err
		},
	}
	cmd.Flags().StringVar(&url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&name, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	cmd.Flags().DurationVar(&after, "after", time.Minute, "when servers start signing with it; allow for a few reports of a node")
	cmd.Flags().BoolVar(&stolen, "stolen", false, "void the old keys at once")
	return cmd
}
