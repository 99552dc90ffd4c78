package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

var orphanHeader = []string{"ORPHAN", "DEPLOYMENT", "PHASE", "REVISION", "ERA", "HASH", "REASON", "SINCE", "APPROVED"}

func (c *cli) orphanItem(node string, o api.Orphan) item {
	approved := ""
	if o.ApprovedAt != nil {
		approved = stampOf(o.ApprovedAt) + " by " + o.ApprovedBy
	}
	ref := orphanRef(o)
	return item{name: "orphan/" + node + "/" + ref, value: o, cells: []string{
		ref, o.Deployment, string(o.Phase), number(o.Revision), number(o.Era), short(o.RevisionHash), o.Reason, c.ago(o.Since), approved,
	}}
}

// replicaPrefix distinguishes the id of a replica from the name of an instance.
const replicaPrefix = "replica/"

// orphanRef is an orphan's name on a command line.
func orphanRef(o api.Orphan) string {
	if o.Replica != "" {
		return replicaPrefix + o.Replica
	}
	return o.Instance
}

func (c *cli) newOrphansCommand() *cobra.Command {
	return newGroup("orphans", "What nodes have without a declaration, and an operator has to decide on",
		c.newOrphansListCommand(), c.newOrphansApproveCommand())
}

func (c *cli) newOrphansListCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "list NODE", Short: "List the orphans of a node: instances by name, then replicas", Args: cobra.ExactArgs(1),
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
		Use: "approve NODE INSTANCE|replica/ID... | --all", Short: "Let a node drop orphans in their current revision", Args: cobra.MinimumNArgs(1),
		Long: "Let a node drop orphans. A comparison drops instances in their current revision; one that the node\n" +
			"holds in another revision by then stays and is listed again. Replicas end as soon as the node\n" +
			"is connected.",
		Example: "  holdfast orphans approve plant-1-b press-3 press-4 --reason 'line 3 was taken down'\n" +
			"  holdfast orphans approve plant-1-b replica/0a1b2c3d4e5f",
		ValidArgsFunction: c.completeNodeAndOrphans,
	}
	f.addAsk(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "reason, stored in the event feed")
	cmd.Flags().BoolVar(&in.All, "all", false, "all listed ones")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := nodeKey(args[0])
		if err != nil {
			return err
		}
		if in.All == (len(args) > 1) {
			return &usageError{errors.New("give either names or --all")}
		}
		for _, ref := range args[1:] {
			if id, is := strings.CutPrefix(ref, replicaPrefix); is {
				in.Replicas = append(in.Replicas, id)
			} else {
				in.Instances = append(in.Instances, ref)
			}
		}
		return c.change(cmd.Context(), "orphans approved", &f, []target{{
			key: key, do: func(ctx context.Context, client *api.Client, m api.Mutation) (api.Accepted, error) {
				return client.ApproveOrphans(ctx, args[0], in, m)
			},
		}})
	}
	return cmd
}

// completeNodeAndOrphans offers a node first, then its orphans.
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
		names = append(names, orphanRef(o))
	}
	return names, noFiles
}
