package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// completionTime is the longest wait for a completion.
const completionTime = 3 * time.Second

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// complete gives a flag its completion. Cobra rejects only a flag that does not exist or already has one, which the
// completion tests would show.
func complete(cmd *cobra.Command, flag string, f completer) {
	_ = cmd.RegisterFlagCompletionFunc(flag, f)
}

func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { return words, noFiles }
}

func operationStates() []string {
	var words []string
	for _, s := range fleet.OperationStates() {
		words = append(words, string(s))
	}
	return words
}

func (c *cli) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := c.loadContexts()
	if err != nil {
		return nil, noFiles
	}
	return slices.Sorted(maps.Keys(file.Contexts)), noFiles
}

// completeObjects offers the names of a kind.
func (c *cli) completeObjects(word string) completer {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return c.namesOf(cmd.Context(), word, listing{}, prefix), noFiles
	}
}

func (c *cli) completeInstances(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.namesOf(cmd.Context(), "instance", siteOf(cmd, prefix), prefix), noFiles
}

func (c *cli) completeOperations(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.namesOf(cmd.Context(), "operation", listing{}, prefix), noFiles
}

func (c *cli) completeWaitable(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ids, _ := c.completeOperations(cmd, args, prefix)
	names, directive := c.completeWriters(cmd, args, prefix)
	return append(names, ids...), directive
}

// prefixedDeployments are deployments as named next to instances.
func (c *cli) prefixedDeployments(ctx context.Context, prefix string) []string {
	if !strings.HasPrefix(prefix, deploymentPrefix) && !strings.HasPrefix(deploymentPrefix, prefix) {
		return nil
	}
	var words []string
	for _, name := range c.namesOf(ctx, "deployment", listing{}, strings.TrimPrefix(prefix, deploymentPrefix[:min(len(prefix), len(deploymentPrefix))])) {
		words = append(words, deploymentPrefix+name)
	}
	return words
}

// completeKindAndNames offers a kind first, then its names.
func (c *cli) completeKindAndNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		word := args[0]
		if word == "config" {
			word = "instance"
		}
		return c.namesOf(cmd.Context(), word, siteOf(cmd, prefix), prefix), noFiles
	}
	var words []string
	for _, k := range c.allKinds() {
		if cmd.Name() != "delete" || k.object != "" || k.name == kindReplica {
			words = append(words, k.name, k.plural)
		}
	}
	if cmd.Name() == "get" {
		words = append(words, "config")
	}
	return words, noFiles
}

func (c *cli) completeTokens(n tokenNoun) completer {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		client, err := c.connect()
		if err != nil {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		list, err := n.list(client, ctx, api.Page{})
		if err != nil {
			return nil, noFiles
		}
		var ids []string
		for _, t := range list.Items {
			ids = append(ids, t.ID)
		}
		return ids, noFiles
	}
}

// completeProviders offers the live connections.
func (c *cli) completeProviders(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	client, err := c.connect()
	if err != nil {
		return nil, noFiles
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	list, err := client.Providers(ctx, api.Page{})
	if err != nil {
		return nil, noFiles
	}
	ids := make([]string, len(list.Items))
	for i, p := range list.Items {
		ids[i] = string(p.ID) + "\t" + p.Provider
	}
	return ids, noFiles
}

// siteOf restricts instances to the site that was given or already typed.
func siteOf(cmd *cobra.Command, prefix string) listing {
	in := listing{}
	if f := cmd.Flags().Lookup("site"); f != nil {
		in.site = f.Value.String()
	}
	if site, _, typed := strings.Cut(prefix, "/"); typed {
		in.site = site
	}
	return in
}

// namesOf lists names for completion; if the region does not answer, it offers none.
func (c *cli) namesOf(ctx context.Context, word string, in listing, prefix string) []string {
	k, err := c.kindOf(word)
	if err != nil {
		return nil
	}
	client, err := c.connect()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	items, _, err := k.list(ctx, c, client, in)
	if err != nil {
		return nil
	}
	var names []string
	for _, it := range items {
		name := strings.TrimPrefix(it.name, k.name+"/")
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}
