package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

// newRegionJoinCommand makes this region a member through another one.
func (c *cli) newRegionJoinCommand() *cobra.Command {
	var in api.RegionJoin
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "join ADDRESS --token TOKEN", Short: "Join the regions that the region at ADDRESS belongs to", Args: cobra.ExactArgs(1),
		Long: `Join the regions that the region at ADDRESS belongs to. ADDRESS is its --peers-url, TOKEN what
"holdfast region invite" printed there. After a lost answer the same command may be repeated. The
members tell each other about the new region within seconds.`,
		Example: "  holdfast region join https://eu.example.com:7462 --token TOKEN",
	}
	cmd.Flags().StringVar(&in.Token, "token", "", "invitation of the admitting region; - reads it from standard input")
	f.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if in.Token == "" {
			return &usageError{errors.New("--token is required: run holdfast region invite on the admitting region")}
		}
		if in.Token == "-" {
			token, err := readLine(c.stdin)
			if err != nil {
				return err
			}
			in.Token = token
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		in.Address = args[0]
		o, err := client.JoinRegion(cmd.Context(), in, f.mutation())
		if err != nil {
			return err
		}
		return c.print(single(regionHeader, regionItem(c, o)))
	}
	return cmd
}
