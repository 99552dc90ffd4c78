package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X20, X21: a reset of the site's votes lowers what no vote takes, once per number.
func TestResetEpochs(t *testing.T) {
	t.Parallel()
	const far, to = int64(1) << 61, int64(1004)
	a, ca := body(100, 1)
	epochs := func(t *testing.T, s *Store) (all [3]int64) {
		t.Helper()
		require.NoError(t, s.db.QueryRow(`SELECT m.epoch, i.epoch, s.epoch FROM meta m, instances i, slots s`).Scan(&all[0], &all[1], &all[2]))
		return all
	}
	// poisoned holds one instance under a right at an epoch.
	poisoned := func(t *testing.T, epoch int64) (*Store, string) {
		s, path := setup(t)
		right := Right{fleet.RoleActive, epoch}
		_, _, err := s.Adopt(t.Context(), right, "plant-1-a")
		require.NoError(t, err)
		at := attempt(1, ca)
		at.Right = right
		commit(t, s, at, a)
		require.Equal(t, [3]int64{epoch, epoch, epoch}, epochs(t, s))
		return s, path
	}
	reset := func(t *testing.T, s *Store, number, epoch, from int64) {
		t.Helper()
		got, err := s.ResetEpochs(t.Context(), number, epoch)
		require.NoError(t, err)
		require.Equal(t, from, got)
	}

	t.Run("far ones are lowered, also over a restart", func(t *testing.T) {
		t.Parallel()
		s, path := poisoned(t, far)
		reset(t, s, 2, to, far)
		s = reopen(t, s, path)
		require.Equal(t, [3]int64{to, to, to}, epochs(t, s))
		meta, err := s.Meta(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, meta.Resets)
		_, after, err := s.Adopt(t.Context(), Right{fleet.RoleActive, to + 1}, "plant-1-a")
		require.NoError(t, err)
		require.Equal(t, Right{fleet.RoleActive, to + 1}, after.Right)
		for _, again := range []int64{2, 1} {
			reset(t, s, again, 5, far)
		}
		require.Equal(t, to+1, epochs(t, s)[0], "an older reset, or the same once more, changes nothing")
	})
	t.Run("near ones stay", func(t *testing.T) {
		t.Parallel()
		const near = to + fleet.MaxEpochJump/2
		s, _ := poisoned(t, near)
		reset(t, s, 1, to, near)
		require.Equal(t, [3]int64{near, near, near}, epochs(t, s))
	})
	t.Run("afterwards nobody's word brings a far one back, and the votes may", func(t *testing.T) {
		t.Parallel()
		s, _ := poisoned(t, far)
		late := Right{fleet.RoleStandby, far + 1}
		_, _, err := s.AdoptTold(t.Context(), late, "")
		require.NoError(t, err, "before, the region is believed")
		reset(t, s, 1, to, far+1)
		before, after, err := s.AdoptTold(t.Context(), late, "")
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		require.Equal(t, before, after)
		require.EqualValues(t, to, after.Epoch)
		_, after, err = s.AdoptTold(t.Context(), Right{fleet.RoleActive, to + fleet.MaxEpochJump}, "")
		require.NoError(t, err)
		require.EqualValues(t, to+fleet.MaxEpochJump, after.Epoch)
		_, after, err = s.Adopt(t.Context(), late, "")
		require.NoError(t, err)
		require.Equal(t, late, after.Right)
	})
}

// X13, X21: a signed command is used once, also over a restart, and forgotten when it has expired.
func TestUseCommand(t *testing.T) {
	t.Parallel()
	s, path := setup(t)
	now := time.Unix(1_800_000_000, 0)
	signed := fleet.Signature{Node: "plant-1-a", Expires: now.Add(time.Minute), Value: []byte("signature")}
	use := func(signed fleet.Signature, at time.Time, want bool) {
		t.Helper()
		first, err := s.UseCommand(t.Context(), signed, at)
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	use(signed, now, true)
	use(signed, now, false)
	s = reopen(t, s, path)
	use(signed, signed.Expires.Add(-time.Nanosecond), false)
	other := fleet.Signature{Node: "plant-1-a", Expires: now.Add(2 * time.Minute), Value: []byte("other")}
	use(other, signed.Expires, true)
	var kept int
	require.NoError(t, s.db.QueryRow(`SELECT count(*) FROM used_commands`).Scan(&kept))
	require.Equal(t, 1, kept)
}
