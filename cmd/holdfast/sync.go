package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newSyncCommand() *cobra.Command {
	return newGroup("sync", "What this region has of other regions' objects",
		c.newSyncStatusCommand(), c.newSyncNowCommand(), c.newSyncQuarantineCommand(), c.newSyncLostCommand())
}

const syncLong = `Compare what this region has of a peer's objects with the peer, and repair what differs. This also
happens when a server starts, after a place in the peer's stream was of no use, and on a schedule. What the
peer never knew, and removals beyond a tenth of all copies that it has no event of, wait for an operator
("holdfast sync quarantine NAME"), who accepts them with --accept-removals.`

func (c *cli) newSyncNowCommand() *cobra.Command {
	return c.newVerb(verb{
		word: "sync", use: "now NAME...", short: "Compare with peers now", long: syncLong, complete: c.completeObjects("region"),
		example: "  holdfast sync now us",
		keys:    each(func(arg string) (fleet.ObjectKey, error) { return objectKey(fleet.KindRegion, arg, "") }),
		flags: func(cmd *cobra.Command, f *mutationFlags) func(int) (any, error) {
			var in api.RegionSync
			cmd.Flags().BoolVar(&in.AcceptRemovals, "accept-removals", false, "remove copies that the peer never knew, however many")
			f.addAsk(cmd)
			return func(int) (any, error) { return in, nil }
		},
	})
}

const stateFollowing = "following"

// followState is what this region does with the stream of a peer: nothing comes of one that it does not reach.
func followState(s api.RegionStatus) string {
	switch {
	case s.Disabled:
		return "disabled"
	case !s.Reachable:
		return "unreachable"
	}
	return stateFollowing
}

var syncHeader = []string{"REGION", "STATE", "LAG", "COPIES", "QUARANTINED", "COMPARED", "DIFFERED", "WRITTEN", "REMOVED", "LOST", "ENDED"}

// syncItem is a row of a peer; false for this region.
func (c *cli) syncItem(o api.Object) (item, bool) {
	var status api.RegionStatus
	_ = json.Unmarshal(o.Status, &status) // a newer shape shows less, json shows all
	if status.Self {
		return item{}, false
	}
	cells := make([]string, len(syncHeader))
	cells[0], cells[1] = o.Name, "not followed"
	if f := status.Followed; f != nil {
		cells[1], cells[3], cells[4] = followState(status), number(f.Copies), number(f.Quarantined)
		if f.LagSeconds != nil {
			cells[2] = fmt.Sprintf("%.1fs", *f.LagSeconds)
		}
		if s := f.Compared; s != nil {
			if s.StartedAt != nil && s.EndedAt == nil && cells[1] == stateFollowing {
				cells[1] = fmt.Sprintf("comparing %d of %d", s.Done, s.Ranges)
			}
			cells[5], cells[6], cells[7] = number(s.Compared), number(s.Differed), number(s.Written)
			cells[8], cells[9], cells[10] = number(s.Removed), number(s.Lost), c.agoOf(s.EndedAt)
		}
	}
	return item{name: "region/" + o.Name, value: o, cells: cells}, true
}

func (c *cli) newSyncStatusCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show how far this region has what its peers share, and the last comparisons", Args: cobra.NoArgs,
		Example: "  holdfast sync status",
	}
	w.add(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.listed(cmd, w, syncHeader, func(client *api.Client, ctx context.Context, p api.Page) ([]item, string, error) {
			l, err := client.Objects(ctx, api.KindRegion, "", p)
			var items []item
			for _, o := range l.Items {
				if i, is := c.syncItem(o); is {
					items = append(items, i)
				}
			}
			return items, l.Next, err
		})
	}
	return cmd
}

var quarantineHeader = []string{"OBJECT", "VERSION", "REASON", "SINCE"}

func objectNamed(o api.ObjectNamed) string {
	name := o.Kind + "/" + o.Region + "/"
	if o.Site != "" {
		name += o.Site + "/"
	}
	return name + o.Name
}

func (c *cli) newSyncQuarantineCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "quarantine NAME", Short: "List what a peer sent and this region did not take", Args: cobra.ExactArgs(1),
		Example: "  holdfast sync quarantine us", ValidArgsFunction: c.completeObjects("region"),
	}
	w.add(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.listed(cmd, w, quarantineHeader, func(client *api.Client, ctx context.Context, p api.Page) ([]item, string, error) {
			l, err := client.Quarantine(ctx, args[0], p)
			items := make([]item, len(l.Items))
			for i, a := range l.Items {
				items[i] = item{name: "set-aside/" + objectNamed(a.ObjectNamed), value: a, cells: []string{
					objectNamed(a.ObjectNamed), fmt.Sprintf("%d/%d", a.OwnerEpoch, a.Number), a.Reason, c.ago(a.At),
				}}
			}
			return items, l.Next, err
		})
	}
	return cmd
}

var lostHeader = []string{"ID", "OBJECT", "OWNER", "VERSION", "WAS", "REASON", "AT"}

func (c *cli) newSyncLostCommand() *cobra.Command {
	var w watchFlags
	cmd := &cobra.Command{
		Use: "lost", Short: "List states of objects that their owners do not know, and that were replaced", Args: cobra.NoArgs,
		Long: `List states of objects that their owners do not know: after a restore or a claim by force, an owner
continues from an earlier place. Print them with -o yaml, and apply again what is still wanted.`,
		Example: "  holdfast sync lost -o yaml",
	}
	w.add(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.listed(cmd, w, lostHeader, func(client *api.Client, ctx context.Context, p api.Page) ([]item, string, error) {
			l, err := client.LostWrites(ctx, p)
			items := make([]item, len(l.Items))
			for i, w := range l.Items {
				was := "written"
				if w.Object == nil {
					was = "deleted"
				}
				items[i] = item{name: fmt.Sprintf("lost/%d", w.ID), value: w, cells: []string{
					number(w.ID), objectNamed(w.ObjectNamed), w.Owner, fmt.Sprintf("%d/%d", w.OwnerEpoch, w.Number), was, w.Reason, c.ago(w.At),
				}}
			}
			return items, l.Next, err
		})
	}
	return cmd
}

// listed shows a list of which the client gives pages.
func (c *cli) listed(
	cmd *cobra.Command, w watchFlags, header []string, list func(*api.Client, context.Context, api.Page) ([]item, string, error),
) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
		items, next, err := collect(w.limit, func(p api.Page) (api.List[item], error) {
			items, next, err := list(client, ctx, p)
			return api.List[item]{Items: items, Next: next}, err
		})
		return view{header: header, items: items, next: next}, err
	})
}
