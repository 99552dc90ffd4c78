package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

const forceVoteLong = `A vote whose state was lost grants nothing until a TTL has passed and it has heard both other
voters. Where one of those will not come back, a person replaces the hearing: with --epoch, who
forces the vote vouches that nobody was ever given a higher epoch of this site's lease. Take the
highest that any of them knows: "holdfast get site SITE" and "holdfast describe node NODE" show
them. A number that is too low can make two nodes active at once. The wait of a TTL stays.`

// forceFlags are what both kinds of a forced vote take.
type forceFlags struct {
	epoch int64
	yes   bool
}

func (f *forceFlags) add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.epoch, "epoch", 0, "the highest epoch that was ever given, as far as anybody knows")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask for confirmation")
	_ = cmd.MarkFlagRequired("epoch") // the flag exists
}

// confirm asks on the terminal.
func (f *forceFlags) confirm(c *cli, what string) error {
	if f.epoch < 1 || f.epoch > lease.Most {
		return &usageError{fmt.Errorf("--epoch is the highest epoch that was given, from 1 to %d", int64(lease.Most))}
	}
	if f.yes {
		return nil
	}
	return c.confirm(fmt.Sprintf("Force %s: nobody was ever given an epoch above %d?", what, f.epoch))
}

// confirm asks on the terminal.
func (c *cli) confirm(question string) error {
	fmt.Fprintf(c.stderr, "%s Type yes: ", question)
	said, _ := bufio.NewReader(c.stdin).ReadString('\n') // without a line nothing is confirmed
	if strings.TrimSpace(said) != "yes" {
		return fleet.Errorf(fleet.Invalid, "it was not confirmed, and nothing was changed").WithHint("--yes answers for scripts")
	}
	return nil
}

// newNodeForceVoteCommand makes good a node's own lost vote, on its machine.
func (c *cli) newNodeForceVoteCommand() *cobra.Command {
	var f forceFlags
	var dir, site string
	cmd := &cobra.Command{
		Use: "force-vote", Short: "Make good a node's lost vote, on its machine", Args: cobra.NoArgs,
		Long:    "Make good the lost vote of the node whose directory is --data. Stop the node first.\n\n" + forceVoteLong,
		Example: "  holdfast node force-vote --site plant-1 --epoch 41",
		RunE: func(*cobra.Command, []string) error {
			if err := f.confirm(c, "the vote in "+dir); err != nil {
				return err
			}
			of, promised, err := node.ForceVote(dir, fleet.SiteName(site), f.epoch)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "node %s votes on epochs above %d, a TTL after it is started\n", of, promised)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&dir, "data", c.orEnv("HOLDFAST_DATA", "/var/lib/holdfast"), "directory of the node's key and votes")
	cmd.Flags().StringVar(&site, "site", c.env("HOLDFAST_SITE"), "site of the node")
	if site == "" {
		_ = cmd.MarkFlagRequired("site") // the flag exists
	}
	return cmd
}

// newAdminForceVoteCommand makes good the region's lost vote on a site.
func (c *cli) newAdminForceVoteCommand() *cobra.Command {
	var f forceFlags
	var url, name string
	cmd := &cobra.Command{
		Use: "force-vote SITE", Short: "Make good a restored region's vote on a site", Args: cobra.ExactArgs(1),
		Long: "Make good the region's vote on a site, which is lost after raise-era, or waits for the word of a\n" +
			"node that decided alone.\n\n" + forceVoteLong,
		Example: "  holdfast admin force-vote plant-1 --epoch 41",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fleet.ValidateName("site", args[0]); err != nil {
				return err
			}
			if err := f.confirm(c, "the region's vote on site "+args[0]); err != nil {
				return err
			}
			s, err := postgres.Open(cmd.Context(), url, name)
			if err != nil {
				return err
			}
			defer s.Close()
			if err := s.ForceVote(cmd.Context(), fleet.SiteName(args[0]), f.epoch, "admin:force-vote"); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "the region votes on site %s again, on epochs above %d\n", args[0], f.epoch)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&url, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	cmd.Flags().StringVar(&name, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	return cmd
}
