package main

import (
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

func (c *cli) scaleVerb() verb {
	return verb{
		word: "scale", use: "scale NAME... --replicas N", short: "Set the number of replicas of deployments", keys: deploymentNames,
		long: "Set the number of replicas of deployments, within replicas.min and replicas.max of their specs.\n" +
			"The number is not part of the spec: applying the spec again does not reset it.",
		example: "  holdfast scale web --replicas 5", complete: c.completeObjects("deployment"),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			replicas := 0
			f.addDecided(cmd)
			cmd.Flags().IntVar(&replicas, "replicas", 0, "desired number of replicas")
			_ = cmd.MarkFlagRequired("replicas") // it exists
			return func(int) (any, error) { return api.ScaleRequest{Replicas: &replicas, Reason: f.reason}, nil }
		},
	}
}

func (c *cli) restartVerb() verb {
	return verb{
		word: "restart", use: "restart deployment NAME...", short: "Replace every replica of deployments, one by one or all at once", args: deploymentOnly,
		long: "Replace every replica of deployments, one by one or all at once. If changes of a deployment wait for a restart\n" +
			"(update: versioned), they are rolled out, and its operation is a converge.",
		example: "  holdfast restart deployment web --reason 'new certificate'", complete: c.completeDeploymentKind, keys: deploymentNames,
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			var stopFirst bool
			f.addDecided(cmd)
			cmd.Flags().BoolVar(&stopFirst, "stop-first", false, "end all replicas, have their nodes confirm it, and then start the new ones")
			return func(int) (any, error) {
				in := api.RestartRequest{Reason: f.reason}
				if stopFirst {
					in.Mode = api.RestartStopFirst
				}
				return in, nil
			}
		},
	}
}

// addDecided is add with the reason for a change of a deployment.
func (f *mutationFlags) addDecided(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, stored with the decisions")
}

// completeDeploymentKind offers the word deployment first, then names.
func (c *cli) completeDeploymentKind(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"deployment"}, noFiles
	}
	return c.namesOf(cmd.Context(), "deployment", listing{}, prefix), noFiles
}
