package decide

// Crowd is how many operations must wait at one site before they are delivered in batches. Below it, one run each
// is as fast and easier to follow.
const Crowd = 6

// Crowded reports whether the operations waiting at a site are delivered in batches.
func Crowded(waiting int) bool { return waiting >= Crowd }
