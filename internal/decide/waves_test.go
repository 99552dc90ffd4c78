package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// members reads "a:3 b:2" as three instances at a and two at b.
func members(text string) []fleet.FleetMember {
	var out []fleet.FleetMember
	for _, field := range strings.Fields(text) {
		site, count, _ := strings.Cut(field, ":")
		var n int
		_, _ = fmt.Sscan(count, &n)
		for i := range n {
			out = append(out, fleet.FleetMember{Site: fleet.SiteName(site), Instance: fleet.InstanceName(fmt.Sprintf("i%06d", i))})
		}
	}
	return out
}

func wave(percent float64, sites ...fleet.SiteName) fleet.FleetWave {
	return fleet.FleetWave{Sites: sites, Percent: percent}
}

// N99
func TestWaves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		waves   []fleet.FleetWave
		members string
		want    []int
		count   int
	}{
		{"none means one", nil, "a:2 b:1", []int{1, 1, 1}, 1},
		{"nobody makes no wave", []fleet.FleetWave{wave(10)}, "", []int{}, 0},
		{"a site by itself, then the rest", []fleet.FleetWave{wave(100, "b")}, "a:2 b:1", []int{2, 2, 1}, 2},
		{"shares add up", []fleet.FleetWave{wave(25), wave(50), wave(100)}, "a:4", []int{1, 2, 3, 3}, 3},
		{"a share is rounded up", []fleet.FleetWave{wave(1), wave(34)}, "a:3", []int{1, 2, 3}, 3},
		{"at least one", []fleet.FleetWave{wave(0.001)}, "a:3", []int{1, 2, 2}, 2},
		{"a share of the wave's sites only", []fleet.FleetWave{wave(50, "b"), wave(100, "b")}, "a:1 b:4", []int{3, 1, 1, 2, 2}, 3},
		{"what an earlier wave took counts", []fleet.FleetWave{wave(50, "a"), wave(50)}, "a:2 b:2", []int{1, 2, 3, 3}, 3},
		{"the same share again is empty", []fleet.FleetWave{wave(50), wave(50), wave(100)}, "a:2", []int{1, 2}, 2},
		{"a site without instances is empty", []fleet.FleetWave{wave(100, "z"), wave(100)}, "a:2", []int{1, 1}, 1},
		{"a site named twice counts once", []fleet.FleetWave{wave(50, "a", "a")}, "a:4", []int{1, 1, 2, 2}, 2},
		{
			"a whole share is not rounded up",
			[]fleet.FleetWave{wave(14.0 / 3 * 3)},
			"a:50",
			append(slices.Repeat([]int{1}, 7), slices.Repeat([]int{2}, 43)...), 2,
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			waves, count := decide.Waves(fleet.FleetSpec{Waves: c.waves}, members(c.members))
			require.Equal(t, c.want, waves)
			require.Equal(t, c.count, count)
		})
	}
}

// N99: every member is in exactly one wave, no wave is empty, and a wave more moves nobody to
// an earlier one.
func TestWavesTakeAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := members(rapid.SampledFrom([]string{"a:1", "a:7 b:3", "a:100 b:1 c:13", "a:997"}).Draw(t, "members"))
		spec := fleet.FleetSpec{Waves: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fleet.FleetWave {
			sites := rapid.SliceOfDistinct(rapid.SampledFrom([]fleet.SiteName{"a", "b", "c", "z"}), rapid.ID[fleet.SiteName]).Draw(t, "sites")
			return wave(rapid.Float64Range(0.01, 100).Draw(t, "percent"), sites...)
		}), 0, 8).Draw(t, "waves")}
		waves, count := decide.Waves(spec, all)
		require.Len(t, waves, len(all))
		for n := 1; n <= count; n++ {
			require.Contains(t, waves, n, "an empty wave")
		}
		for _, n := range waves {
			require.GreaterOrEqual(t, n, 1)
			require.LessOrEqual(t, n, count)
		}
		again, _ := decide.Waves(spec, all)
		require.Equal(t, waves, again)
		if len(spec.Waves) > 0 {
			shorter, _ := decide.Waves(fleet.FleetSpec{Waves: spec.Waves[:len(spec.Waves)-1]}, all)
			for i := range waves {
				require.GreaterOrEqual(t, waves[i], shorter[i])
			}
		}
	})
}

// A share is met, and not by more than one.
func TestFirstWaveIsItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		percent := rapid.Float64Range(0.01, 100).Draw(t, "percent")
		waves, _ := decide.Waves(fleet.FleetSpec{Waves: []fleet.FleetWave{wave(percent)}}, members(fmt.Sprintf("a:%d", n)))
		in := 0
		for _, w := range waves {
			if w == 1 {
				in++
			}
		}
		exact := percent * float64(n) / 100
		require.GreaterOrEqual(t, float64(in), exact-1e-3)
		require.Less(t, float64(in), exact+1)
	})
}
