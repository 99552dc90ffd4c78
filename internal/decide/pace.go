package decide

import "time"

// Pace is how fast a policy is applied: how many objects the next page has at most, and how long nothing is done before it.
type Pace struct {
	Objects int
	Pause   time.Duration
}

// The pages of a policy. A small one holds up a write beside it for some milliseconds.
const (
	PolicyPage      = 500
	smallPolicyPage = 25
)

// PolicyPace decides on the next page after one that took some time (M36). Where somebody else wrote meanwhile, pages are small and most
// of the time is theirs; where nobody does, each page is twice as large as the last one, and a tenth of the time is left.
func PolicyPace(last Pace, took time.Duration, written int64) Pace {
	if written > 0 {
		return Pace{smallPolicyPage, 5 * took}
	}
	return Pace{min(2*max(last.Objects, smallPolicyPage), PolicyPage), took / 10}
}
