package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

const explainLong = `Explain the state of a deployment: what is declared, what runs, what failed and its last output,
what it waits for and until when, which workflow to open, and which node has free resources.`

func (c *cli) newExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain deployment NAME", Short: "Explain the state of a deployment", Long: explainLong, Args: deploymentOnly,
		Example: "  holdfast explain deployment web", ValidArgsFunction: c.completeDeploymentKind,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := deploymentNames(args)
			if err != nil {
				return err
			}
			if len(keys) != 1 {
				return &usageError{fmt.Errorf("explain takes one deployment")}
			}
			client, err := c.connect()
			if err != nil {
				return err
			}
			e, err := client.Explain(cmd.Context(), keys[0].Name)
			if err != nil {
				return err
			}
			if c.flags.output != formatTable {
				return c.print(single(nil, item{name: keys[0].String(), value: e}))
			}
			return c.explained(e)
		},
	}
}

// explained writes an explanation for people: the cause first.
func (c *cli) explained(e api.Explanation) error {
	fmt.Fprintf(c.stdout, "Deployment %s of project %s\n", clean(e.Name), clean(e.Project))
	if s := e.Status.Synced; s != nil && strings.HasPrefix(s.Hint, "holdfast explain ") { // this is what it advises
		synced := *s
		synced.Hint, e.Status.Synced = "", &synced
	}
	c.describeStanding(e.Status)
	c.explainCauses(e.Causes)
	c.explainSpec(e)
	for _, t := range []struct {
		title string
		table *table
	}{
		{"Conditions", conditionsTable(e.Status.Conditions)},
		{"Replicas", c.replicasTable(e.Replicas)},
		{"Last replicas that ended", c.replicasTable(e.Ended)},
		{"May still run, not counted", c.uncountedTable(e.Uncounted)},
		{"Last decisions", decisionsTable(e.Decisions)},
	} {
		if err := t.table.under(c.stdout, t.title); err != nil {
			return err
		}
	}
	c.explainOutput(e.Output)
	title := "Free on nodes"
	if e.MoreNodes > 0 {
		title += fmt.Sprintf(" (%d more are not shown)", e.MoreNodes)
	}
	return nodesTable(e.Nodes).under(c.stdout, title)
}

func (c *cli) uncountedTable(all []api.Uncounted) *table {
	t := newTable([]string{"REPLICA", "NODE", "WHY", "SINCE", "TO END IT"})
	for _, u := range all {
		t.add([]string{string(u.ID), u.Node, u.Reason, c.ago(u.Since), u.Hint})
	}
	return t
}

func (c *cli) explainCauses(causes []api.Cause) {
	for i, cause := range causes {
		if i == 0 {
			fmt.Fprintln(c.stdout, "\nWhat keeps it from running as declared:")
		}
		fmt.Fprintf(c.stdout, "  %s (%s): %s\n", clean(cause.Code), clean(cause.Reason), clean(cause.Message))
		if cause.Hint != "" {
			fmt.Fprintf(c.stdout, "    -> %s\n", clean(cause.Hint))
		}
	}
}

// explainSpec summarises the released or declared spec.
func (c *cli) explainSpec(e api.Explanation) {
	s, title := e.Spec, "Declared"
	if s == nil {
		return
	}
	if e.Status.Revision > 0 {
		title = "Released"
	}
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = p.Name
		if p.Port != 0 {
			ports[i] = fmt.Sprintf("%s:%d", p.Name, p.Port)
		}
	}
	fmt.Fprintf(c.stdout, "\n%s (generation %d):\n", title, s.Generation)
	for _, l := range [][2]string{
		{"Runs", fmt.Sprintf("%s by %s, %s", s.Type, s.Driver, s.State)},
		{"Image", s.Image},
		{"Command", strings.Join(s.Command, " ")},
		{"Model", s.Model},
		{"Ports", strings.Join(ports, ", ")},
		{"Health", first(checkText(s.Health), "none")},
		{"Readiness", checkText(s.Readiness)},
		{"Startup", fmt.Sprintf("%g s at most", s.StartupSeconds)},
		{"Needs", resourcesText(s.Resources)},
		{"Replicas", fmt.Sprintf("%d to %d, at first %d", s.Replicas.Min, s.Replicas.Max, s.Replicas.Initial)},
		{"Placement", placementText(s.Placement)},
	} {
		if l[1] != "" {
			fmt.Fprintf(c.stdout, "  %-10s %s\n", l[0]+":", clean(l[1]))
		}
	}
}

func checkText(h *api.HealthCheck) string {
	if h == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", first(string(h.Type), "http"), h.Method, h.Path))
}

func resourcesText(r api.ResourceTotal) string {
	parts := []string{fmt.Sprintf("%g cores", r.CPU), bytesText(r.Memory)}
	if r.GPUs > 0 {
		parts = append(parts, fmt.Sprintf("%d GPUs", r.GPUs))
	}
	return strings.Join(parts, ", ")
}

func placementText(p api.DeploymentPlacement) string {
	var parts []string
	for _, l := range [][2]string{
		{"sites", joined(p.Sites)},
		{"pools", joined(p.Pools)},
		{"labels", labelsText(p.Labels)},
		{"modules", strings.Join(p.Modules, ",")},
		{"spread over", string(p.Spread)},
	} {
		if l[1] != "" {
			parts = append(parts, l[0]+" "+l[1])
		}
	}
	return strings.Join(parts, "; ")
}

func (c *cli) explainOutput(o *api.FailedOutput) {
	if o == nil {
		return
	}
	fmt.Fprintf(c.stdout, "\nLast output of replica %s on %s, which failed at %s (%s):\n", clean(string(o.Replica)), clean(o.Node), stamp(o.At), clean(first(o.Message, o.Reason)))
	if strings.TrimSpace(o.Text) == "" {
		fmt.Fprintln(c.stdout, "  (it wrote nothing)")
		return
	}
	for _, line := range strings.Split(strings.TrimRight(o.Text, "\n"), "\n") {
		fmt.Fprintf(c.stdout, "  | %s\n", cleanLines(line))
	}
}

func nodesTable(nodes []api.NodeFree) *table {
	t := newTable([]string{"NODE", "SITE", "CPU FREE", "OF", "MEMORY FREE", "OF", "GPUS FREE", "REPLICAS", "OWN", "WHY NOT", "MESSAGE"})
	for _, n := range nodes {
		t.add([]string{
			n.Node, n.Site, fmt.Sprintf("%g", n.Free.CPU), fmt.Sprintf("%g", n.Total.CPU), bytesText(n.Free.Memory), bytesText(n.Total.Memory),
			fmt.Sprint(n.Free.GPUs), fmt.Sprint(n.Replicas), fmt.Sprint(n.Own), n.Why, n.Message,
		})
	}
	return t
}
