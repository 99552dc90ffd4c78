package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const reconcileLong = `Make nodes compare themselves with what their site should hold. A node fetches what it lacks and
drops only what the region confirms absent by name; the rest waits for an operator
("holdfast orphans list NODE"). It also hashes the files that it delivered, and writes again those
that were changed. Nodes also compare themselves without a request, but hash no files, when they
start, when their peer starts, and on a schedule.`

func (c *cli) newReconcileCommand() *cobra.Command {
	group := newGroup("reconcile", "Compare nodes with what their site should hold", c.newReconcileNodeCommand(), c.newReconcileSiteCommand())
	group.Long = reconcileLong
	return group
}

func (c *cli) newReconcileNodeCommand() *cobra.Command {
	return c.newVerb(verb{
		word: "reconcile", use: "node NAME...", short: "Compare nodes", long: reconcileLong, keys: each(nodeKey),
		example: "  holdfast reconcile node plant-1-b", complete: c.completeObjects("node"),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			f.addAsk(cmd)
			return nil
		},
	})
}

func (c *cli) newReconcileSiteCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "site NAME", Short: "Compare each node of a site's pair", Args: cobra.ExactArgs(1), Long: reconcileLong,
		Example: "  holdfast reconcile site plant-1", ValidArgsFunction: c.completeObjects("site"),
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := objectKey(fleet.KindSite, args[0], ""); err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		all, err := client.ReconcileSite(cmd.Context(), args[0], f.mutation())
		if err != nil {
			return err
		}
		targets := make([]target, len(all.Operations))
		for i, op := range all.Operations {
			key := fleet.ObjectKey{Kind: kindNode, Name: op.Node}
			targets[i] = target{key: key, do: func(context.Context, *api.Client, api.Mutation) (api.Accepted, error) {
				return api.Accepted{Operation: &op, DryRun: all.DryRun}, nil
			}}
		}
		f.key = "" // it was for the one request
		return c.change(cmd.Context(), "reconcile accepted", &f, targets)
	}
	return cmd
}

// addAsk is add for requests that change no object, so there is no ETag to match.
func (f *mutationFlags) addAsk(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "idempotency-key", "", "key that makes a repeat the same request (default random)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would happen and change nothing")
}

// kindNode marks nodes where objects are named; a node is declared by its site.
const kindNode fleet.ObjectKind = "node"

func nodeKey(name string) (fleet.ObjectKey, error) {
	if err := fleet.ValidateName("node", name); err != nil {
		return fleet.ObjectKey{}, &usageError{err}
	}
	return fleet.ObjectKey{Kind: kindNode, Name: name}, nil
}
