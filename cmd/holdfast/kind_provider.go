package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
)

var providerHeader = []string{"ID", "PROVIDER", "IDENTITY", "NAMESPACE", "GROUP", "EXECUTOR", "STATE", "SINCE", "IN FLIGHT", "DRAINS UNTIL", "SERVER"}

func (c *cli) providerItem(p api.Provider) item {
	drains := ""
	if p.Drain != nil {
		drains = fmt.Sprintf("%s (%s)", stamp(p.Drain.Deadline), p.Drain.Waits)
	}
	return item{name: "provider/" + string(p.ID), value: p, cells: []string{
		string(p.ID), p.Provider, p.Identity, p.ModuleNamespace, p.Group, p.Executor, string(p.State), c.ago(p.Since),
		number(int64(p.InFlight)), drains, p.Server[:min(len(p.Server), 8)],
	}}
}

func listProviders(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
	all, next, err := collect(in.limit, func(p api.Page) (api.List[api.Provider], error) { return client.Providers(ctx, p) })
	var items []item
	for _, p := range all {
		items = append(items, c.providerItem(p))
	}
	return items, next, err
}

func oneProvider(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
	p, err := client.Provider(ctx, strings.TrimPrefix(name, "provider/"))
	return c.providerItem(p), err
}

var refusalHeader = []string{"AT", "DOOR", "IDENTITY", "REASON", "WHAT", "BY", "TIMES"}

func listRefusals(ctx context.Context, _ *cli, client *api.Client, in listing) ([]item, string, error) {
	all, next, err := collect(in.limit, func(p api.Page) (api.List[api.Refusal], error) { return client.Refusals(ctx, p) })
	var items []item
	for _, r := range all {
		items = append(items, item{name: "refusal/" + r.Identity, value: r, cells: []string{
			stamp(r.At), r.Door, r.Identity, r.Reason, r.What, cmp.Or(r.By, "region"), number(r.Times),
		}})
	}
	return items, next, err
}

func noRefusal(context.Context, *cli, *api.Client, string) (item, error) {
	return item{}, &usageError{errors.New("refusals have no names: use holdfast get refusals")}
}
