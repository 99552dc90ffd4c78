package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// deploymentPrefix marks deployments where an instance could be meant too.
const deploymentPrefix = "deployment/"

// deploymentNames parses "deployment NAME...", "deployment/NAME..." or, where only deployments are possible,
// "NAME...".
func deploymentNames(args []string) ([]fleet.ObjectKey, error) {
	if len(args) > 1 && (strings.EqualFold(args[0], "deployment") || strings.EqualFold(args[0], "deployments")) {
		args = args[1:]
	}
	keys := make([]fleet.ObjectKey, len(args))
	for i, arg := range args {
		name := strings.TrimPrefix(arg, deploymentPrefix)
		if err := fleet.ValidateName("deployment", name); err != nil {
			return nil, &usageError{err}
		}
		keys[i] = fleet.DeploymentKey(fleet.DeploymentName(name))
	}
	return keys, nil
}

// deploymentOnly is deploymentNames for commands that require the kind first, because they may support other kinds
// one day.
func deploymentOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) == 1 && !strings.HasPrefix(args[0], deploymentPrefix) {
		return fmt.Errorf("name is required: %s deployment NAME", cmd.CommandPath())
	}
	word := args[0]
	if !strings.EqualFold(word, "deployment") && !strings.EqualFold(word, "deployments") && !strings.HasPrefix(word, deploymentPrefix) {
		return fmt.Errorf("invalid argument %q: want %s deployment NAME", word, cmd.CommandPath())
	}
	return nil
}

func (c *cli) newScaleCommand() *cobra.Command {
	var f mutationFlags
	replicas := 0
	cmd := &cobra.Command{
		Use: "scale NAME... --replicas N", Short: "Set the number of replicas of deployments", Args: cobra.MinimumNArgs(1),
		Long: "Set the number of replicas of deployments, within replicas.min and replicas.max of their specs.\n" +
			"The number is not part of the spec: applying the spec again does not reset it.",
		Example: "  holdfast scale web --replicas 5", ValidArgsFunction: c.completeObjects("deployment"),
	}
	f.add(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, stored with the decisions")
	cmd.Flags().IntVar(&replicas, "replicas", 0, "desired number of replicas")
	_ = cmd.MarkFlagRequired("replicas") // it exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.turnDeployments(cmd.Context(), "scale", &f, args, func(ctx context.Context, client *api.Client, name string) (api.Accepted, error) {
			return client.ScaleDeployment(ctx, name, api.ScaleRequest{Replicas: &replicas, Reason: f.reason}, f.mutation())
		})
	}
	return cmd
}

func (c *cli) newRestartCommand() *cobra.Command {
	var f mutationFlags
	cmd := &cobra.Command{
		Use: "restart deployment NAME...", Short: "Replace every replica of deployments, one by one", Args: deploymentOnly,
		Example: "  holdfast restart deployment web --reason 'new certificate'", ValidArgsFunction: c.completeDeploymentKind,
	}
	f.add(cmd)
	f.addWait(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, stored with the decisions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.turnDeployments(cmd.Context(), "restart", &f, args, func(ctx context.Context, client *api.Client, name string) (api.Accepted, error) {
			return client.RestartDeployment(ctx, name, api.ActionRequest{Reason: f.reason}, f.mutation())
		})
	}
	return cmd
}

// turnDeployments requests a change of each named deployment.
func (c *cli) turnDeployments(
	ctx context.Context, verb string, f *mutationFlags, args []string, do func(context.Context, *api.Client, string) (api.Accepted, error),
) error {
	keys, err := deploymentNames(args)
	if err != nil {
		return err
	}
	var targets []target
	for _, key := range keys {
		targets = append(targets, target{key: key, do: func(ctx context.Context, client *api.Client) (api.Accepted, error) {
			return do(ctx, client, key.Name)
		}})
	}
	return c.change(ctx, verb+" accepted", f, targets)
}

// completeDeploymentKind offers the word deployment first, then names.
func (c *cli) completeDeploymentKind(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"deployment"}, noFiles
	}
	return c.namesOf(cmd.Context(), "deployment", listing{}, prefix), noFiles
}
