package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newTopCommand() *cobra.Command {
	return newGroup("top", "Show the resource usage of deployments and replicas",
		c.newTopOf("deployments", "Show the total usage of each deployment", c.topDeployments),
		c.newTopOf("replicas", "Show the usage of each replica", c.topReplicas))
}

func (c *cli) newTopOf(noun, short string, show func([]api.DeploymentTop) view) *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: noun + " [NAME...]", Aliases: []string{noun[:len(noun)-1]}, Short: short + ": all, or those of the named deployments",
		Example: "  holdfast top " + noun + " web", ValidArgsFunction: c.completeObjects("deployment"),
	}
	w.addWatch(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if err := fleet.ValidateName("deployment", name); err != nil {
				return &usageError{err}
			}
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			all, err := c.tops(ctx, client, args)
			return show(all), err
		})
	}
	return cmd
}

// tops requests the named deployments, or all; one may be deleted in the meantime.
func (c *cli) tops(ctx context.Context, client *api.Client, named []string) ([]api.DeploymentTop, error) {
	names := named
	if len(named) == 0 {
		var err error
		if names, err = deploymentsOf(ctx, c, client); err != nil {
			return nil, err
		}
	}
	var all []api.DeploymentTop
	for _, name := range names {
		t, err := client.Top(ctx, name)
		if len(named) == 0 && fleet.KindOf(err) == fleet.NotFound {
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, t)
	}
	return all, nil
}

func deploymentsOf(ctx context.Context, c *cli, client *api.Client) ([]string, error) {
	objects, _, err := listObjects(ctx, c, client, fleet.KindDeployment, listing{})
	var names []string
	for _, o := range objects {
		names = append(names, o.Name)
	}
	return names, err
}

func (*cli) topDeployments(all []api.DeploymentTop) view {
	v := view{header: []string{"NAME", "REPLICAS", "CPU", "CPU ASKED", "MEMORY", "MEMORY ASKED"}}
	for _, t := range all {
		v.items = append(v.items, item{name: deploymentPrefix + t.Deployment, value: t, cells: []string{
			t.Deployment, fmt.Sprint(len(t.Replicas)), coresText(t.CPU), fmt.Sprintf("%g", t.Requested.CPU), bytesText(t.Memory), bytesText(t.Requested.Memory),
		}})
	}
	return v
}

func (c *cli) topReplicas(all []api.DeploymentTop) view {
	v := view{header: []string{"REPLICA", "NODE", "STATE", "CPU", "MEMORY", "SAMPLED"}}
	for _, t := range all {
		for _, r := range t.Replicas {
			full := t.Deployment + "/" + string(r.ID)
			cells := []string{full, r.Node, string(r.State), "", "", c.agoOf(r.At)}
			if r.At != nil {
				cells[3], cells[4], cells[5] = coresText(r.CPU), bytesText(r.Memory), c.ago(*r.At)+" ago"
			}
			v.items = append(v.items, item{name: "replica/" + full, value: replicaTop{t.Deployment, r}, cells: cells})
		}
	}
	return v
}

// replicaTop is a line of top replicas, in the shape of json and yaml output.
type replicaTop struct {
	Deployment string `json:"deployment"`
	api.ReplicaTop
}

func coresText(cores float64) string { return fmt.Sprintf("%.2f", cores) }
