package decide

// RollbackSeen is what a rollback without a revision finds: the stable revision, the newest that was released, and from which one
// the stable one was rolled out, each 0 for none.
type RollbackSeen struct{ Stable, Newest, Before int64 }

// Rollback is the revision to go back to, 0 for none: the stable one while or after another was rolled out and is not DEPLOYED, else
// the one before it (F63).
func Rollback(seen RollbackSeen) int64 {
	if seen.Newest > seen.Stable {
		return seen.Stable
	}
	return seen.Before
}
