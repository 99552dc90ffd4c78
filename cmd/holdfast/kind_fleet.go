package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var fleetHeader = []string{"NAME", "PROJECT", "PHASE", headerSynced, "RUN", "WAVE", "DONE", "FAILED", "REASON", "GENERATION", "UPDATED"}

func fleetCells(c *cli, o api.Object) []string {
	s := fleetOf(o)
	wave := ""
	if s.Run > 0 {
		wave = fmt.Sprintf("%d/%d", s.Wave, s.Waves)
	}
	return []string{
		o.Name, o.Project, s.Phase, syncedWord(syncedOf(o.Status)), number(s.Run), wave, doneText(s.Counts), fmt.Sprint(s.Counts.Failed), s.Reason,
		number(o.Generation), c.ago(o.UpdatedAt),
	}
}

// fleetOf decodes the fields that this version knows; -o json shows everything.
func fleetOf(o api.Object) api.FleetStatus {
	var status api.FleetStatus
	_ = json.Unmarshal(o.Status, &status) // an unknown shape stays empty in a table
	return status
}

// doneText counts the finished instances, including failed ones.
func doneText(c fleet.FleetCounts) string { return fmt.Sprintf("%d/%d", c.Good()+c.Failed, c.Total) }

// fleetProgressText describes the progress of a run.
func fleetProgressText(p api.FleetProgress) string {
	parts := []string{
		fmt.Sprintf("wave %d of %d", p.Wave, p.Waves),
		fmt.Sprintf("%d of %d instances done", p.Counts.Good()+p.Counts.Failed, p.Counts.Total),
	}
	for _, n := range []struct {
		count int
		word  string
	}{{p.Counts.Failed, "failed"}, {p.Counts.Delivering, "under way"}, {p.Counts.Staged, "waiting for their window"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.word))
		}
	}
	return strings.Join(parts, ", ")
}

const (
	describedRuns    = 5
	describedTargets = 20
)

// describeFleet writes the state of the newest run per wave, what failed and why, what it waits for, and the
// workflow to open.
func (c *cli) describeFleet(ctx context.Context, client *api.Client, o api.Object) error {
	s := fleetOf(o)
	c.describeFleetRun(s, syncedOf(o.Status))
	waves := newTable([]string{"WAVE", "TOTAL", "WAITING", "DELIVERING", "STAGED", "SUCCEEDED", "UNCHANGED", "SUPERSEDED", "FAILED"})
	for i, n := range s.PerWave {
		cells := []string{fmt.Sprint(i + 1)}
		for _, count := range []int{n.Total, n.Waiting, n.Delivering, n.Staged, n.Succeeded, n.Unchanged, n.Superseded, n.Failed} {
			cells = append(cells, fmt.Sprint(count))
		}
		waves.add(cells)
	}
	if err := waves.under(c.stdout, "Waves"); err != nil {
		return err
	}
	if err := conditionsTable(s.Conditions).under(c.stdout, "Conditions"); err != nil {
		return err
	}
	if s.Run == 0 {
		return nil
	}
	if err := c.describeFailed(ctx, client, o.Name, s); err != nil {
		return err
	}
	return c.describeRuns(ctx, client, o.Name)
}

func (c *cli) describeFleetRun(s api.FleetStatus, synced *api.Condition) {
	fmt.Fprintf(c.stdout, "\nPhase:          %s (of generation %d)\n", clean(s.Phase), s.ObservedGeneration)
	c.describeSynced(synced)
	if s.Run == 0 {
		return
	}
	run := number(s.Run)
	if s.RollbackOf > 0 {
		run += fmt.Sprintf(", rolls back run %d", s.RollbackOf)
	}
	fmt.Fprintf(c.stdout, "Run:            %s\n", run)
	fmt.Fprintf(c.stdout, "Progress:       %s\n", fleetProgressText(api.FleetProgress{Wave: s.Wave, Waves: s.Waves, Counts: s.Counts}))
	if why := first(s.Message, s.Reason); why != "" {
		fmt.Fprintf(c.stdout, "Why:            %s\n", clean(why))
	}
	if s.Deadline != nil {
		fmt.Fprintf(c.stdout, "Deadline:       %s\n", stamp(*s.Deadline))
	}
}

// describeFailed lists the first failures.
func (c *cli) describeFailed(ctx context.Context, client *api.Client, name string, s api.FleetStatus) error {
	if s.Counts.Failed == 0 {
		return nil
	}
	list, err := client.FleetTargets(ctx, name, api.FleetTargetQuery{
		Run: s.Run, State: fleet.FleetTargetFailed, Page: api.Page{Limit: describedTargets},
	})
	if err != nil {
		return err
	}
	failed := newTable([]string{"INSTANCE", "WAVE", "REVISION", "TRIES", "REASON", "MESSAGE", "DELIVERY"})
	for _, t := range list.Items {
		failed.add([]string{
			t.Site + "/" + t.Instance, fmt.Sprint(t.Wave), number(t.Revision), fmt.Sprint(t.Tries), t.Reason, t.Message, t.Delivery,
		})
	}
	title := "Failed instances"
	if list.Next != "" {
		title = fmt.Sprintf("The first of %d failed instances (all: holdfast fleet targets %s --state failed)", s.Counts.Failed, name)
	}
	return failed.under(c.stdout, title)
}

func (c *cli) describeRuns(ctx context.Context, client *api.Client, name string) error {
	v, err := fleetRunsView(ctx, client, name, describedRuns)
	if err != nil {
		return err
	}
	runs := newTable(v.header)
	for _, it := range v.items {
		runs.add(it.cells)
	}
	if err := runs.under(c.stdout, "Last runs"); err != nil {
		return err
	}
	ops, err := client.Operations(ctx, api.OperationQuery{Fleet: name, Page: api.Page{Limit: 1}})
	if err != nil {
		return err
	}
	for _, op := range ops.Items {
		fmt.Fprintf(c.stdout, "\nLast operation: %s %s\n", clean(op.ID), clean(string(op.State)))
		if op.Workflow != nil {
			fmt.Fprintf(c.stdout, "Workflow:       %s\n", clean(first(op.Workflow.URL, op.Workflow.ID)))
		}
	}
	return nil
}
