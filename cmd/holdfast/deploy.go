package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// instanceVerb is a verb of instances that takes a reason.
func (c *cli) instanceVerb(word, short string) verb {
	return c.verbOfInstances(word, short, instanceKey, nil)
}

func (c *cli) verbOfInstances(
	word, short string, named func(arg, site string) (fleet.ObjectKey, error), body func(*cobra.Command, *mutationFlags) func(int) (any, error),
) verb {
	var site string
	return verb{
		word: word, use: word + " SITE/NAME...", short: short, complete: c.completeInstances,
		example: "  holdfast " + word + " plant-1/press-7 --reason 'ticket 4711'",
		keys:    each(func(arg string) (fleet.ObjectKey, error) { return named(arg, site) }),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			f.add(cmd)
			f.addReason(cmd)
			c.addSiteFlag(cmd, &site)
			if body == nil {
				return f.reasoned
			}
			return body(cmd, f)
		},
	}
}

// deployVerb also works on deployments.
func (c *cli) deployVerb() verb {
	v := c.verbOfInstances("deploy", "Deliver the desired revision of instances to their nodes, or make deployments run what is declared", writerKey, nil)
	v.use, v.complete = "deploy SITE/NAME|deployment/NAME...", c.completeWriters
	return v
}

const rollbackLong = `Release the content of an earlier revision under a new number.

Without --revision it restores the deployed revision if the desired one is not deployed, else the
deployed revision before it.`

func (c *cli) rollbackVerb() verb {
	v := c.verbOfInstances("rollback", "Restore an earlier revision of instances", func(arg, site string) (fleet.ObjectKey, error) {
		name, is := strings.CutPrefix(arg, deploymentPrefix)
		if is || site == "" && !strings.Contains(arg, "/") {
			return fleet.ObjectKey{}, &usageError{fmt.Errorf("%q does not name an instance: use SITE/NAME, or for a deployment %q", arg, "holdfast rollout rollback "+name)}
		}
		return instanceKey(arg, site)
	}, rollbackBody)
	v.long = rollbackLong
	return v
}

func rollbackBody(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
	var revision int64
	cmd.Flags().Int64Var(&revision, "revision", 0, "revision to restore")
	return func(names int) (any, error) {
		switch {
		case cmd.Flags().Changed("revision") && revision < 1:
			return nil, &usageError{errors.New("invalid --revision: want 1 or more")}
		case revision > 0 && names > 1:
			return nil, &usageError{errors.New("--revision needs exactly one instance: each has its own numbers")}
		}
		return api.RollbackRequest{Revision: revision, Reason: f.reason}, nil
	}
}

func (c *cli) addSiteFlag(cmd *cobra.Command, site *string) {
	cmd.Flags().StringVar(site, "site", "", "site of instances given without one")
	complete(cmd, "site", c.completeObjects("site"))
}
