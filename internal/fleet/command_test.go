package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N60, X21: a holder is asked to give back the epoch on record, and any while the record may be behind.
func TestHandOverNamesTheEpoch(t *testing.T) {
	t.Parallel()
	seen := fleet.FailoverSeen{To: "plant-1-b", Epoch: 7}
	require.Equal(t, fleet.HandOverCommand{Site: "plant-1", To: "plant-1-b", Epoch: 7}, seen.HandOver("plant-1"))
	seen.Lost = true
	require.Equal(t, fleet.HandOverCommand{Site: "plant-1", To: "plant-1-b"}, seen.HandOver("plant-1"))
}
