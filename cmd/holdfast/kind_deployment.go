package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var (
	deploymentHeader = []string{"NAME", "PROJECT", "TYPE", "STATE", headerSynced, "AVAILABLE", "HEALTHY", "REVISION", "WHY", "SINCE", "UPDATED"}
	poolHeader       = []string{"NAME", "PROJECT", "SITES", "NODES", "LABELS", "MAX REPLICAS", "GENERATION", "UPDATED"}
)

func deploymentCells(c *cli, o api.Object) []string {
	spec, s := deploymentOf(o)
	why := ""
	if !steady(s) {
		why = s.Reason
	}
	return []string{
		o.Name, o.Project, string(spec.Type), string(s.State), syncedWord(s.Synced), yesNo(s.Available), healthyText(s.Replicas), number(s.Revision),
		why, c.agoOf(s.Since), c.ago(o.UpdatedAt),
	}
}

func listEndedDeployments(ctx context.Context, c *cli, client *api.Client, _ fleet.ObjectKind, in listing) ([]api.Object, string, error) {
	return collect(in.limit, func(p api.Page) (api.List[api.Object], error) {
		p.Project = c.flags.project
		return client.EndedDeployments(ctx, p)
	})
}

// steady reports whether a deployment waits for nothing.
func steady(s api.DeploymentStatus) bool {
	return s.State == fleet.DeploymentRunning && s.Awaited == "" && s.Replicas.Healthy == s.Replicas.Desired
}

// healthyText counts the healthy and the desired replicas.
func healthyText(n api.ReplicaTotals) string { return fmt.Sprintf("%d/%d", n.Healthy, n.Desired) }

// deploymentOf decodes the fields that this version knows; -o json shows everything.
func deploymentOf(o api.Object) (fleet.DeploymentSpec, api.DeploymentStatus) {
	var spec fleet.DeploymentSpec
	var status api.DeploymentStatus
	_ = json.Unmarshal(o.Spec, &spec)     // an unknown shape stays empty in a table
	_ = json.Unmarshal(o.Status, &status) // likewise
	return spec, status
}

func poolCells(c *cli, o api.Object) []string {
	var spec fleet.PoolSpec
	_ = json.Unmarshal(o.Spec, &spec) // an unknown shape stays empty in a table
	most := ""
	if spec.MaxReplicas > 0 {
		most = fmt.Sprint(spec.MaxReplicas)
	}
	return []string{
		o.Name, o.Project, joined(spec.Sites), joined(spec.Nodes), labelsText(spec.Labels), most, number(o.Generation), c.ago(o.UpdatedAt),
	}
}

func joined[S ~string](words []S) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ",")
}

const (
	describedDecisions = 10
	describedReplicas  = 50
)

// describeDeployment writes a deployment's state, what it waits for, its replicas, and the last decisions.
func (c *cli) describeDeployment(ctx context.Context, client *api.Client, o api.Object) error {
	_, s := deploymentOf(o)
	c.describeStanding(s)
	if err := conditionsTable(s.Conditions).under(c.stdout, "Conditions"); err != nil {
		return err
	}
	replicas, err := client.Replicas(ctx, api.ReplicaQuery{Deployment: o.Name, Page: api.Page{Limit: describedReplicas}})
	if err != nil {
		return err
	}
	title := "Replicas"
	if replicas.Next != "" {
		title = fmt.Sprintf("The first %d replicas (all: holdfast get replicas --deployment %s)", describedReplicas, o.Name)
	}
	if err := c.replicasTable(replicas.Items).under(c.stdout, title); err != nil {
		return err
	}
	decisions, err := client.Decisions(ctx, o.Name, api.Page{Limit: describedDecisions})
	if err != nil {
		return err
	}
	return decisionsTable(decisions.Items).under(c.stdout, "Last decisions (more: holdfast explain deployment "+o.Name+")")
}

// describeStanding writes the state and its consequences.
func (c *cli) describeStanding(s api.DeploymentStatus) {
	since := ""
	if s.Since != nil {
		since = ", since " + stamp(*s.Since)
	}
	lines := [][2]string{
		{"State", fmt.Sprintf("%s%s (of generation %d)", s.State, since, s.ObservedGeneration)},
		{"Replicas", replicasText(s.Replicas)},
		{"Available", yesNo(s.Available)},
		{"Revision", revisionText(s)},
		{"Synced", syncedText(s.Synced)},
		{"What helps", syncedHint(s.Synced)},
		{"Needs restart", pendingText(s.PendingRestart)},
		{"Why", first(s.Message, s.Reason)},
		{"Waits for", untilText(s.Awaited, s)},
	}
	if s.Workflow != nil {
		lines = append(lines, [2]string{"Workflow", first(s.Workflow.URL, s.Workflow.ID)})
	}
	fmt.Fprintln(c.stdout)
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(c.stdout, "%-15s %s\n", l[0]+":", clean(l[1]))
		}
	}
}

func revisionText(s api.DeploymentStatus) string {
	text := fmt.Sprintf("%d, process version %d", s.Revision, s.ProcessVersion)
	if s.DeployingRevision > 0 {
		text += fmt.Sprintf("; moving to %d", s.DeployingRevision)
	}
	return text
}

// pendingText names what a restart would apply.
func pendingText(p *api.PendingRestart) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s (revision %d)", fieldsText(p.Fields), p.Revision)
}

func untilText(awaited string, s api.DeploymentStatus) string {
	if awaited == "" || s.Until == nil {
		return awaited
	}
	return awaited + ", until " + stamp(*s.Until)
}

// replicasText counts replicas in words: "2 of 3 healthy, 1 starting".
func replicasText(n api.ReplicaTotals) string {
	parts := []string{fmt.Sprintf("%d of %d healthy", n.Healthy, n.Desired)}
	for _, p := range []struct {
		count int
		word  string
	}{{n.Starting, "starting"}, {n.Healthy - n.Routable, "not ready"}, {n.Unhealthy, "unhealthy"}, {n.Degraded, "not connected"}, {n.Terminating, "ending"}} {
		if p.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.count, p.word))
		}
	}
	return strings.Join(parts, ", ")
}

func conditionsTable(conditions []api.Condition) *table {
	t := newTable([]string{"CONDITION", "STATUS", "REASON", "MESSAGE", "SINCE"})
	for _, d := range conditions {
		t.add([]string{d.Type, string(d.Status), d.Reason, d.Message, stamp(d.Since)})
	}
	return t
}

func decisionsTable(decisions []api.Decision) *table {
	t := newTable([]string{"AT", "TIMES", "REPLICA", "NODE", "FROM", "TO", "REASON", "MESSAGE", "BY"})
	for _, d := range decisions {
		t.add([]string{stamp(d.LastAt), fmt.Sprint(d.Times), string(d.Replica), d.Node, d.From, d.To, d.Reason, d.Message, d.Actor})
	}
	return t
}
