package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/store"
)

const forceVoteLong = `A vote whose state was lost grants nothing until a TTL has passed and it has heard from both other
voters. If one of them will not return, an operator can replace its answer. With --epoch the operator
guarantees that no higher epoch of this site's lease was ever granted. Use the highest epoch that any
voter knows: "holdfast get site SITE" and "holdfast describe node NODE" show them. A number that is
too low can make two nodes active at once. The wait of a TTL still applies.`

// forceFlags are the flags of both kinds of forced vote.
type forceFlags struct {
	epoch int64
	yes   bool
}

func (f *forceFlags) add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.epoch, "epoch", 0, "the highest epoch ever granted, as far as known")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask for confirmation")
	_ = cmd.MarkFlagRequired("epoch") // the flag exists
}

// confirm asks on the terminal.
func (f *forceFlags) confirm(c *cli, what string) error {
	if f.epoch < 1 || f.epoch > lease.Most {
		return &usageError{fmt.Errorf("invalid --epoch: want the highest epoch ever granted, from 1 to %d", int64(lease.Most))}
	}
	if f.yes {
		return nil
	}
	return c.confirm(fmt.Sprintf("Force %s: is it certain that no epoch above %d was ever granted?", what, f.epoch))
}

// confirm asks on the terminal.
func (c *cli) confirm(question string) error {
	fmt.Fprintf(c.stderr, "%s Type yes: ", question)
	said, _ := bufio.NewReader(c.stdin).ReadString('\n') // no line means no confirmation
	if strings.TrimSpace(said) != "yes" {
		return fleet.Errorf(fleet.Invalid, "not confirmed; nothing was changed").WithHint("use --yes in scripts")
	}
	return nil
}

// newNodeForceVoteCommand restores a node's own lost vote, on its machine.
func (c *cli) newNodeForceVoteCommand() *cobra.Command {
	var f forceFlags
	var dir, site string
	cmd := &cobra.Command{
		Use: "force-vote", Short: "Restore a node's lost vote, on its machine", Args: cobra.NoArgs,
		Long:    "Restore the lost vote of the node whose directory is --data. Stop the node first.\n\n" + forceVoteLong,
		Example: "  holdfast node force-vote --site plant-1 --epoch 41",
		RunE: func(*cobra.Command, []string) error {
			if err := f.confirm(c, "the vote in "+dir); err != nil {
				return err
			}
			of, promised, err := node.ForceVote(dir, fleet.SiteName(site), f.epoch)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "node %s votes on epochs above %d, a TTL after it starts\n", of, promised)
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

// newAdminForceVoteCommand restores the region's lost vote on a site.
func (c *cli) newAdminForceVoteCommand() *cobra.Command {
	var f forceFlags
	var url, name string
	cmd := &cobra.Command{
		Use: "force-vote SITE", Short: "Restore the region's lost vote on a site", Args: cobra.ExactArgs(1),
		Long: "Restore the region's vote on a site, which is lost after raise-era, or waits for a report of a\n" +
			"node that decided alone.\n\n" + forceVoteLong,
		Example: "  holdfast admin force-vote plant-1 --epoch 41",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fleet.ValidateName("site", args[0]); err != nil {
				return err
			}
			if err := f.confirm(c, "the region's vote on site "+args[0]); err != nil {
				return err
			}
			s, err := store.Open(cmd.Context(), url, name)
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
