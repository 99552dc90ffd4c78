package declaration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// counting counts what is asked of a region in sets, and fails from a question on.
type counting struct {
	*memory
	wholes, puts int
	most         int // bytes that were stored at once
	asked        []int
	fail         error
}

func (c *counting) WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	c.wholes++
	c.asked = append(c.asked, len(hashes))
	return c.memory.WholeBodies(ctx, hashes)
}

func (c *counting) PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	c.puts++
	size := 0
	for _, b := range bodies {
		size += len(b)
	}
	c.most = max(c.most, size)
	if c.fail != nil {
		return nil, c.fail
	}
	return c.memory.PutBodies(ctx, project, bodies)
}

// targetOf is an instance as a run of a fleet change finds it.
func targetOf(t *testing.T, m *Maker, body string) fleets.FleetTarget {
	t.Helper()
	i, err := instance(t, m, ofInstance("red", ""), body)
	require.NoError(t, err)
	return fleets.FleetTarget{Instance: "i", Project: "red", Generation: 1, Spec: i.Spec}
}

// kept is a stored document.
func kept(r *memory, text string) *fleet.Content {
	c := compose.ContentOf([]byte(text))
	r.bodies[c.Hash] = []byte(text)
	return &c
}

// N98, N106: a fleet change makes of an instance what a declaration of the changed spec makes.
func TestFleetChanges(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		before, patch, after string
		template             bool // generation 2 of press
	}{
		"a generation":                   {`{"template":"press","templateGeneration":1}`, "", `{"template":"press"}`, true},
		"a generation under overrides":   {`{"template":"press","templateGeneration":1,"overrides":{"v":7}}`, "", `{"template":"press","overrides":{"v":7}}`, true},
		"overrides":                      {`{"template":"press","overrides":{"v":7,"of":null}}`, `{"v":8,"of":null}`, `{"template":"press","overrides":{"v":8}}`, false},
		"new overrides":                  {`{"template":"press"}`, `{"w":8,"nothing":null}`, `{"template":"press","overrides":{"w":8}}`, false},
		"overrides that stay none":       {`{"template":"press"}`, `{"nothing":null}`, `{"template":"press"}`, false},
		"overrides that are taken away":  {`{"template":"press","overrides":{"v":7}}`, `{"v":null}`, `{"template":"press","overrides":{}}`, false},
		"a config":                       {`{"config":{"a":{"x":1},"b":2}}`, `{"a":{"x":null,"y":1.50}}`, `{"config":{"a":{"y":1.5},"b":2}}`, false},
		"a config, and no patch":         {`{"config":{"a":1}}`, "", `{"config":{"a":1}}`, false},
		"a run section, and a patch too": {`{"template":"press","templateGeneration":1,"run":{"command":["x"]}}`, `{"v":3}`, `{"template":"press","overrides":{"v":3},"run":{"command":["x"]}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, m := newMemory()
			r.template("press", "default", `{"v":1,"of":"press"}`)
			r.template("press", "default", `{"v":2,"of":"press"}`)
			var spec fleet.FleetSpec
			if row.template {
				spec.Change.Template, spec.Change.TemplateGeneration = "press", 2
			}
			if row.patch != "" {
				spec.Change.Patch = kept(r, row.patch)
			}
			target := targetOf(t, m, row.before)
			got, err := m.FleetChanges(t.Context(), spec, []fleets.FleetTarget{target, target})
			require.NoError(t, err)
			want, err := instance(t, m, ofInstance("red", ""), row.after)
			require.NoError(t, err)
			for _, c := range got {
				require.NoError(t, c.Refused)
				require.Equal(t, want.Spec, c.Spec)
				require.Equal(t, []any{want.Content, want.RunHash, string(want.RunJSON), int64(1)}, []any{c.Content, c.RunHash, string(c.RunJSON), c.Generation})
				require.Contains(t, r.bodies, c.Content.Hash)
			}
		})
	}
}

// N98: what cannot be changed says so, and holds up no other.
func TestFleetChangesLeaveOut(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	m.Limits.MaxBytes = 60
	r.template("press", "default", `{"v":1}`)
	r.template("oven", "default", `{"v":1}`)
	sum := compose.HashOf([]byte("bytes"))
	r.artifacts["red"], r.bodies[sum] = sum, []byte("bytes")
	good := targetOf(t, m, `{"template":"press"}`)
	back, gone, before, lost := good, good, good, good
	back.Restore = &fleets.FleetRestore{Spec: fleet.InstanceSpec{Template: "oven"}, Content: fleet.Content{Hash: "h"}, RunHash: "r", RunJSON: []byte("{}")}
	gone.Refused = errors.New("it is gone")
	before.Revision = 4
	lost.Spec.TemplateGeneration = 9
	run := func(change fleet.FleetChange, targets ...fleets.FleetTarget) []string {
		out, err := m.FleetChanges(t.Context(), fleet.FleetSpec{Change: change}, targets)
		require.NoError(t, err)
		var all []string
		for _, c := range out {
			says := fmt.Sprintf("%s%s%d", c.Content.Hash[:min(1, len(c.Content.Hash))], c.RunHash, c.Revision)
			if e := new(fleet.Error); errors.As(c.Refused, &e) {
				says = string(e.Kind) + e.Field
			} else if c.Refused != nil {
				says = c.Refused.Error()
			}
			all = append(all, says)
		}
		return all
	}
	letter := string(compose.HashOf([]byte(`{"v":2}`))[:1])
	patch := kept(r, `{"v":2}`)
	require.Equal(t, []string{"hr0", "it is gone", "4", "not_found/templateGeneration", letter + "0", "invalid/artifact"},
		run(fleet.FleetChange{Patch: patch}, back, gone, before, lost, good, targetOf(t, m, fmt.Sprintf(`{"artifact":%q}`, sum))))
	require.Equal(t, []string{"invalid/template", "invalid/template"},
		run(fleet.FleetChange{Template: "press", TemplateGeneration: 1}, targetOf(t, m, `{"template":"oven"}`), targetOf(t, m, `{"config":{}}`)))
	long := kept(r, `{"w":"`+strings.Repeat("x", 60)+`"}`)
	require.Equal(t, []string{"too_large/change/patch", "too_large/change/patch"}, run(fleet.FleetChange{Patch: long}, good, targetOf(t, m, `{"config":{}}`)))
	delete(r.bodies, patch.Hash)
	require.Equal(t, []string{"not_found"}, run(fleet.FleetChange{Patch: patch}, good))
}

// N98, X12: instances are composed in groups, and stored in pieces, each of them as large as a batch at most; what they have in common is
// made once.
func TestFleetChangesInGroups(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	m.Limits, m.Budget = compose.Limits{MaxBytes: 4 << 20}, compose.NewBudget(64<<20)
	c := &counting{memory: r}
	m = m.With(r, c)
	r.template("press", "default", `{"v":1}`)
	fill := strings.Repeat("x", 900_000)
	var targets []fleets.FleetTarget
	for i := range 20 {
		targets = append(targets, fleets.FleetTarget{Project: fleet.ProjectName(fmt.Sprint("p", i%2)), Spec: fleet.InstanceSpec{
			Template: "press", TemplateGeneration: 1, Overrides: kept(r, fmt.Sprintf(`{"n":%d,"fill":%q}`, i, fill)), Run: &fleet.Run{Command: []string{"x"}},
		}})
	}
	out, err := m.FleetChanges(t.Context(), fleet.FleetSpec{}, targets)
	require.NoError(t, err)
	for i, change := range out {
		require.NoError(t, change.Refused)
		require.Contains(t, string(r.bodies[change.Content.Hash]), fmt.Sprintf(`"n":%d,`, i))
		require.Equal(t, i%2 == 0, change.RunHash == out[0].RunHash, "the section names its project")
	}
	require.Equal(t, []int{10, 9, 2}, c.asked, "nine fit into a group, and the first asks for the base too")
	require.LessOrEqual(t, c.most, fleetGroup)
	require.Greater(t, c.puts, 3)

	t.Run("what is larger than a piece of the store is read by itself", func(t *testing.T) {
		big := kept(r, fmt.Sprintf(`{"fill":%q}`, strings.Repeat("x", postgres.ChunkSize)))
		exact := kept(r, fmt.Sprintf(`{"f":%q}`, strings.Repeat("x", postgres.ChunkSize-len(`{"f":""}`))))
		require.EqualValues(t, postgres.ChunkSize, exact.Size)
		c.asked = nil
		two := []fleets.FleetTarget{{Project: "red", Spec: fleet.InstanceSpec{Config: big}}, {Project: "red", Spec: fleet.InstanceSpec{Config: exact}}}
		out, err := m.FleetChanges(t.Context(), fleet.FleetSpec{}, two)
		require.NoError(t, err)
		require.Equal(t, []int{1}, c.asked)
		require.Equal(t, []fleet.Content{*big, *exact}, []fleet.Content{out[0].Content, out[1].Content})
	})

	t.Run("the region fails all of them", func(t *testing.T) {
		c.fail = fleet.Errorf(fleet.Unavailable, "no database")
		_, err := m.FleetChanges(t.Context(), fleet.FleetSpec{}, targets[:1])
		require.ErrorIs(t, err, c.fail)
		_, err = m.FleetChanges(t.Context(), fleet.FleetSpec{}, targets)
		require.ErrorIs(t, err, c.fail)
		c.fail = nil
		_, err = m.With(unavailable{m}, c).FleetChanges(t.Context(), fleet.FleetSpec{}, targets[:1])
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = m.FleetChanges(ctx, fleet.FleetSpec{}, targets[:1])
		require.ErrorContains(t, err, "compose the changes")
	})
	out, err = m.FleetChanges(t.Context(), fleet.FleetSpec{}, nil)
	require.NoError(t, err)
	require.Empty(t, out)
}

// unavailable has no templates for now.
type unavailable struct{ Reads }

func (unavailable) TemplateSpec(context.Context, fleet.TemplateName, int64) (fleet.TemplateSpec, int64, error) {
	return fleet.TemplateSpec{}, 0, fleet.Errorf(fleet.Unavailable, "no database")
}
