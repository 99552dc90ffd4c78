package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const failoverLong = `Make another node the active one of a site. The active node is asked to stop its instances and
release its lease. If it is unreachable, or with --force, the votes wait until its lease has expired.
The votes of the site's two nodes and of the region decide, so there are never two active nodes.`

func (c *cli) failoverVerb() verb {
	return verb{
		word: "failover", use: "failover SITE", short: "Make another node the active one of a site", args: cobra.ExactArgs(1), long: failoverLong,
		example: "  holdfast failover plant-1\n  holdfast failover plant-1 --to plant-1-b --force", complete: c.completeObjects("site"),
		keys: each(func(arg string) (fleet.ObjectKey, error) { return objectKey(fleet.KindSite, arg, "") }),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			var in api.FailoverRequest
			f.addAsk(cmd)
			cmd.Flags().StringVar(&in.To, "to", "", "the node to become active (default the other of the pair)")
			cmd.Flags().BoolVar(&in.Force, "force", false, "skip asking the active node: wait until its lease expires")
			return func(int) (any, error) { return in, nil }
		},
	}
}
