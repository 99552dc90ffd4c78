package fleet

// Separation says how a node keeps the commands of one project from those of others. (Isolation is what a node
// in a partition does.)
type Separation string

// By uid, each project's commands run as a user of their own; without any, as the agent's user.
const (
	SeparationUID  Separation = "uid"
	SeparationNone Separation = "none"
)

// Admits says whether a node may run commands of a project at a site of a project: of the site's own always, of
// others only where it keeps them apart.
func (s Separation) Admits(project, site ProjectName) bool {
	return s == SeparationUID || project == site
}

// NoSeparation refuses a command of a project that a node may not run.
func NoSeparation(project ProjectName) *Error {
	return Errorf(IsolationMissing, "isolation_missing: this node runs commands of its site's own project only, not of project %s", project).
		WithHint("run the agent as root without --isolation=none, use a container, or declare a site in project " + string(project))
}
