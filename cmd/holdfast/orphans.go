package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

var orphanHeader = []string{"INSTANCE", "REVISION", "ERA", "HASH", "REASON", "SINCE", "APPROVED"}

func (c *cli) orphanItem(node string, o api.Orphan) item {
	approved := ""
	if o.ApprovedAt != nil {
		approved = stampOf(o.ApprovedAt) + " by " + o.ApprovedBy
	}
	return item{name: "orphan/" + node + "/" + o.Instance, value: o, cells: []string{
		o.Instance, number(o.Revision), number(o.Era), short(o.RevisionHash), o.Reason, c.ago(o.Since), approved,
	}}
}

func (c *cli) newOrphansCommand() *cobra.Command {
	return newGroup("orphans", "What nodes hold, their site does not expect, and a person has to judge",
		c.newOrphansListCommand(), c.newOrphansApproveCommand())
}

func (c *cli) newOrphansListCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "list NODE", Short: "List what waits on a node, by name", Args: cobra.ExactArgs(1),
		Example: "  holdfast orphans list plant-1-b", ValidArgsFunction: c.completeObjects("node"),
	}
	w.add(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := nodeKey(args[0]); err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			orphans, next, err := collect(w.limit, func(p api.Page) (api.List[api.Orphan], error) {
				return client.Orphans(ctx, args[0], p)
			})
			v := view{header: orphanHeader, next: next}
			for _, o := range orphans {
				v.items = append(v.items, c.orphanItem(args[0], o))
			}
			return v, err
		})
	}
	return cmd
}

func (c *cli) newOrphansApproveCommand() *cobra.Command {
	var f mutationFlags
	var in api.OrphanApproval
	cmd := &cobra.Command{
		Use: "approve NODE INSTANCE... | --all", Short: "Let a node drop them, as it holds them now", Args: cobra.MinimumNArgs(1),
		Long: "Let a node drop orphans, as it holds them now, and compare it. What it holds in another\n" +
			"revision by then stays and is listed again.",
		Example:           "  holdfast orphans approve plant-1-b press-3 press-4 --reason 'line 3 was taken down'",
		ValidArgsFunction: c.completeNodeAndOrphans,
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, kept in the feed")
	cmd.Flags().BoolVar(&in.All, "all", false, "all that is listed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := nodeKey(args[0])
		if err != nil {
			return err
		}
		if in.All == (len(args) > 1) {
			return &usageError{errors.New("either the names of instances or --all says what is approved")}
		}
		if !in.All {
			in.Instances = args[1:]
		}
		return c.change(cmd.Context(), "orphans approved", &f, []target{{
			key: key, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
				return client.ApproveOrphans(ctx, args[0], in, f.mutation())
			},
		}})
	}
	return cmd
}

// completeNodeAndOrphans offers a node first, then what waits on it.
func (c *cli) completeNodeAndOrphans(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.namesOf(cmd.Context(), "node", listing{}, prefix), noFiles
	}
	client, err := c.connect()
	if err != nil {
		return nil, noFiles
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	list, err := client.Orphans(ctx, args[0], api.Page{Limit: maxPage})
	if err != nil {
		return nil, noFiles
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Instance)
	}
	return names, noFiles
}
