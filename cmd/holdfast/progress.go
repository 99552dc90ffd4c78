package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// progress shows how far an operation is: on a terminal one line per node, rewritten in
// place; in a pipe a line for each change worth one.
type progress struct {
	out   io.Writer
	width int // of the terminal; 0 in a pipe
	now   func() time.Time
	drawn int               // lines to go back over
	told  map[string]string // per node, what was last said in a pipe
}

// newProgress shows on stdout what people read; programs find their result there alone.
func (c *cli) newProgress() *progress {
	out := c.stdout
	if c.flags.output != formatTable {
		out = c.stderr
	}
	return &progress{out: out, width: c.width(out), now: c.now, told: map[string]string{}}
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
		if p.told[n.Node] == said {
			continue
		}
		p.told[n.Node] = said
		fmt.Fprintf(p.out, "%s: %s, deadline %s\n", operationSubject(op), nodeText(n), stamp(op.Deadline))
	}
}

// redraw goes back to the first line of the last picture and draws over it. A line that
// wrapped would break the count, so each is cut to the width.
func (p *progress) redraw(op api.Operation) {
	p.clear()
	left := max(op.Deadline.Sub(p.now()), 0).Round(time.Second)
	for _, n := range p.nodes(op) {
		line := []rune(fmt.Sprintf("%s: %s, deadline in %s", operationSubject(op), nodeText(n), left))
		fmt.Fprintln(p.out, string(line[:min(len(line), p.width-1)]))
		p.drawn++
	}
}

// clear removes the picture, so that the final line stands in its place.
func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// nodes gives the lines to draw; an operation that no node has seen yet has one too.
func (p *progress) nodes(op api.Operation) []api.NodeProgress {
	if op.FleetRun != nil {
		return []api.NodeProgress{fleetLine(op)}
	}
	if op.Replicas != nil {
		return []api.NodeProgress{replicasLine(op)}
	}
	if op.Node != "" || op.Deployment != "" || op.Fleet != "" || op.Module != "" { // what it waits for
		return []api.NodeProgress{{State: string(op.State), Message: op.Message}}
	}
	if len(op.Progress) == 0 {
		return []api.NodeProgress{{State: string(op.State)}}
	}
	return op.Progress
}

// fleetLine is the line of a fleet change: its counts, and why it is not further.
func fleetLine(op api.Operation) api.NodeProgress {
	line := api.NodeProgress{State: string(op.FleetRun.State), Reason: fleetProgressText(*op.FleetRun)}
	if op.Reason != "" && op.Reason != "delivering" { // else the message says the counts once more
		line.Message = first(op.Message, op.Reason)
	}
	return line
}

// replicasLine is the line of a deployment: how many replicas are healthy, what is awaited, and
// until when.
func replicasLine(op api.Operation) api.NodeProgress {
	p := op.Replicas
	line := api.NodeProgress{State: string(p.State), Reason: replicasText(p.Replicas), Message: first(p.Awaited, op.Message)}
	if p.Awaited != "" {
		line.Message = "waits for " + p.Awaited
	}
	if p.Until != nil && p.Awaited != "" {
		line.Message += " until " + stamp(*p.Until)
	}
	return line
}

// tenth makes bytes a change only each tenth of the way.
func tenth(n api.NodeProgress) string {
	if n.Total <= 0 {
		return ""
	}
	return number(n.Fetched * 10 / n.Total)
}

// fleetTenth makes counts a change with each tenth of the way, each wave, and the first and
// each tenfold failure.
func fleetTenth(p api.FleetProgress) string {
	done := 0
	if p.Counts.Total > 0 {
		done = (p.Counts.Good() + p.Counts.Failed) * 10 / p.Counts.Total
	}
	return fmt.Sprint(p.Run, p.Wave, done, len(fmt.Sprint(p.Counts.Failed)), p.Counts.Failed > 0)
}

// nodeText says where one node stands: who, phase, bytes of total, why not further.
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
	if op.Instance == "" {
		return op.Kind + " " + first(op.Site, op.ID)
	}
	return op.Kind + " " + op.Site + "/" + op.Instance
}
