package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// kind is a kind of thing that get and describe show.
type kind struct {
	name, plural string
	object       fleet.ObjectKind // "" for what is not declared
	header       []string
	list         func(context.Context, *cli, *api.Client, listing) ([]item, string, error)
	one          func(context.Context, *cli, *api.Client, string) (item, error)
	// narrowed is one of a project, and of the region that created it; nil for what is not declared.
	narrowed func(ctx context.Context, c *cli, client *api.Client, in listing, name string) (item, error)
	describe func(*cli, context.Context, *api.Client, api.Object) error // of a declared object, nil for its status
}

// stays is the error for --region with a kind that is not copied.
func (k kind) stays() error {
	return &usageError{fmt.Errorf("--region: %s stay in their region", k.plural)}
}

// listing restricts a list.
type listing struct {
	site string
	// region is the one that created what is shown; "" is the region itself.
	region string
	// project is that of the named objects; "" for any.
	project string
	limit   int // 0 for all
	// For replicas.
	deployment, node string
	ended            bool
}

// declaredKind is what the command line does for one kind of declared objects. A plain kind needs only its row.
type declaredKind struct {
	fleet.DeclaredKind
	// header and cells are its table; nil shows what every object has.
	header []string
	cells  func(*cli, api.Object) []string
	// describe shows an object below its spec; nil shows its status.
	describe func(*cli, context.Context, *api.Client, api.Object) error
	// check decodes the spec of a manifest and checks what it can without the region; nil takes any object.
	check func(*manifest) error
	// works: a PUT starts work, so it takes a reason and can be staged.
	works bool
}

// declaredKinds adds to the rows of kinds what the command line does for them.
func declaredKinds(rows fleet.KindTable) []declaredKind {
	parts := map[fleet.ObjectKind]declaredKind{
		fleet.KindOrganization: {header: []string{"NAME", "GENERATION", "UPDATED"}, cells: projectCells, check: checkPlain(declare.Organization)},
		fleet.KindService:      {check: checkPlain(declare.Service)},
		fleet.KindProject: {
			header: []string{"NAME", "GENERATION", "UPDATED"}, cells: projectCells, check: (*manifest).checkProject,
		},
		fleet.KindSite: {
			header: []string{"NAME", "PROJECT", "NODES", "ACTIVE", "EPOCH", "LEASE", "ISOLATION", "GENERATION", "UPDATED"},
			cells:  siteCells, check: checkPlain(declare.Site),
		},
		fleet.KindPool:     {header: poolHeader, cells: poolCells, check: checkPlain(declare.Pool)},
		fleet.KindTemplate: {check: (*manifest).checkTemplate},
		fleet.KindInstance: {
			header: instanceHeader, cells: instanceCells, describe: (*cli).describeInstance, check: (*manifest).checkInstance, works: true,
		},
		fleet.KindDeployment: {
			header: deploymentHeader, cells: deploymentCells, describe: (*cli).describeDeployment, check: (*manifest).checkDeployment, works: true,
		},
		fleet.KindRegion: {header: regionHeader, cells: regionCells, check: (*manifest).checkRegion},
		fleet.KindFleet: {
			header: fleetHeader, cells: fleetCells, describe: (*cli).describeFleet, check: (*manifest).checkFleet, works: true,
		},
	}
	all := make([]declaredKind, len(rows))
	for i, row := range rows {
		all[i] = parts[row.Kind]
		all[i].DeclaredKind = row
	}
	return all
}

// allKinds gives every kind that get and describe show.
func (c *cli) allKinds() []kind {
	var all []kind
	for _, k := range c.kinds {
		all = append(all, declared(k))
	}
	return append(all,
		kind{name: "node", plural: "nodes", header: nodeHeader, list: listNodes, one: oneNode},
		kind{name: "module", plural: "modules", header: moduleHeader, list: listModules, one: oneModule},
		kind{name: "operation", plural: "operations", header: operationHeader, list: listOperations, one: oneOperation},
		kind{name: "provider", plural: "providers", header: providerHeader, list: listProviders, one: oneProvider},
		kind{name: kindReplica, plural: "replicas", header: replicaHeader, list: listReplicas, one: oneReplica},
		kind{name: "refusal", plural: "refusals", header: refusalHeader, list: listRefusals, one: noRefusal},
	)
}

// kindOf finds a kind by its name or plural, ignoring case.
func (c *cli) kindOf(word string) (kind, error) {
	all := c.allKinds()
	i := slices.IndexFunc(all, func(k kind) bool {
		return strings.EqualFold(word, k.name) || strings.EqualFold(word, k.plural)
	})
	if i >= 0 {
		return all[i], nil
	}
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.plural
	}
	return kind{}, &usageError{fmt.Errorf("unknown kind %q; use one of %s", word, strings.Join(names, ", "))}
}

// declared is a kind of declared objects; their tables differ only in the cells.
func declared(k declaredKind) kind {
	of := k.Kind
	if k.cells == nil {
		k.header, k.cells = []string{"NAME", "PROJECT", "GENERATION", "UPDATED"}, plainCells
	}
	show := func(c *cli, o api.Object) item {
		key := fleet.ObjectKey{Kind: of, Scope: o.Site, Name: o.Name}
		return item{name: key.String(), value: o, cells: k.cells(c, o)}
	}
	read := func(ctx context.Context, c *cli, client *api.Client, in listing, name string) (item, error) {
		key, err := objectKey(of, name, "")
		if err != nil {
			return item{}, err
		}
		o, _, err := client.ObjectOf(ctx, key, api.Page{Project: in.project, Region: in.region})
		return show(c, o), err
	}
	return kind{
		name: string(of), plural: k.Plural, object: of, header: k.header, describe: k.describe,
		list: func(ctx context.Context, c *cli, client *api.Client, in listing) ([]item, string, error) {
			list := listObjects
			if in.ended && of == fleet.KindDeployment {
				list = listEndedDeployments
			}
			objects, next, err := list(ctx, c, client, of, in)
			var items []item
			for _, o := range objects {
				items = append(items, show(c, o))
			}
			return items, next, err
		},
		one: func(ctx context.Context, c *cli, client *api.Client, name string) (item, error) {
			return read(ctx, c, client, listing{}, name)
		},
		narrowed: read,
	}
}

// listObjects reads all pages; without a site it lists the instances of all sites.
func listObjects(ctx context.Context, c *cli, client *api.Client, of fleet.ObjectKind, in listing) ([]api.Object, string, error) {
	scopes := []string{in.site}
	if of == fleet.KindInstance && in.site == "" {
		sites, _, err := listObjects(ctx, c, client, fleet.KindSite, listing{region: in.region})
		if err != nil {
			return nil, "", err
		}
		scopes = nil
		for _, s := range sites {
			scopes = append(scopes, s.Name)
		}
	}
	var all []api.Object
	for i, scope := range scopes {
		rest := 0
		if in.limit > 0 {
			rest = in.limit - len(all)
		}
		objects, next, err := collect(rest, func(p api.Page) (api.List[api.Object], error) {
			p.Project, p.Region = c.flags.project, in.region
			return client.Objects(ctx, of, scope, p)
		})
		if err != nil {
			return nil, "", err
		}
		all = append(all, objects...)
		if in.limit > 0 && len(all) >= in.limit {
			if next == "" && i < len(scopes)-1 {
				next = scopes[i+1]
			}
			return all, next, nil
		}
	}
	return all, "", nil
}

// maxPage is the largest page of the region.
const maxPage = 1000

// collect reads pages up to a limit; 0 means all.
func collect[T any](limit int, page func(api.Page) (api.List[T], error)) ([]T, string, error) {
	var all []T
	next := ""
	for {
		p := api.Page{Cursor: next, Limit: maxPage}
		if limit > 0 {
			p.Limit = min(limit-len(all), maxPage)
		}
		list, err := page(p)
		if err != nil {
			return nil, "", err
		}
		all, next = append(all, list.Items...), list.Next
		if limit > 0 && len(all) > limit { // a region that ignores the limit
			all = all[:limit]
		}
		if next == "" || (limit > 0 && len(all) >= limit) {
			return all, next, nil
		}
	}
}

func projectCells(c *cli, o api.Object) []string {
	return []string{o.Name, number(o.Generation), c.ago(o.UpdatedAt)}
}

func plainCells(c *cli, o api.Object) []string {
	return []string{o.Name, o.Project, number(o.Generation), c.ago(o.UpdatedAt)}
}

func siteCells(c *cli, o api.Object) []string {
	var spec fleet.SiteSpec
	nodes := []string{}
	if json.Unmarshal(o.Spec, &spec) == nil { // a newer shape shows no nodes, json shows all
		for _, n := range spec.Nodes {
			nodes = append(nodes, fmt.Sprintf("%s(%s)", n.Name, n.Role))
		}
	}
	var status api.SiteStatus
	_ = json.Unmarshal(o.Status, &status) // likewise
	return []string{
		o.Name, o.Project, strings.Join(nodes, ","), status.Holder, number(status.Epoch), c.leaseText(status),
		string(status.OnIsolation), number(o.Generation), c.ago(o.UpdatedAt),
	}
}

// leaseText is the state of a site's lease, and since when.
func (c *cli) leaseText(s api.SiteStatus) string {
	text := "held"
	switch {
	case s.Holder == "":
		return ""
	case s.Lost:
		text = "vote lost"
	case s.Released:
		text = "released"
	case s.Target != "":
		text = "waiting for " + s.Target
	case !s.Voted:
		text = "declared"
	}
	if s.Since == nil {
		return text
	}
	return text + " " + c.ago(*s.Since)
}

func labelsText(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	return strings.Join(pairs, ",")
}
