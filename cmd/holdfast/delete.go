package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newDeleteCommand() *cobra.Command {
	var f mutationFlags
	var site string
	cmd := &cobra.Command{
		Use: "delete KIND NAME...", Short: "Delete projects, sites, pools, templates, instances, deployments, replicas or fleet changes", Args: cobra.MinimumNArgs(2),
		Example:           "  holdfast delete instance plant-1/press-7\n  holdfast delete replica web/0af3c21b9d44",
		ValidArgsFunction: c.completeKindAndNames,
	}
	f.add(cmd)
	f.addWait(cmd)
	c.addSiteFlag(cmd, &site)
	c.addRegion(cmd, &f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, err := c.kindOf(args[0])
		if err != nil {
			return err
		}
		if f.region != "" && kind.object == "" {
			return &usageError{fmt.Errorf("--region: %s stay in their region", kind.plural)}
		}
		if kind.name == kindReplica {
			return c.deleteReplicas(cmd.Context(), args[1:], &f)
		}
		if kind.object == "" {
			return &usageError{fmt.Errorf("a %s is not a declared object, so it cannot be deleted", kind.name)}
		}
		project := c.flags.project // not the context's, which is for lists and declarations
		var targets []target
		for _, name := range args[1:] {
			key, err := objectKey(kind.object, name, site)
			if err != nil {
				return err
			}
			targets = append(targets, target{key: key, do: func(ctx context.Context, client *api.Client, m api.Mutation) (api.Accepted, error) {
				m.Project = project
				return client.Delete(ctx, key, m)
			}})
		}
		return c.change(cmd.Context(), "delete accepted", &f, targets)
	}
	return cmd
}

func objectKey(kind fleet.ObjectKind, name, site string) (fleet.ObjectKey, error) {
	if kind == fleet.KindInstance {
		return instanceKey(name, site)
	}
	return fleet.ObjectKey{Kind: kind, Name: name}, fleet.ValidateName(string(kind), name)
}
