//go:build race

package lease

// slower is how many beats less are explored under the race detector, which has nothing to
// find in code without goroutines and takes its time.
const slower = 3
