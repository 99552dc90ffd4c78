package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var regionHeader = []string{"NAME", "LOCATION", "ADDRESS", "STATE", "SEEN", "LAG", "COPIES", "ADMITTED BY", "PROBLEM"}

func regionCells(c *cli, o api.Object) []string {
	var spec fleet.RegionSpec
	var status api.RegionStatus
	_, _ = json.Unmarshal(o.Spec, &spec), json.Unmarshal(o.Status, &status) // a newer shape shows less, json shows all
	state := "unreachable"
	switch {
	case len(status.Recovering) > 0:
		state = "this region, to compare with " + strings.Join(status.Recovering, ", ")
	case status.Self:
		state = "this region"
	case status.Disabled:
		state = "disabled"
	case status.Reachable:
		state = "reachable"
	}
	lag, copies := "", ""
	if f := status.Followed; f != nil {
		copies = strconv.FormatInt(f.Copies, 10)
		if f.Waiting > 0 {
			copies += ", " + strconv.FormatInt(f.Waiting, 10) + " waiting"
		}
		if f.LagSeconds != nil {
			lag = strconv.FormatFloat(*f.LagSeconds, 'f', 1, 64) + "s"
		}
	}
	return []string{o.Name, spec.Location, status.Address, state, c.agoOf(status.LastSeen), lag, copies, status.AdmittedBy, status.Problem}
}

func regionItem(c *cli, o api.Object) item {
	return item{name: "region/" + o.Name, value: o, cells: regionCells(c, o)}
}

func (c *cli) newRegionCommand() *cobra.Command {
	return newGroup("region", "Regions that know each other",
		c.newApplyPolicyCommand(), c.newHandOverCommand(), c.newRegionInviteCommand(), c.newRegionJoinCommand(),
		newGroup("invitation", "Invitations that were made", c.newTokenListCommand(regionInvitations), c.newTokenRevokeCommand(regionInvitations)),
		c.newRegionTurnCommand("disable", "End all traffic with a peer; nothing is deleted", (*api.Client).DisableRegion),
		c.newRegionTurnCommand("enable", "Allow traffic with a peer again", (*api.Client).EnableRegion),
		c.newRegionTurnCommand("remove", "Forget a peer; its name joins again only by a new invitation", (*api.Client).RemoveRegion),
		c.newRegionTurnCommand("drop-copies", "Drop all copies of what a disabled peer owns, so that it can be removed", (*api.Client).DropCopies),
		c.newRegionTurnCommand("resume-writes", "Accept writes under a policy before this region, which was restored, has compared with all peers", (*api.Client).ResumeWrites))
}

var regionInvitations = tokenNoun{
	name:   "region-invitation",
	header: []string{"ID", "REGION", "BY", "CREATED", "EXPIRES", "STATE"},
	cells: func(c *cli, t api.Token) []string {
		return []string{t.ID, t.Region, t.CreatedBy, c.ago(t.CreatedAt), stampOf(t.ExpiresAt), c.tokenState(t)}
	},
	list: (*api.Client).RegionInvitations, revoke: (*api.Client).RevokeRegionInvitation,
}

func (c *cli) newRegionInviteCommand() *cobra.Command {
	var ttl time.Duration
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "invite NAME", Short: "Create a token that lets one region join; it is shown once", Args: cobra.ExactArgs(1),
		Long: `Create a token that lets the region NAME join once. Run this on a region that is a member, then
"holdfast region join" on the new one. The token carries this region's key, so that the new region
recognises it without a certificate authority.`,
		Example: "  holdfast region invite us",
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "lifetime (default of the region: 1h)")
	f.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := aSecondAtLeast("ttl", ttl); ttl != 0 && err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		t, err := client.InviteRegion(cmd.Context(), api.RegionInvitation{Name: args[0], Seconds: int64(ttl.Seconds())}, f.mutation())
		if err != nil {
			return err
		}
		return regionInvitations.created(c, t)
	}
	return cmd
}

func (c *cli) newRegionTurnCommand(
	verb, short string, turn func(*api.Client, context.Context, string, api.Mutation) (api.Object, error),
) *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1), Example: "  holdfast region " + verb + " us",
		ValidArgsFunction: c.completeObjects("region"),
	}
	f.addAsk(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.connect()
		if err != nil {
			return err
		}
		o, err := turn(client, cmd.Context(), args[0], f.mutation())
		if err != nil {
			return err
		}
		return c.print(single(regionHeader, regionItem(c, o)))
	}
	return cmd
}

const applyPolicyLong = `Compute anew which regions own and hold what an organization, a project or a service governs, in this
region. A changed policy starts this by itself; the command repeats it. Nothing is delivered, and no
generation or ETag changes.`

func (c *cli) newApplyPolicyCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "apply-policy HOLDER", Short: "Apply a multi-region policy to all that it governs", Args: cobra.ExactArgs(1), Long: applyPolicyLong,
		Example: "  holdfast region apply-policy project/p1",
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	c.addRegion(cmd, &f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		holder, err := fleet.ParseHolder("holder", args[0])
		if err != nil {
			return &usageError{err}
		}
		return c.change(cmd.Context(), "apply-policy accepted", &f, []target{{
			key: holder, do: func(ctx context.Context, client *api.Client, m api.Mutation) (api.Accepted, error) {
				return client.ApplyPolicy(ctx, holder, m)
			},
		}})
	}
	return cmd
}
