package votefile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// X21: a file that is whole and says what no node can have written gives a lost vote, number by number.
func TestLoadNumbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*State)
		valid  bool
	}{
		"zeros":                 {func(s *State) { s.Claim, s.Known = lease.Claim{}, 0 }, true},
		"a known epoch":         {func(s *State) { s.Known = 3 }, true},
		"a negative known one":  {func(s *State) { s.Known = -1 }, false},
		"a claim's first epoch": {func(s *State) { s.Claim.Epoch = 1 }, true},
		"a negative epoch":      {func(s *State) { s.Claim.Epoch = -1 }, false},
		"a negative counter":    {func(s *State) { s.Claim.Counter = -1 }, false},
		"a negative TTL":        {func(s *State) { s.Record.TTL = -1 }, false},
		"another site":          {func(s *State) { s.Site = "plant-2" }, false},
	} {
		path := filepath.Join(t.TempDir(), Name)
		want := voted
		c.change(&want)
		require.NoError(t, Save(path, want))
		got, err := Load(path, me, Enrolled)
		if c.valid {
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			continue
		}
		require.Equal(t, fleet.Gone, fleet.KindOf(err), name)
		require.Equal(t, State{Site: me.Site, Node: me.Node, Record: lease.Joining()}, got, name)
	}
}

// X21: a file from before there was a bound knows what it promised, and one whose sum is right but whose state is
// none is damaged.
func TestLoadStates(t *testing.T) {
	t.Parallel()
	load := func(state string) (State, error) {
		path := filepath.Join(t.TempDir(), Name)
		raw, err := json.Marshal(file{State: json.RawMessage(state), Sum: sum([]byte(state))})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		return Load(path, me, Enrolled)
	}
	got, err := load(`{"site":"plant-1","node":"plant-1-a","record":{"promised":7},"claim":{"epoch":0}}`)
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Known)
	got, err = load(`{"site":"plant-1","node":"plant-1-a","record":{"promised":7},"claim":{"epoch":0},"known":2}`)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Known)
	_, err = load(`{"site":1}`)
	require.Equal(t, fleet.Gone, fleet.KindOf(err))
}
