package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const rolloutLong = `See and control how a deployment moves to a newer revision.

A release of another content starts a rollout: new replicas start beside those of the stable revision, which end as
the new ones prove healthy. Without progress for too long, the deployment returns to the stable revision by itself.`

// rolloutVerbs describe the commands; the region uses the same words.
var rolloutVerbs = []struct{ word, short string }{
	{"pause", "Pause a rollout"},
	{"resume", "Resume a paused rollout"},
	{"cancel", "Return to the stable revision"},
}

func (c *cli) newRolloutCommand() *cobra.Command {
	group := newGroup("rollout", "How deployments move to newer revisions")
	group.Long = rolloutLong
	group.AddCommand(
		c.newRolloutList("status NAME", "Show the newest rollout of a deployment", 1), c.newRolloutList("history NAME", "Show the rollouts of a deployment, newest first", 0))
	for _, v := range rolloutVerbs {
		group.AddCommand(c.newRolloutVerb(v.word, v.short))
	}
	return group
}

func (c *cli) newRolloutVerb(word, short string) *cobra.Command {
	return c.newVerb(verb{
		word: word, use: word + " NAME...", short: short, long: short + ".\n\n" + rolloutLong,
		example: "  holdfast rollout " + word + " web --reason 'ticket 4711'", complete: c.completeObjects("deployment"), keys: deploymentNames,
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			var number int64
			f.addDecided(cmd)
			cmd.Flags().Int64Var(&number, "rollout", 0, "number of the rollout that is meant; a newer one stays as it is")
			return func(int) (any, error) { return api.RolloutRequest{Rollout: number, Reason: f.reason}, nil }
		},
	})
}

var rolloutHeader = []string{"ROLLOUT", "STATE", "FROM", "TO", "WANTED", "PROVEN", "WHY", "MESSAGE", "UNTIL", "STARTED", "ENDED"}

func (c *cli) rolloutItem(name string, r api.Rollout) item {
	until := ""
	if r.Until != nil {
		until = stamp(*r.Until)
	}
	return item{name: fmt.Sprintf("deployment/%s/%d", name, r.Number), value: r, cells: []string{
		fmt.Sprint(r.Number), string(r.State), number(r.FromRevision), number(r.ToRevision), fmt.Sprint(r.Wanted), fmt.Sprint(r.Proven), r.Reason, r.Message, until,
		c.ago(r.CreatedAt), c.agoOf(r.EndedAt),
	}}
}

func (c *cli) newRolloutList(use, short string, limit int) *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), Example: "  holdfast rollout " + use[:len(use)-len("NAME")] + "web",
		ValidArgsFunction: c.completeObjects("deployment"),
	}
	w.add(cmd, limit)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := fleet.ValidateName("deployment", args[0]); err != nil {
			return &usageError{err}
		}
		return c.listed(cmd, w, rolloutHeader, func(client *api.Client, ctx context.Context, p api.Page) ([]item, string, error) {
			l, err := client.Rollouts(ctx, args[0], p)
			var items []item
			for _, r := range l.Items {
				items = append(items, c.rolloutItem(args[0], r))
			}
			if limit > 0 {
				l.Next = ""
			}
			return items, l.Next, err
		})
	}
	return cmd
}
