package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

var joinTokens = tokenNoun{
	name:   "join-token",
	header: []string{"ID", "SITE", "NODE", "BY", "CREATED", "EXPIRES", "STATE"},
	cells: func(c *cli, t api.Token) []string {
		return []string{t.ID, t.Site, t.Node, t.CreatedBy, c.ago(t.CreatedAt), stampOf(t.ExpiresAt), c.tokenState(t)}
	},
	list: (*api.Client).JoinTokens, revoke: (*api.Client).RevokeJoinToken,
}

func (c *cli) newJoinTokenCommand() *cobra.Command {
	return newGroup("join-token", "Tokens that enrol a node once",
		c.newJoinTokenCreateCommand(), c.newTokenListCommand(joinTokens), c.newTokenRevokeCommand(joinTokens))
}

func (c *cli) newJoinTokenCreateCommand() *cobra.Command {
	var in api.JoinTokenRequest
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create --site SITE --node NODE", Short: "Create a token that enrols one node; it is shown once", Args: cobra.NoArgs,
		Example: "  holdfast join-token create --site plant-1 --node plant-1-a",
	}
	cmd.Flags().StringVar(&in.Site, "site", "", "site of the node")
	cmd.Flags().StringVar(&in.Node, "node", "", "name of the node, as the site declares it")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "lifetime (default of the region: 1h)")
	complete(cmd, "site", c.completeObjects("site"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if in.Site == "" || in.Node == "" {
			return &usageError{errors.New("--site and --node are required: they name the node to enrol")}
		}
		if err := aSecondAtLeast("ttl", ttl); ttl != 0 && err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		in.Seconds = int64(ttl.Seconds())
		t, err := client.CreateJoinToken(cmd.Context(), in, api.Mutation{})
		if err != nil {
			return err
		}
		return joinTokens.created(c, t)
	}
	return cmd
}
