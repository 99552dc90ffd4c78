package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// progress shows the progress of an operation: on a terminal one line per node, redrawn in place; in a pipe a line
// for each relevant change.
type progress struct {
	out   io.Writer
	width int // of the terminal; 0 in a pipe
	now   func() time.Time
	drawn int               // lines to go back over
	shown map[string]string // per node, what was last printed in a pipe
}

// newProgress writes to stdout for people; programs get only the result there.
func (c *cli) newProgress() *progress {
	out := c.stdout
	if c.flags.output != formatTable {
		out = c.stderr
	}
	return &progress{out: out, width: c.width(out), now: c.now, shown: map[string]string{}}
}

func (p *progress) show(op api.Operation) {
	if p.width > 0 {
		p.redraw(op)
		return
	}
	for _, n := range p.nodes(op) {
		said := n.State + n.Reason + n.Message + tenth(n)
		if op.FleetRun != nil {
			said = fleetTenth(*op.FleetRun) + n.State + op.Reason
		}
		if p.shown[n.Node] == said {
			continue
		}
		p.shown[n.Node] = said
		fmt.Fprintf(p.out, "%s: %s, deadline %s\n", operationSubject(op), nodeText(n), stamp(op.Deadline))
	}
}

// redraw returns to the first line of the last picture and draws over it. A wrapped line would break the count, so
// each line is cut to the width.
func (p *progress) redraw(op api.Operation) {
	p.clear()
	left := max(op.Deadline.Sub(p.now()), 0).Round(time.Second)
	for _, n := range p.nodes(op) {
		line := []rune(fmt.Sprintf("%s: %s, deadline in %s", operationSubject(op), nodeText(n), left))
		fmt.Fprintln(p.out, string(line[:min(len(line), p.width-1)]))
		p.drawn++
	}
}

// clear removes the picture, so that the final line takes its place.
func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// nodes are the lines to draw; an operation without a node has one too.
func (p *progress) nodes(op api.Operation) []api.NodeProgress {
	if op.FleetRun != nil {
		return []api.NodeProgress{fleetLine(op)}
	}
	if op.Replicas != nil {
		return []api.NodeProgress{replicasLine(op)}
	}
	if op.Node != "" || op.Deployment != "" || op.Fleet != "" || op.Module != "" || op.Holder != "" || op.Region != "" { // what it waits for
		return []api.NodeProgress{{State: string(op.State), Message: op.Message}}
	}
	if len(op.Progress) == 0 {
		return []api.NodeProgress{{State: string(op.State)}}
	}
	return op.Progress
}

// fleetLine is the line of a fleet change: its counts, and what holds it up.
func fleetLine(op api.Operation) api.NodeProgress {
	line := api.NodeProgress{State: string(op.FleetRun.State), Reason: fleetProgressText(*op.FleetRun)}
	if op.Reason != "" && op.Reason != "delivering" { // otherwise the message repeats the counts
		line.Message = first(op.Message, op.Reason)
	}
	return line
}

// replicasLine is the line of a deployment: how many replicas are healthy, what it waits for, and until when.
func replicasLine(op api.Operation) api.NodeProgress {
	p := op.Replicas
	line := api.NodeProgress{State: string(p.State), Reason: replicasText(p.Replicas), Message: first(p.Awaited, op.Message)}
	if p.Awaited != "" {
		line.Message = "waiting for " + p.Awaited
	}
	if p.Until != nil && p.Awaited != "" {
		line.Message += " until " + stamp(*p.Until)
	}
	return line
}

// tenth makes bytes count as a change only every tenth of the total.
func tenth(n api.NodeProgress) string {
	if n.Total <= 0 {
		return ""
	}
	return number(n.Fetched * 10 / n.Total)
}

// fleetTenth makes counts a change only every tenth of the total, at each wave, and at the first and each tenfold
// failure.
func fleetTenth(p api.FleetProgress) string {
	done := 0
	if p.Counts.Total > 0 {
		done = (p.Counts.Good() + p.Counts.Failed) * 10 / p.Counts.Total
	}
	return fmt.Sprint(p.Run, p.Wave, done, len(fmt.Sprint(p.Counts.Failed)), p.Counts.Failed > 0)
}

// nodeText is the state of one node: name, phase, bytes of total, and what holds it up.
func nodeText(n api.NodeProgress) string {
	parts := []string{clean(n.State)}
	if n.Node != "" {
		parts = []string{fmt.Sprintf("%s (%s) %s", clean(n.Node), clean(string(n.Role)), clean(n.State))}
	}
	if n.Total > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", bytesText(n.Fetched), bytesText(n.Total)))
	}
	for _, why := range []string{n.Reason, n.Message} {
		if why != "" {
			parts = append(parts, clean(why))
		}
	}
	return strings.Join(parts, ", ")
}

// operationSubject names the work in one word or two.
func operationSubject(op api.Operation) string {
	if op.Kind == string(fleet.OperationFailover) {
		return "failover " + op.Site + " to " + op.Node
	}
	if op.Node != "" {
		return op.Kind + " node/" + op.Node
	}
	if op.Deployment != "" {
		return op.Kind + " " + deploymentPrefix + op.Deployment
	}
	if op.Fleet != "" {
		return "fleet " + op.Fleet
	}
	if op.Module != "" {
		return op.Kind + " " + op.Module
	}
	if op.Holder != "" {
		return op.Kind + " " + op.Holder
	}
	if op.Region != "" {
		return op.Kind + " region/" + op.Region
	}
	if op.Instance == "" {
		return op.Kind + " " + first(op.Site, op.ID)
	}
	return op.Kind + " " + op.Site + "/" + op.Instance
}
