package decide

// Course is what becomes of a staged revision that no attempt is working on.
type Course string

// A staged revision becomes current, waits for its start or for the next attempt, or ends, and the current revision runs again.
const (
	CourseForward Course = "forward"
	CourseWait    Course = "wait"
	CourseBack    Course = "back"
)

// StagedSeen is what a node finds of a staged revision.
type StagedSeen struct {
	InForce    bool // the right that it was staged under is in force
	Process    bool // it needs a process
	Superseded bool // the node has accepted a newer revision
	Runs       bool // its process runs, and the lease was never lost
	Starting   bool // its start has no result yet
	Closed     bool // the region has closed its delivery
	Late       bool // and the next attempt is overdue
}

var stagedRules = []struct {
	name string
	when func(StagedSeen) bool
	then Course
}{
	{"nothing_to_start", func(s StagedSeen) bool { return s.InForce && !s.Process }, CourseForward},
	{"not_running", func(s StagedSeen) bool { return !s.Process || !s.Runs }, CourseBack},
	{"superseded", func(s StagedSeen) bool { return s.Superseded }, CourseBack},
	{"not_claimed", func(s StagedSeen) bool { return s.Closed && s.Late }, CourseBack},
	{"closed", func(s StagedSeen) bool { return s.Closed }, CourseWait},
	{"starting", func(s StagedSeen) bool { return s.Starting }, CourseWait},
	{"started", func(StagedSeen) bool { return true }, CourseForward},
}

// Staged decides about a staged revision whose attempt was cut off, by the first rule that matches. A start that goes on is not
// repeated (X13); it ends once nobody has claimed it, or something newer was accepted (N50).
func Staged(s StagedSeen) (rule string, then Course) {
	for _, r := range stagedRules {
		if r.when(s) {
			return r.name, r.then
		}
	}
	return "unmatched", CourseBack
}
