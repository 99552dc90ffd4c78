package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// instanceVerb is a command on instances.
type instanceVerb struct {
	use, short  string
	deployments bool // also works on deployments
	do          func(context.Context, *api.Client, fleet.ObjectKey, *mutationFlags) (api.Accepted, error)
}

func (c *cli) newDeployCommand() *cobra.Command {
	return c.newInstanceVerb(instanceVerb{
		use: "deploy", short: "Deliver the desired revision of instances to their nodes, or make deployments run what is declared",
		deployments: true,
		do: func(ctx context.Context, client *api.Client, key fleet.ObjectKey, f *mutationFlags) (api.Accepted, error) {
			if key.Kind == fleet.KindDeployment {
				return client.DeployDeployment(ctx, key.Name, api.ActionRequest{Reason: f.reason}, f.mutation())
			}
			return client.Deploy(ctx, key, api.ActionRequest{Reason: f.reason}, f.mutation())
		},
	})
}

func (c *cli) newInstanceVerb(verb instanceVerb) *cobra.Command {
	var f mutationFlags
	var site string
	cmd := &cobra.Command{
		Use: verb.use + " SITE/NAME...", Short: verb.short, Args: cobra.MinimumNArgs(1),
		Example:           "  holdfast " + verb.use + " plant-1/press-7 --reason 'ticket 4711'",
		ValidArgsFunction: c.completeInstances,
	}
	if verb.deployments {
		cmd.Use, cmd.ValidArgsFunction = verb.use+" SITE/NAME|deployment/NAME...", c.completeWriters
	}
	f.add(cmd)
	f.addWait(cmd)
	f.addReason(cmd)
	c.addSiteFlag(cmd, &site)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named := instanceKey
		if verb.deployments {
			named = writerKey
		}
		targets, err := instanceTargets(args, site, named, func(ctx context.Context, client *api.Client, key fleet.ObjectKey) (api.Accepted, error) {
			return verb.do(ctx, client, key, &f)
		})
		if err != nil {
			return err
		}
		return c.change(cmd.Context(), verb.use+" accepted", &f, targets)
	}
	return cmd
}

// instanceTargets parses all names before any request.
func instanceTargets(
	args []string, site string, named func(arg, site string) (fleet.ObjectKey, error),
	do func(context.Context, *api.Client, fleet.ObjectKey) (api.Accepted, error),
) ([]target, error) {
	var targets []target
	for _, arg := range args {
		key, err := named(arg, site)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target{key: key, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
			return do(ctx, client, key)
		}})
	}
	return targets, nil
}

func (c *cli) addSiteFlag(cmd *cobra.Command, site *string) {
	cmd.Flags().StringVar(site, "site", "", "site of instances given without one")
	complete(cmd, "site", c.completeObjects("site"))
}
