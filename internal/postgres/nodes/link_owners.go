package nodes

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// pairName is who registers: a provider of an identity.
type pairName struct{ identity, provider string }

func pairOf(r fleet.Registration) pairName { return pairName{r.Identity, string(r.Provider)} }

// liveBeside is what lives beside registrations, as it becomes while one after the other is
// taken.
type liveBeside struct {
	before  map[pairName][]fleet.ConnectionID
	owners  map[fleet.ModuleNamespace][]db.LiveOfNamespacesRow
	gone    map[string]bool                               // replaced by one that was taken
	newcome map[fleet.ModuleNamespace]*fleet.Registration // the first that was taken
}

func readLive(ctx context.Context, q *db.Queries, all []fleet.Registration) (*liveBeside, error) {
	l := &liveBeside{
		before: map[pairName][]fleet.ConnectionID{}, owners: map[fleet.ModuleNamespace][]db.LiveOfNamespacesRow{},
		gone: map[string]bool{}, newcome: map[fleet.ModuleNamespace]*fleet.Registration{},
	}
	var p db.LiveOfProvidersParams
	namespaces := db.LiveOfNamespacesParams{Most: int32(len(all)) + 1} //nolint:gosec // a batch is small
	for _, r := range all {
		p.Identities, p.Providers = append(p.Identities, r.Identity), append(p.Providers, string(r.Provider))
		if r.Namespace != "" && !slices.Contains(namespaces.Namespaces, string(r.Namespace)) {
			namespaces.Namespaces = append(namespaces.Namespaces, string(r.Namespace))
		}
	}
	before, err := q.LiveOfProviders(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, c := range before {
		of := pairName{c.Identity, c.Provider}
		l.before[of] = append(l.before[of], fleet.ConnectionID(c.ID))
	}
	if len(namespaces.Namespaces) == 0 {
		return l, nil
	}
	owners, err := q.LiveOfNamespaces(ctx, namespaces)
	for _, c := range owners {
		of := fleet.ModuleNamespace(c.ModuleNamespace)
		l.owners[of] = append(l.owners[of], c)
	}
	return l, err
}

// take has a registration live from now on; it gives what it takes the place of.
func (l *liveBeside) take(r fleet.Registration) []fleet.ConnectionID {
	before := l.before[pairOf(r)]
	for _, id := range before {
		l.gone[string(id)] = true
	}
	if r.Namespace != "" && l.newcome[r.Namespace] == nil {
		l.newcome[r.Namespace] = &r
	}
	return before
}

// mayOwn refuses a module namespace that another has: it belongs to one provider, or to one
// group whose members offer the same modules (C76, C80).
func (l *liveBeside) mayOwn(ctx context.Context, q *db.Queries, r fleet.Registration) (refused, err error) {
	if owner := l.newcome[r.Namespace]; owner != nil { // which was held against those before
		if refused := sharesNamespace(r, pairOf(*owner), owner.Group); refused != nil {
			return refused, nil
		}
		return sameModules(r, owner.Modules), nil
	}
	for _, owner := range l.owners[r.Namespace] {
		by := pairName{owner.Identity, owner.Provider}
		if by == pairOf(r) || l.gone[owner.ID] {
			continue
		}
		if refused := sharesNamespace(r, by, fleet.GroupID(owner.GroupID)); refused != nil {
			return refused, nil
		}
		rows, err := q.ModulesOfConnection(ctx, owner.ID)
		if err != nil {
			return nil, err
		}
		var modules []fleet.ModuleOffer
		for _, m := range rows {
			modules = append(modules, fleet.ModuleOffer{Name: fleet.ModuleName(m.Name), InputSchema: m.InputSchema, OutputSchema: m.OutputSchema})
		}
		return sameModules(r, modules), nil
	}
	return nil, nil
}

func sharesNamespace(r fleet.Registration, owner pairName, group fleet.GroupID) error {
	if r.Group != "" && r.Group == group {
		return nil
	}
	by := "provider " + owner.provider + " of " + owner.identity
	if group != "" {
		by = "group " + string(group)
	}
	return fleet.Errorf(fleet.Conflict, "module namespace %s belongs to %s", r.Namespace, by).At("moduleNamespace").
		WithHint("it is released when its last connection ends")
}

func sameModules(r fleet.Registration, others []fleet.ModuleOffer) error {
	same := slices.EqualFunc(sortedOffers(r.Modules), sortedOffers(others), func(a, b fleet.ModuleOffer) bool {
		return a.Name == b.Name && fleet.CompatibleSchemas(a.InputSchema, b.InputSchema) && fleet.CompatibleSchemas(a.OutputSchema, b.OutputSchema)
	})
	if same {
		return nil
	}
	return fleet.Errorf(fleet.Conflict, "group %s offers other modules in %s, or with schemas of other types", r.Group, r.Namespace).At("modules").
		WithHint("all members of a group register the same modules; a new set of modules is a new group")
}

func sortedOffers(all []fleet.ModuleOffer) []fleet.ModuleOffer {
	return slices.SortedFunc(slices.Values(all), func(a, b fleet.ModuleOffer) int { return strings.Compare(string(a.Name), string(b.Name)) })
}
