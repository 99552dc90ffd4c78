package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
)

const describedDeliveries = 5

func (c *cli) newDescribeCommand() *cobra.Command {
	var site, region string
	cmd := &cobra.Command{
		Use: "describe KIND NAME", Short: "Show everything about one thing, for people", Args: cobra.ExactArgs(2),
		Example:           "  holdfast describe instance plant-1/press-7",
		ValidArgsFunction: c.completeKindAndNames,
	}
	c.addSiteFlag(cmd, &site)
	cmd.Flags().StringVar(&region, "region", "", "describe the copy of what this region created")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := c.kindOf(args[0])
		if err != nil {
			return err
		}
		names, err := qualified(k, args[1:], site)
		if err != nil {
			return err
		}
		in := listing{region: region, project: c.flags.project} // not the context's, which is for lists and declarations
		if region != "" && k.narrowed == nil {
			return k.stays()
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		if k.narrowed != nil && (in.region != "" || in.project != "") {
			return c.describeNarrowed(cmd.Context(), client, k, in, names[0])
		}
		return c.describe(cmd.Context(), client, k, names[0])
	}
	return cmd
}

// describeNarrowed shows an object of a project, or of the region that created it. The state of a copy is known in its own region.
func (c *cli) describeNarrowed(ctx context.Context, client *api.Client, k kind, in listing, name string) error {
	it, err := k.narrowed(ctx, c, client, in, name)
	if err != nil {
		return err
	}
	o, is := it.value.(api.Object)
	switch {
	case is && o.Region == "":
		return c.describe(ctx, client, k, name)
	case is && c.flags.output == formatTable:
		c.describeObject(o, "")
		fmt.Fprintf(c.stdout, "\nStatus:         known in the region that owns it\n")
		return nil
	}
	return c.printOne(k, it)
}

func (c *cli) describe(ctx context.Context, client *api.Client, k kind, name string) error {
	if c.flags.output != formatTable {
		it, err := k.one(ctx, c, client, name)
		if err != nil {
			return err
		}
		return c.printOne(k, it)
	}
	if k.name == string(kindNode) {
		return c.describeNode(ctx, client, name)
	}
	if k.object == "" {
		it, err := k.one(ctx, c, client, name)
		if err != nil {
			return err
		}
		return writeYAML(c.stdout, it.value)
	}
	key, err := objectKey(k.object, name, "")
	if err != nil {
		return err
	}
	o, etag, err := client.Object(ctx, key)
	if err != nil {
		return err
	}
	c.describeObject(o, etag)
	if k.describe != nil {
		return k.describe(c, ctx, client, o)
	}
	return c.section("Status", o.Status)
}

// printOne prints a thing for programs, redacted like the text for people.
func (c *cli) printOne(k kind, it item) error {
	if o, ok := it.value.(api.Object); ok {
		o.Spec = httpapi.RedactSpec(o.Spec)
		it.value = o
	}
	return c.print(single(k.header, it))
}

// describeObject writes what all declared objects have.
func (c *cli) describeObject(o api.Object, etag string) {
	lines := [][2]string{
		{"Kind", o.Kind},
		{"Region", o.Region},
		{"Name", o.Name},
		{"Site", o.Site},
		{"Project", o.Project},
		{"Service", o.Service},
		{"Regions", regionsText(o.Syncing)},
		{"Labels", labelsText(o.Labels)},
		{"UID", o.UID},
		{"Generation", number(o.Generation)},
		{"ETag", etag},
		{"Created", stamp(o.CreatedAt) + " by " + o.CreatedBy},
		{"Updated", stamp(o.UpdatedAt)},
		{"Deleting since", stampOf(o.DeletingSince)},
	}
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(c.stdout, "%-15s %s\n", l[0]+":", clean(l[1]))
		}
	}
	// Redact regardless of the token's role: the output is often shown to other people.
	_ = c.section("Spec", httpapi.RedactSpec(o.Spec)) // JSON is valid YAML; a lost terminal shows below
}

// regionsText lists the regions that share an object, "" if one has it alone.
func regionsText(raw json.RawMessage) string {
	var s fleet.Syncing
	if json.Unmarshal(raw, &s) != nil || len(s.Regions) < 2 {
		return ""
	}
	return strings.Join(s.Regions, ", ") + "; owner " + s.OwningRegion
}

// describeInstance writes its state on each node, and its last deliveries.
func (c *cli) describeInstance(ctx context.Context, client *api.Client, o api.Object) error {
	_, s := instanceOf(o)
	fmt.Fprintf(c.stdout, "\nPhase:          %s (of generation %d)\n", clean(s.Phase), s.ObservedGeneration)
	c.describeSynced(syncedOf(o.Status))
	fmt.Fprintf(c.stdout, "Revision:       %d deployed, %d desired, hash %s\n", s.Revision, s.DesiredRevision, clean(first(string(s.RevisionHash), "none")))
	fmt.Fprintf(c.stdout, "Replicated:     %s\n\nNodes:\n", clean(s.Replicated))
	nodes := newTable([]string{"NODE", "ROLE", "EPOCH", "REVISION", "HASH", "RUNNING", "REASON", "OWED", "OWED REASON"})
	for _, n := range s.Nodes {
		nodes.add([]string{
			n.Node, string(n.Role), number(n.Epoch), number(n.Revision), short(n.RevisionHash), yesNo(n.Running),
			n.Reason, number(n.Owed), n.OwedReason,
		})
	}
	history, err := c.deliveriesView(ctx, client, fleet.InstanceKey(fleet.SiteName(o.Site), fleet.InstanceName(o.Name)), describedDeliveries)
	if err != nil {
		return err
	}
	deliveries := newTable(history.header)
	for _, it := range history.items {
		deliveries.add(it.cells)
	}
	if err := nodes.write(c.stdout); err != nil {
		return err
	}
	if err := conditionsTable(s.Conditions).under(c.stdout, "Conditions"); err != nil {
		return err
	}
	return deliveries.under(c.stdout, "Last deliveries")
}

// under writes a table below a title, or nothing if it is empty.
func (t *table) under(w io.Writer, title string) error {
	if len(t.rows) < 2 {
		return nil
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	return t.write(w)
}

// section writes JSON as indented YAML.
func (c *cli) section(title string, value json.RawMessage) error {
	if len(value) == 0 {
		return nil
	}
	var text bytes.Buffer
	if err := writeYAML(&text, value); err != nil {
		return err
	}
	indented := strings.ReplaceAll(strings.TrimRight(text.String(), "\n"), "\n", "\n  ")
	fmt.Fprintf(c.stdout, "%s:\n  %s\n", title, indented)
	return nil
}
