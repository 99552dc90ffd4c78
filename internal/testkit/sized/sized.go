// Package sized lets tests do less in the README's command and under the race detector than in `task plain`.
package sized

// Many is n with the build tag slow, else a tenth of it.
func Many(n int) int {
	if whole {
		return n
	}
	return n / 10 //nolint:mnd // a tenth
}
