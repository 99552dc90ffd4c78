package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/api"
)

var moduleHeader = []string{"NAME", "GROUP", "CALLABLE", "MEMBERS", "DESCRIPTION"}

func moduleItem(m api.Module) item {
	var members []string
	for _, one := range m.Members {
		state := strings.ToLower(string(one.State))
		if one.Draining {
			state = "draining"
		}
		members = append(members, fmt.Sprintf("%s(%s)", one.Provider, state))
	}
	return item{name: "module/" + m.Name, value: m, cells: []string{
		m.Name, m.Group, number(int64(m.Callable)), strings.Join(members, ","), m.Description,
	}}
}

func listModules(ctx context.Context, _ *cli, client *api.Client, in listing) ([]item, string, error) {
	modules, next, err := collect(in.limit, func(p api.Page) (api.List[api.Module], error) { return client.Modules(ctx, "", p) })
	var items []item
	for _, m := range modules {
		items = append(items, moduleItem(m))
	}
	return items, next, err
}

func oneModule(ctx context.Context, _ *cli, client *api.Client, name string) (item, error) {
	m, err := client.Module(ctx, name)
	return item{name: "module/" + name, value: m, cells: moduleItem(m).cells}, err
}
