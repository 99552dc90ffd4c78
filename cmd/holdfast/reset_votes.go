package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
)

const resetVotesLong = `Reset the votes and epochs of a site after an attack in which a stolen node key wrote epochs that no
vote can follow. Revoke the key first: holdfast node revoke NODE.

The region's vote is reset at once. Each node resets its own votes and store when it learns of the
reset, also if it was down; the command waits for running nodes and prints what each had before.
Instances stop if their node holds the lease by a far epoch. The site has an active node again within
two heartbeat timeouts.

The new epoch is above every epoch below 1048576 that the region knows for the site; --epoch sets
another. Systems outside Holdfast that compare HOLDFAST_EPOCH and saw a forged one need their own
reset.`

// The states of a voter in the output of reset-votes.
const (
	voterReset    = "reset"
	voterWaiting  = "waiting"
	voterRevoked  = "revoked"
	voterUnjoined = "not enrolled"
)

// siteReset is what a reset has changed so far.
type siteReset struct {
	nodes.VoteReset
	Nodes []nodeReset `json:"nodes"`
}

type nodeReset struct {
	nodes.NodeReset
	State string `json:"state"`
}

// resetFlags are the flags of reset-votes.
type resetFlags struct {
	epoch       int64
	yes         bool
	wait        time.Duration
	url, region string
}

// newResetVotesCommand recovers from an attack on a site's votes.
func (c *cli) newResetVotesCommand() *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use: "reset-votes SITE", Short: "Reset a site's votes and epochs after an attack", Args: cobra.ExactArgs(1),
		Long: resetVotesLong, Example: "  holdfast node revoke plant-1-b\n  holdfast admin reset-votes plant-1",
		RunE: func(cmd *cobra.Command, args []string) error { return c.resetVotes(cmd.Context(), args[0], f) },
	}
	cmd.Flags().Int64Var(&f.epoch, "epoch", 0, "the epoch to reset to (default above all epochs that the region believes)")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait for the nodes; a disconnected node follows when it reconnects")
	cmd.Flags().StringVar(&f.url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&f.region, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	return cmd
}

func (c *cli) resetVotes(ctx context.Context, site string, f resetFlags) error {
	if err := fleet.ValidateName("site", site); err != nil {
		return err
	}
	if f.epoch > lease.Most {
		return &usageError{fmt.Errorf("invalid --epoch %d: want at most %d", f.epoch, int64(lease.Most))}
	}
	if !f.yes {
		if err := c.confirm(fmt.Sprintf("Reset the votes of site %s? Its instances may stop for two heartbeat timeouts.", site)); err != nil {
			return err
		}
	}
	s, err := store.Open(ctx, f.url, f.region)
	if err != nil {
		return err
	}
	defer s.Close()
	reset, err := s.ResetVotes(ctx, fleet.SiteName(site), f.epoch, "admin:reset-votes")
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "reset the region's vote on site %s from epoch %d to %d; waiting for the nodes\n", site, reset.Promised, reset.Epoch)
	if reset.Lost {
		fmt.Fprintf(c.stderr, "the vote was lost before, and grants nothing until it has heard from both nodes; to skip that, run holdfast admin force-vote %s\n", site)
	}
	nodes, err := c.nodesReset(ctx, s, reset, f.wait)
	if err != nil {
		return err
	}
	return c.print(siteReset{reset, nodes}.view())
}

// nodesReset waits until every node concerned has reported its reset, or the time is up.
func (c *cli) nodesReset(ctx context.Context, s *store.Store, of nodes.VoteReset, wait time.Duration) ([]nodeReset, error) {
	for deadline := c.now().Add(wait); ; {
		found, err := s.NodesReset(ctx, of.Site)
		if err != nil {
			return nil, err
		}
		nodes, waiting := make([]nodeReset, len(found)), false
		for i, n := range found {
			nodes[i] = nodeReset{n, stateOf(n, of.Number)}
			waiting = waiting || nodes[i].State == voterWaiting
		}
		if !waiting || !c.now().Before(deadline) {
			return nodes, nil
		}
		if err := pause.For(ctx, c.poll); err != nil {
			return nil, err
		}
	}
}

func stateOf(n nodes.NodeReset, number int64) string {
	switch {
	case n.Revoked:
		return voterRevoked
	case !n.Enrolled:
		return voterUnjoined
	case n.Number >= number:
		return voterReset
	}
	return voterWaiting
}

func (r siteReset) view() view {
	now := strconv.FormatInt(r.Epoch, 10)
	v := view{header: []string{"VOTER", "STATE", "EPOCH BEFORE", "RESET TO"}, single: true, items: []item{{
		name: "site/" + string(r.Site), value: r,
		cells: []string{"region", voterReset, strconv.FormatInt(r.Promised, 10), now},
	}}}
	for _, n := range r.Nodes {
		cells := []string{string(n.Node), n.State, "", ""}
		if n.State == voterReset {
			cells[2], cells[3] = strconv.FormatInt(n.From, 10), now
		}
		v.items = append(v.items, item{name: "node/" + string(n.Node), cells: cells})
	}
	return v
}
