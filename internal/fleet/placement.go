package fleet

import "strconv"

// Each visits the objects that a placement refers to, with their places in a spec.
func (p PlacementSpec) Each(do func(key ObjectKey, field string) error) error {
	for i, site := range p.Sites {
		if err := do(ObjectKey{Kind: KindSite, Name: string(site)}, "/placement/sites/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	for i, pool := range p.Pools {
		if err := do(PoolKey(pool), "/placement/pools/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// NoObject is the error for an object that does not exist, or that the caller may not know of. Both read the same,
// so that callers cannot learn another project's names.
func NoObject(key ObjectKey) error {
	return Errorf(NotFound, "%s %s not found", key.Kind, key.Name).At(string(key.Kind)).
		WithHint("holdfast get " + key.Kind.Declared().Plural)
}

// OtherProject is the error for a write of an object that belongs to another project, which is named to callers that may
// know of it.
func OtherProject(key ObjectKey, owner ProjectName, known bool) error { //nolint:revive // whether it is known is the caller's
	if !known {
		return Errorf(Conflict, "%s belongs to another project", key).At("/project").WithHint("choose another name")
	}
	return Errorf(Conflict, "%s belongs to project %s", key, owner).At("/project").
		WithHint("give project " + string(owner) + `: "project" in what is declared, or ?project=` + string(owner) +
			"; the project of an object never changes")
}

// NoPlace is the error for a site, a pool or another object that a spec refers to and that does not exist.
func NoPlace(key ObjectKey, field string) error {
	return Errorf(NotFound, "%s %s not found", key.Kind, key.Name).At(field).
		WithHint("declare it first: PUT /api/v1/" + key.Kind.Declared().Plural + "/" + key.Name)
}

// OtherPlace is the error for a site or pool that deployments of the project may not use.
func OtherPlace(key ObjectKey, field string, project ProjectName) error {
	return Errorf(Invalid, "%s %s is not available to deployments of project %s", key.Kind, key.Name, project).At(field).
		WithHint("use one of the same project, or of project default")
}
