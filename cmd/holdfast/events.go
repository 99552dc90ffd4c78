package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

var eventHeader = []string{"ID", "AT", "TYPE", "KIND", "NAME", "GENERATION", "ACTOR", "CHANGE"}

func eventItem(e api.Event) item {
	name := e.Name
	if e.Site != "" {
		name = e.Site + "/" + e.Name
	}
	return item{name: "event/" + e.ID, value: e, cells: []string{
		e.ID, stamp(e.At), e.Type, e.Kind, name, number(e.Generation), e.Actor, leaseChange(e),
	}}
}

// leaseChange describes how a site's lease moved; "" for any other event.
func leaseChange(e api.Event) string {
	var before, after fleet.LeaseState
	if e.Type != "status" || e.Kind != string(fleet.KindSite) || json.Unmarshal(e.Before, &before) != nil ||
		json.Unmarshal(e.After, &after) != nil || after.Holder == "" {
		return ""
	}
	switch {
	case after.Released:
		return fmt.Sprintf("holder %s released, epoch %d", after.Holder, after.Epoch)
	case before.Holder == after.Holder:
		return fmt.Sprintf("holder %s again, epoch %d", after.Holder, after.Epoch)
	}
	return fmt.Sprintf("holder moved from %s to %s, epoch %d", before.Holder, after.Holder, after.Epoch)
}

func (c *cli) newEventsCommand() *cobra.Command {
	var w watchFlags
	var after string
	cmd := &cobra.Command{
		Use: "events", Short: "Show committed changes, newest first; with --watch as they happen", Args: cobra.NoArgs,
	}
	w.add(cmd, 50)
	cmd.Flags().StringVar(&after, "after", "", "with --watch: start after this event, so that none is missed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := c.connect()
		if err != nil {
			return err
		}
		if w.watch {
			return c.watchEvents(cmd.Context(), client, after)
		}
		events, next, err := collect(w.limit, func(p api.Page) (api.List[api.Event], error) {
			p.Project = c.flags.project
			return client.Events(cmd.Context(), p)
		})
		if err != nil {
			return err
		}
		v := view{header: eventHeader, next: next}
		for _, e := range events {
			v.items = append(v.items, eventItem(e))
		}
		return c.print(v)
	}
	return cmd
}

// watchEvents prints changes as they happen, and reconnects when the region restarts.
func (c *cli) watchEvents(ctx context.Context, client *api.Client, after string) error {
	under, last, heard := &columns{}, after, c.now()
	for {
		from := api.EventQuery{After: last, Project: c.flags.project, Placed: func(id string) { last = id }}
		err := client.WatchEvents(ctx, from, func(e api.Event) error {
			heard = c.now()
			return c.printChanges(under, view{header: eventHeader, items: []item{eventItem(e)}})
		})
		if ctx.Err() != nil || exitCodeOf(err) != exitUnreachable || c.now().Sub(heard) > patience {
			return endOfWatch(ctx, err)
		}
		if err := pause.For(ctx, c.poll); err != nil {
			return endOfWatch(ctx, err)
		}
	}
}
