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
	{"resume", "Resume a paused rollout, or skip an interval"},
	{"promote", "Skip the steps of a rollout that are left"},
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
	rollback := c.newVerb(c.deploymentVerb("rollback", "Release the whole spec of an earlier revision once more", rollbackBody))
	rollback.Aliases = []string{"undo"} // as kubectl has it
	group.AddCommand(c.newVerb(c.deploymentVerb("retry", "Roll the newest released revision out again", func(_ *cobra.Command, f *mutationFlags) func(int) (any, error) {
		return f.reasoned
	})), rollback)
	return group
}

// deploymentVerb is a verb of the group.
func (c *cli) deploymentVerb(word, short string, body func(*cobra.Command, *mutationFlags) func(int) (any, error)) verb {
	return verb{
		word: word, use: word + " NAME...", short: short, long: short + ".\n\n" + rolloutLong,
		example: "  holdfast rollout " + word + " web --reason 'ticket 4711'", complete: c.completeObjects("deployment"), keys: deploymentNames,
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			f.addDecided(cmd)
			return body(cmd, f)
		},
	}
}

func (c *cli) newRolloutVerb(word, short string) *cobra.Command {
	v := c.deploymentVerb(word, short, func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
		var number int64
		var step int
		cmd.Flags().Int64Var(&number, "rollout", 0, "number of the rollout that is meant; a newer one stays as it is (default: the one under way)")
		cmd.Flags().IntVar(&step, "step", 0, "step that is meant; a later one stays as it is (default: the one under way)")
		return func(int) (any, error) { return api.RolloutRequest{Rollout: number, Step: step, Reason: f.reason}, nil }
	})
	v.about = rolloutUnderWay
	return c.newVerb(v)
}

// rolloutUnderWay names the rollout that is under way and its step, so that a request that arrives late changes no other.
func rolloutUnderWay(ctx context.Context, client *api.Client, key fleet.ObjectKey, in any) (any, error) {
	r, is := in.(api.RolloutRequest)
	if !is || r.Rollout != 0 {
		return in, nil
	}
	rows, err := client.Rollouts(ctx, key.Name, api.Page{Limit: 1})
	if err == nil && len(rows.Items) > 0 && rows.Items[0].State.Active() {
		r.Rollout = rows.Items[0].Number
		if r.Step == 0 {
			r.Step = rows.Items[0].Step
		}
	}
	return r, err
}

var rolloutHeader = []string{
	"ROLLOUT", "STATE", "STEP", "FROM", "TO", "WANTED", "PROVEN", "MIN HEALTHY", "WHY", "MESSAGE", "UNTIL", "STARTED", "ENDED",
}

func (c *cli) rolloutItem(name string, r api.Rollout) item {
	until, step := "", ""
	if r.Steps > 0 {
		step = fmt.Sprintf("%d/%d", r.Step, r.Steps)
	}
	if r.Until != nil {
		until = stamp(*r.Until)
	} else if r.Clock.Stops() && r.State.Active() {
		until = "waits: " + string(r.Clock)
	}
	return item{name: fmt.Sprintf("deployment/%s/%d", name, r.Number), value: r, cells: []string{
		fmt.Sprint(r.Number), string(r.State), step, number(r.FromRevision), number(r.ToRevision), fmt.Sprint(r.Wanted), fmt.Sprint(r.Proven),
		fmt.Sprintf("%gs", r.MinHealthyTime), r.Reason, r.Message, until, c.ago(r.CreatedAt), c.agoOf(r.EndedAt),
	}}
}

func (c *cli) newRolloutList(use, short string, limit int) *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), Example: "  holdfast rollout " + use[:len(use)-len("NAME")] + "web",
		ValidArgsFunction: c.completeObjects("deployment"),
	}
	w.add(cmd, limit)
	if limit == 1 {
		w.over = rolloutOver
		cmd.Long = short + ".\n\nWith --watch it follows the rollout, and ends with it: with code 7 where the stable revision runs again, and 6 where it was superseded."
	}
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

// rolloutOver reports whether the newest rollout has ended. An end other than DEPLOYED is an error.
func rolloutOver(v view) (bool, error) {
	if len(v.items) == 0 {
		return false, nil
	}
	r, is := v.items[0].value.(api.Rollout)
	if !is || r.State.Active() {
		return false, nil
	}
	switch r.State { //nolint:exhaustive // the others have not ended
	case fleet.RolloutDeployed:
		return true, nil
	case fleet.RolloutSuperseded:
		return true, &reported{exitConflict}
	}
	return true, &reported{exitOperationFailed}
}
