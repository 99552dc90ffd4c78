package fleet_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N98
func TestNamesProperty(t *testing.T) {
	t.Parallel()
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hash, id := regexp.MustCompile(`^[0-9a-f]{64}$`), regexp.MustCompile(`^[0-9a-f]{32}$`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`[a-z0-9-]{0,70}`), rapid.StringMatching(`[a-z0-9]{1,63}`), rapid.StringMatching(`[0-9a-f]{32}`),
			rapid.StringMatching(`[0-9a-f]{64}`), rapid.StringMatching(`[0-9a-gA-F]{31,33}`), rapid.StringMatching(`[0-9a-f]{63}[\n g]`), rapid.String(),
		).Draw(t, "s")
		require.Equal(t, label.MatchString(s), fleet.ValidateName("/name", s) == nil, "%q", s)
		require.Equal(t, hash.MatchString(s), fleet.ValidateHash("/hash", fleet.Hash(s)) == nil, "%q", s)
		require.Equal(t, id.MatchString(s), fleet.ValidID(s), "%q", s)
	})
}
