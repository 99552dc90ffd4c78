package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
)

// marks are the prefixes of a plan's lines, and their colours on a terminal.
var planMarks = map[string]struct{ mark, colour string }{
	api.PlanCreate: {"+", "32"}, api.PlanChange: {"~", "33"}, api.PlanDelete: {"-", "31"},
	"add": {"+", "32"}, "replace": {"~", "33"}, "remove": {"-", "31"},
}

const refusedColour = "31"

// planPicture writes a plan for people: with colours on a terminal, else as plain lines.
type planPicture struct {
	*cli
	colours bool
}

func (c *cli) showPlan(p api.Plan) error {
	switch c.flags.output {
	case formatJSON, formatYAML:
		return c.printValue(p)
	case formatName:
		for _, o := range p.Objects {
			if o.Problem == nil && o.Action != api.PlanUnchanged {
				fmt.Fprintln(c.stdout, keyOf(o.PlanKey))
			}
		}
		return nil
	case formatTable:
	}
	picture := planPicture{c, c.width(c.stdout) > 0}
	for _, o := range p.Objects {
		picture.object(o)
	}
	for _, k := range p.WouldPrune {
		fmt.Fprintf(c.stdout, "  %s belongs to the set and is not in the files; --prune would delete it\n", keyOf(k))
	}
	fmt.Fprintln(c.stdout, summaryText(p.Summary))
	return nil
}

func (p planPicture) object(o api.PlanObject) {
	switch {
	case o.Problem != nil:
		p.line(0, "!", refusedColour, fmt.Sprintf("%s refused: %s", clean(keyOf(o.PlanKey).String()), clean(problem{Problem: *o.Problem}.kind())))
		return
	case o.Action == api.PlanUnchanged:
		return
	}
	m := planMarks[o.Action]
	text := keyOf(o.PlanKey).String() + " " + o.Action
	if o.Region != "" {
		text += ", created by region " + o.Region
	}
	if o.Generation > 0 {
		text += fmt.Sprintf(", generation %d", o.Generation)
	}
	if o.Hash != "" {
		text += fmt.Sprintf(", config %s of %d bytes", short(o.Hash), o.Size)
	}
	if o.Unreleased {
		text += ", declared but not released yet"
	}
	p.line(0, m.mark, m.colour, clean(text))
	if o.Declared != nil {
		p.difference(1, *o.Declared)
	}
	p.showChanges("    ", o.Changes)
	if o.Rollout != nil {
		fmt.Fprintf(p.stdout, "    %s\n", clean(rolloutText(*o.Rollout)))
	}
	for _, n := range o.Nodes {
		p.nodes(o, n)
	}
}

func (p planPicture) nodes(o api.PlanObject, n api.PlanNodes) {
	if n.Hash == "" && o.Action == api.PlanCreate {
		return
	}
	names := make([]string, len(n.Nodes))
	for i, node := range n.Nodes {
		names[i] = node.Node
		if node.Revision > 0 {
			names[i] += fmt.Sprintf(" (revision %d)", node.Revision)
		}
	}
	said := fmt.Sprintf("hold %s of %d bytes", short(n.Hash), n.Size)
	switch n.Hash {
	case "":
		said = "hold nothing"
	case o.Hash:
		said = "hold this config"
	}
	if len(names) == 1 {
		said = "holds" + strings.TrimPrefix(said, "hold")
	}
	fmt.Fprintf(p.stdout, "    on %s: %s\n", clean(strings.Join(names, ", ")), said)
	p.difference(2, n.Difference)
}

func (p planPicture) difference(indent int, d api.Difference) {
	for _, c := range d.Changes {
		m := planMarks[c.Op]
		text := clean(first(c.Path, "/")) + ":"
		if c.Op != "add" {
			text += " " + valueText(c.From, c.FromBytes)
		}
		if c.Op == "replace" {
			text += " ->"
		}
		if c.Op != "remove" {
			text += " " + valueText(c.To, c.ToBytes)
		}
		p.line(indent, m.mark, m.colour, text)
	}
	if d.More > 0 {
		fmt.Fprintf(p.stdout, "%sand %d more\n", strings.Repeat("    ", indent), d.More)
	}
	if d.Omitted != "" {
		fmt.Fprintf(p.stdout, "%s%s\n", strings.Repeat("    ", indent), clean(d.Omitted))
	}
}

const maxValueText = 200

// valueText truncates values for people; json and yaml have them in full.
func valueText(value []byte, size int) string {
	if value == nil {
		return fmt.Sprintf("(%d bytes)", size)
	}
	text := []rune(clean(string(value)))
	if len(text) > maxValueText {
		return string(text[:maxValueText]) + fmt.Sprintf("… (%d bytes)", len(value))
	}
	return string(text)
}

func (p planPicture) line(indent int, mark, colour, text string) {
	line := strings.Repeat("    ", indent) + mark + " " + text
	if p.colours {
		line = "\x1b[" + colour + "m" + line + "\x1b[0m"
	}
	fmt.Fprintln(p.stdout, line)
}

// rolloutText says what a rollout takes.
func rolloutText(r api.PlanRollout) string {
	how := string(r.Strategy)
	if r.Steps > 0 {
		how += fmt.Sprintf(" in %d steps", r.Steps)
	}
	text := fmt.Sprintf("rollout: %s, replaces %d replicas, up to %d at a time", how, r.Replicas, r.Most)
	if r.Peak != (api.ResourceTotal{}) {
		text += " with " + resourcesText(r.Peak)
	}
	if r.MinHealthyTime > 0 {
		text += fmt.Sprintf(", each proven after %g s", r.MinHealthyTime)
	}
	switch {
	case r.Room == nil || r.Surge == 0:
	case *r.Room >= r.Surge:
		text += fmt.Sprintf("; there is room for the %d above the target", r.Surge)
	default:
		text += fmt.Sprintf("; there is room for %d of the %d above the target: %s", *r.Room, r.Surge, r.Why)
	}
	return text
}
