package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N98: what a comparison reads is what Instances says, with and without a current revision.
func TestHeldAll(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	none, err := s.HeldAll(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	data, c := body(100, 1)
	disabled := of("disabled", attempt(2, c))
	disabled.Revision.Action, disabled.Revision.Enabled = fleet.ActionDisable, false
	commit(t, s, disabled, data)
	commit(t, s, of("enabled", attempt(3, c)), data)
	commit(t, s, of("gone", deletion(4)), nil)
	require.NoError(t, s.Accept(t.Context(), of("accepted", attempt(5, c))))
	require.NoError(t, s.Accept(t.Context(), of("newer", attempt(6, c))))

	got, err := s.HeldAll(t.Context())
	require.NoError(t, err)
	at := func(n int64) fleet.Version { return fleet.Version{Era: 1, Revision: n} }
	require.Equal(t, []fleet.NodeInstance{
		{Instance: "accepted", Held: fleet.Held{Known: true, HighWater: at(5)}},
		{Instance: "disabled", Held: fleet.Held{Known: true, HighWater: at(2), Revision: disabled.Revision}},
		{Instance: "enabled", Held: fleet.Held{Known: true, HighWater: at(3), Revision: attempt(3, c).Revision}},
		{Instance: "gone", Held: fleet.Held{Known: true, HighWater: at(4), Revision: deletion(4).Revision}},
		{Instance: "newer", Held: fleet.Held{Known: true, HighWater: at(6)}},
	}, got)
}
