package decide

// Crowd is how many operations have to wait at one site before the next is delivered
// together with others: below it, a run for each is as fast and easier to follow.
const Crowd = 6

// Crowded says whether what waits at a site is delivered in batches.
func Crowded(waiting int) bool { return waiting >= Crowd }
