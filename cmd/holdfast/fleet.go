package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const fleetLong = `Run a declared fleet change, and control its run.

A fleet change is declared by "holdfast apply" (kind: Fleet): what changes, in which instances, and
in which waves. Applying it starts a run; these commands start another, pause, resume or cancel it,
retry its failures, or roll it back. "holdfast describe fleet NAME" shows its state.`

// fleetVerbs describe the commands; the region uses the same words.
var fleetVerbs = []struct{ use, short string }{
	{"run", "Start a run, or join the one under way"},
	{"pause", "Start no further deliveries; those under way finish"},
	{"resume", "Resume a paused or stopped run"},
	{"cancel", "End the run; what it changed stays changed"},
	{"retry", "Retry only the instances that failed"},
	{"rollback", "Restore what each instance had before the run, also in waves"},
}

func (c *cli) newFleetCommand() *cobra.Command {
	group := newGroup("fleet", "Changes of many instances, in waves")
	group.Long = fleetLong
	for _, v := range fleetVerbs {
		group.AddCommand(c.newFleetVerb(v.use, v.short))
	}
	group.AddCommand(c.newFleetTargetsCommand(), c.newFleetRunsCommand())
	return group
}

func (c *cli) newFleetVerb(word, short string) *cobra.Command {
	return c.newVerb(verb{
		word: word, use: word + " NAME...", short: short, long: short + ".\n\n" + fleetLong,
		example: "  holdfast fleet " + word + " speed-up --reason 'ticket 4711'", complete: c.completeObjects("fleet"),
		keys: each(func(arg string) (fleet.ObjectKey, error) {
			key, err := objectKey(fleet.KindFleet, arg, "")
			if err != nil {
				return key, &usageError{err}
			}
			return key, nil
		}),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			f.add(cmd)
			f.addReason(cmd)
			if word == string(fleet.FleetPause) { // its operation ends only with the run
				cmd.Flags().Lookup("wait").DefValue, f.wait = "false", false
			}
			if word == string(fleet.FleetCancel) {
				f.wanted = fleet.OperationCancelled
			}
			return f.reasoned
		},
	})
}

var fleetTargetHeader = []string{"INSTANCE", "WAVE", "STATE", "REVISION", "BEFORE", "TRIES", "REASON", "MESSAGE", "UPDATED"}

func (c *cli) fleetTargetItem(t api.FleetTarget) item {
	key := fleet.InstanceKey(fleet.SiteName(t.Site), fleet.InstanceName(t.Instance))
	return item{name: key.String(), value: t, cells: []string{
		subject(key), fmt.Sprint(t.Wave), string(t.State), number(t.Revision), number(t.Before), fmt.Sprint(t.Tries),
		t.Reason, t.Message, c.ago(t.UpdatedAt),
	}}
}

func (c *cli) newFleetTargetsCommand() *cobra.Command {
	var q api.FleetTargetQuery
	var w watchFlags
	cmd := &cobra.Command{
		Use: "targets NAME", Short: "Show the instances of a run and their results", Args: cobra.ExactArgs(1),
		Example: "  holdfast fleet targets speed-up --state failed", ValidArgsFunction: c.completeObjects("fleet"),
	}
	cmd.Flags().Int64Var(&q.Run, "run", 0, "of this run (default the newest)")
	cmd.Flags().StringVar((*string)(&q.State), "state", "", "only in this state")
	complete(cmd, "state", fixed(fleetTargetStates()...))
	w.add(cmd, maxPage)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := objectKey(fleet.KindFleet, args[0], ""); err != nil {
			return &usageError{err}
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			targets, next, err := collect(w.limit, func(p api.Page) (api.List[api.FleetTarget], error) {
				one := q
				one.Page = p
				return client.FleetTargets(ctx, args[0], one)
			})
			v := view{header: fleetTargetHeader, next: next}
			for _, t := range targets {
				v.items = append(v.items, c.fleetTargetItem(t))
			}
			return v, err
		})
	}
	return cmd
}

func fleetTargetStates() []string {
	var words []string
	for _, s := range fleet.FleetTargetStates() {
		words = append(words, string(s))
	}
	return words
}

var fleetRunHeader = []string{"RUN", "GENERATION", "TAKES BACK", "STATE", "REASON", "WAVE", "DONE", "FAILED", "BY", "CREATED", "ENDED"}

func (c *cli) newFleetRunsCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "runs NAME", Short: "Show the runs of a fleet change, newest first", Args: cobra.ExactArgs(1),
		ValidArgsFunction: c.completeObjects("fleet"),
	}
	w.add(cmd, fewOperations)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := objectKey(fleet.KindFleet, args[0], ""); err != nil {
			return &usageError{err}
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			return fleetRunsView(ctx, client, args[0], w.limit)
		})
	}
	return cmd
}

func fleetRunsView(ctx context.Context, client *api.Client, name string, limit int) (view, error) {
	runs, next, err := collect(limit, func(p api.Page) (api.List[api.FleetRun], error) { return client.FleetRuns(ctx, name, p) })
	v := view{header: fleetRunHeader, next: next}
	for _, r := range runs {
		back := ""
		if r.RollbackOf > 0 {
			back = "run " + number(r.RollbackOf)
		}
		v.items = append(v.items, item{name: fmt.Sprintf("fleet/%s/run/%d", name, r.Run), value: r, cells: []string{
			number(r.Run), number(r.Generation), back, string(r.State), r.Reason, fmt.Sprintf("%d/%d", r.Wave, r.Waves),
			doneText(r.Counts), fmt.Sprint(r.Counts.Failed), r.RequestedBy, stamp(r.CreatedAt), stampOf(r.EndedAt),
		}})
	}
	return v, err
}
