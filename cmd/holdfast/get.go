package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (c *cli) newGetCommand() *cobra.Command {
	var in listing
	var w watchFlags
	cmd := &cobra.Command{
		Use: "get KIND [NAME...]", Short: "Show objects, nodes and operations", Args: cobra.MinimumNArgs(1),
		Long: "Show projects, sites, pools, templates, instances, deployments, replicas, fleets, nodes, modules or\noperations: all of them, or the named ones.\n\n" +
			"\"get config SITE/NAME\" writes the exact bytes of an instance's config to stdout;\n" +
			"with a viewer's token, marked secrets read \"<redacted>\".",
		Example: "  holdfast get instances --site plant-1\n  holdfast get instance plant-1/press-7 -o yaml\n" +
			"  holdfast get config plant-1/press-7 > config.json",
		ValidArgsFunction: c.completeKindAndNames,
	}
	c.addSiteFlag(cmd, &in.site)
	c.addReplicaFlags(cmd, &in)
	cmd.Flags().StringVar(&in.region, "region", "", "show the copies of what this region created")
	w.add(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in.project = c.flags.project // not the context's, which is for lists and declarations
		if args[0] == "config" {
			return c.getConfig(cmd.Context(), args[1:], in.site)
		}
		k, err := c.kindOf(args[0])
		if err != nil {
			return err
		}
		names, err := qualified(k, args[1:], in.site)
		if err != nil {
			return err
		}
		client, err := c.connect()
		if err != nil {
			return err
		}
		in.limit = w.limit
		return c.show(cmd.Context(), w, func(ctx context.Context) (view, error) {
			return c.fetch(ctx, client, fetching{k, names, in})
		})
	}
	return cmd
}

// fetching are the arguments and flags of get.
type fetching struct {
	kind
	names []string
	in    listing
}

func (c *cli) fetch(ctx context.Context, client *api.Client, f fetching) (view, error) {
	v := view{header: f.header, single: len(f.names) == 1}
	if f.in.region != "" && f.narrowed == nil {
		return v, f.stays()
	}
	if len(f.names) == 0 {
		var err error
		v.items, v.next, err = f.list(ctx, c, client, f.in)
		return f.withSynced(v), err
	}
	for _, name := range f.names {
		var it item
		var err error
		if f.narrowed != nil {
			it, err = f.narrowed(ctx, c, client, f.in, name)
		} else {
			it, err = f.one(ctx, c, client, name)
		}
		if err != nil {
			return v, err
		}
		v.items = append(v.items, it)
	}
	return f.withSynced(v), nil
}

// withSynced adds whether copies are what their owners declare, if their kind does not show it.
func (f fetching) withSynced(v view) view {
	if f.in.region == "" || slices.Contains(v.header, headerSynced) {
		return v
	}
	v.header = append(slices.Clone(v.header), headerSynced)
	for i, it := range v.items {
		if o, is := it.value.(api.Object); is {
			v.items[i].cells = append(it.cells, syncedWord(syncedOf(o.Status)))
		}
	}
	return v
}

// qualified adds the site to instances.
func qualified(k kind, names []string, site string) ([]string, error) {
	if k.object != fleet.KindInstance {
		return names, nil
	}
	full := make([]string, len(names))
	for i, name := range names {
		key, err := instanceKey(name, site)
		if err != nil {
			return nil, err
		}
		full[i] = subject(key)
	}
	return full, nil
}

// getConfig writes the exact bytes that the nodes hold, whatever -o is. On a terminal it escapes control
// characters.
func (c *cli) getConfig(ctx context.Context, names []string, site string) error {
	if len(names) != 1 {
		return &usageError{errors.New("give exactly one SITE/NAME to get config")}
	}
	key, err := instanceKey(names[0], site)
	if err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	if _, err := client.Config(ctx, key, c.programs(false)); err != nil {
		return fmt.Errorf("read config of %s: %w", key, err)
	}
	return nil
}
