//go:build !mutate

package lease

import "testing"

// hunt begins a test that looks at all worlds.
func hunt(t *testing.T) { t.Helper() }
