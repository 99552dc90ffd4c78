// Package sized has tests do less under the race detector.
package sized

// Many is n, or a tenth of it under the race detector, which makes what is done n times ten times slower and
// sees its races among fewer.
func Many(n int) int {
	if raced {
		return n / 10 //nolint:mnd // a tenth
	}
	return n
}
