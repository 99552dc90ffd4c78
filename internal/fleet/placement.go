package fleet

import "strconv"

// Each walks the objects that a placement refers to, with their places in a spec.
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

// NoObject says that an object does not exist, or does not exist for the caller: the two read the same, so
// that nobody learns of another project's names.
func NoObject(key ObjectKey) error {
	return Errorf(NotFound, "there is no %s %s", key.Kind, key.Name).At(string(key.Kind)).
		WithHint("holdfast get " + string(key.Kind) + "s")
}

// NoPlace refuses a site or pool that is not there.
func NoPlace(key ObjectKey, field string) error {
	return Errorf(NotFound, "there is no %s %s", key.Kind, key.Name).At(field).
		WithHint("declare it first: PUT /api/v1/" + string(key.Kind) + "s/" + key.Name)
}

// OtherPlace refuses a site or pool that is there, and not for deployments of the project.
func OtherPlace(key ObjectKey, field string, project ProjectName) error {
	return Errorf(Invalid, "%s %s is not for deployments of project %s", key.Kind, key.Name, project).At(field).
		WithHint("name what is of the same project, or of project default")
}
