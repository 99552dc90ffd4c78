package decide

// RollbackSeen is what a rollback without a revision finds. Each revision is 0 for none.
type RollbackSeen struct {
	// Own is the deployment's own revision, which runs or is to run, Newest the one that was released last.
	Own, Newest int64
	// Stable is the last that ran as it was to, Before the newest such of other content than Own.
	Stable, Before int64
	// RollsOut is set while another revision than Own is rolled out, Waits if Newest waits for a restart, Idle if nothing is to run.
	RollsOut, Waits, Idle bool
}

// RollbackNeedsRevision is the rule of a rollback that would release what runs: Newest was rolled out and is not DEPLOYED.
const RollbackNeedsRevision = "not_deployed"

// Rollback is the revision to go back to, 0 for none, and the rule that says so: the first that matches (F63).
func Rollback(seen RollbackSeen) (to int64, rule string) {
	for _, r := range rollbackRules {
		if r.when(seen) {
			return r.to(seen), r.name
		}
	}
	return 0, ""
}

var rollbackRules = []struct {
	name string
	when func(RollbackSeen) bool
	to   func(RollbackSeen) int64
}{
	{"rolling_out", func(s RollbackSeen) bool { return s.RollsOut }, RollbackSeen.own},
	{"pending_restart", func(s RollbackSeen) bool { return s.Waits }, RollbackSeen.own},
	{RollbackNeedsRevision, func(s RollbackSeen) bool { return s.Newest > s.Own }, func(RollbackSeen) int64 { return 0 }},
	{"unproven", func(s RollbackSeen) bool { return s.Idle && s.Stable > 0 && s.Stable != s.Own }, func(s RollbackSeen) int64 { return s.Stable }},
	{"deployed_before", func(RollbackSeen) bool { return true }, func(s RollbackSeen) int64 { return s.Before }},
}

func (s RollbackSeen) own() int64 { return s.Own }
