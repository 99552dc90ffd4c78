package fleet

// Separation is how a node isolates the commands of one project from those of others. (Isolation is what a node in
// a partition does.)
type Separation string

// By uid, each project's commands run as a separate user; with none, as the agent's user.
const (
	SeparationUID  Separation = "uid"
	SeparationNone Separation = "none"
)

// Admits reports whether a node may run commands of a project at a site of another: always for the site's own, for
// others only if it isolates them.
func (s Separation) Admits(project, site ProjectName) bool {
	return s == SeparationUID || project == site
}

// NoSeparation is the error for a command of a project that a node may not run.
func NoSeparation(project ProjectName) *Error {
	return Errorf(IsolationMissing, "isolation_missing: this node runs commands of its site's own project only, not of project %s", project).
		WithHint("run the agent as root without --isolation=none, use a container, or declare a site in project " + string(project))
}
