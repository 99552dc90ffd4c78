//go:build race || mutate

package lease

// slower is how many beats less are explored under the race detector, which has nothing to
// find in code without goroutines and takes its time, and when mutants are hunted, of which
// each pays for it.
const slower = 2
