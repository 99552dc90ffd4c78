package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/demo"
)

// newDemoCommand lists the demo server in the help. The server itself starts earlier: internal/demo/entry.
func (c *cli) newDemoCommand() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use: demo.Command, Short: "Run a small HTTP server to try deployments with", Long: strings.TrimSpace(demo.Usage), Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := demo.Process{Env: c.env, Now: c.now, Stdout: c.stdout, Stderr: c.stderr}
			if code := p.Run(cmd.Context(), o); code != exitOK {
				return &reported{code}
			}
			return nil
		},
	}
	cmd.Flags().AddGoFlagSet(o.Flags(c.env))
	return cmd
}
