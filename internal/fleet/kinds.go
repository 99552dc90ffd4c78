package fleet

import "slices"

// DeclaredKind is what the region, its clients and the CLI know of a kind of declared objects.
type DeclaredKind struct {
	Kind      ObjectKind
	Title     string // as manifests write it: "Pool"
	Plural    string // in paths, commands and texts: "pools"
	NoProject bool   // its objects belong to no project
	OfSite    bool   // its objects belong to a site, which is their scope
	Shared    bool   // owned by the control region of what governs it; else by the region that declares it
	Holder    bool   // may carry a MultiRegionPolicy
}

// KindTable has rows of kinds.
type KindTable []DeclaredKind

// declaredKinds has a row for each kind, in the order of an apply: objects come after those that they refer to.
var declaredKinds = KindTable{
	{Kind: KindOrganization, Title: "Organization", Plural: "organizations", NoProject: true, Shared: true, Holder: true},
	{Kind: KindProject, Title: "Project", Plural: "projects", NoProject: true, Shared: true, Holder: true},
	{Kind: KindService, Title: "Service", Plural: "services", Shared: true, Holder: true},
	{Kind: KindSite, Title: "Site", Plural: "sites"},
	{Kind: KindPool, Title: "Pool", Plural: "pools"},
	{Kind: KindTemplate, Title: "Template", Plural: "templates", Shared: true},
	{Kind: KindInstance, Title: "Instance", Plural: "instances", OfSite: true},
	{Kind: KindDeployment, Title: "Deployment", Plural: "deployments"},
	{Kind: KindRegion, Title: "Region", Plural: "regions"},
	{Kind: KindFleet, Title: "Fleet", Plural: "fleets"},
}

// DeclaredKinds gives a row for each kind, in the order of an apply: objects come after those that they refer to.
func DeclaredKinds() KindTable { return slices.Clone(declaredKinds) }

// Declared gives the row of a kind. An unknown kind, for example of a newer region, has a row without a title.
func (k ObjectKind) Declared() DeclaredKind {
	for i := range declaredKinds {
		if declaredKinds[i].Kind == k {
			return declaredKinds[i]
		}
	}
	return DeclaredKind{Kind: k, Plural: string(k) + "s"}
}

// Titles lists the titles of all kinds for a text: "Project, Site or Pool".
func (k KindTable) Titles() string {
	titles := make([]string, len(k))
	for i, row := range k {
		titles[i] = row.Title
	}
	return OrList(titles)
}

// NewKey makes the key of an object; an object without a scope ignores the site.
func (d DeclaredKind) NewKey(site, name string) ObjectKey {
	key := ObjectKey{Kind: d.Kind, Name: name}
	if d.OfSite {
		key.Scope = site
	}
	return key
}

// Reference is an object that a spec refers to, and the field of the spec that names it.
type Reference struct {
	Key   ObjectKey
	Field string
	// Pinned: to a generation, which stays when the object is deleted.
	Pinned bool
}

// Referrer is a spec that refers to other objects. An object is written only while all of them are declared,
// and none of them is deleted while it refers to them.
type Referrer interface{ References() []Reference }

// ReferencesOf gives what a spec refers to.
func ReferencesOf(spec any) []Reference {
	if r, is := spec.(Referrer); is {
		return r.References()
	}
	return nil
}
