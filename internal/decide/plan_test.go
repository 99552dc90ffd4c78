package decide_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// standing is an instance that was released as it stands, wantsIt the request that declares
// it once more.
func standing(edits ...func(*decide.PlanSeen)) *decide.PlanSeen {
	s := &decide.PlanSeen{
		Project: "default", Labels: map[string]string{"line": "a"}, Generation: 3, Spec: []byte(`{"a":1}`), ReleasedGeneration: 3,
		ReleasedDurability: fleet.DurabilitySync,
		Released: fleet.Revision{
			Version: fleet.Version{Era: 1, Revision: 7}, Action: fleet.ActionDeploy, Enabled: true, RunHash: "run", Content: fleet.Content{Hash: "body"},
		},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func wantsIt(edits ...func(*decide.PlanWanted)) decide.PlanWanted {
	w := decide.PlanWanted{
		Key: fleet.InstanceKey("plant-1", "press-7"), Project: "default", Labels: map[string]string{"line": "a"}, Spec: []byte(`{"a":1}`),
		Deploy: true, Enabled: true, Durability: fleet.DurabilitySync, RunHash: "run", Content: "body",
	}
	for _, edit := range edits {
		edit(&w)
	}
	return w
}

func ofKind(kind fleet.ObjectKind) func(*decide.PlanWanted) {
	return func(w *decide.PlanWanted) { w.Key = fleet.ObjectKey{Kind: kind, Name: "x"} }
}

// N107
func TestPlan(t *testing.T) {
	t.Parallel()
	var (
		gone        = func(s *decide.PlanSeen) { s.Deleting = true }
		older       = func(s *decide.PlanSeen) { s.ReleasedGeneration = 2 }
		never       = func(s *decide.PlanSeen) { s.Released = fleet.Revision{} }
		deleted     = func(s *decide.PlanSeen) { s.Released.Action = fleet.ActionDelete }
		asyncBefore = func(s *decide.PlanSeen) { s.ReleasedDurability = fleet.DurabilityAsync }
		unreadable  = func(s *decide.PlanSeen) { s.Spec = nil }
		another     = func(w *decide.PlanWanted) { w.Spec = []byte(`{"a":2}`) }
		relabelled  = func(w *decide.PlanWanted) { w.Labels = nil }
		declared    = func(w *decide.PlanWanted) { w.Deploy = false }
		disabled    = func(w *decide.PlanWanted) { w.Enabled = false }
		otherRun    = func(w *decide.PlanWanted) { w.RunHash = "other" }
		otherBody   = func(w *decide.PlanWanted) { w.Content = "other" }
		unknownBody = func(w *decide.PlanWanted) { w.Content = "" }
		change      = ofKind(fleet.KindFleet)
		site        = ofKind(fleet.KindSite)
		deployment  = ofKind(fleet.KindDeployment)
	)
	step := func(action decide.PlanAction, flags string) decide.PlanStep {
		return decide.PlanStep{Action: action, Releases: strings.Contains(flags, "releases"), Unreleased: strings.Contains(flags, "unreleased")}
	}
	for _, c := range []struct {
		what string
		now  *decide.PlanSeen
		want decide.PlanWanted
		step decide.PlanStep
	}{
		{"what is not there", nil, wantsIt(), step(decide.PlanCreate, "releases")},
		{"what is not there, only declared", nil, wantsIt(declared), step(decide.PlanCreate, "")},
		{"what is being deleted", standing(gone), wantsIt(), step(decide.PlanCreate, "releases")},
		{"what stands", standing(), wantsIt(), step(decide.PlanUnchanged, "")},
		{"what stands, of a template", standing(), wantsIt(unknownBody), step(decide.PlanUnchanged, "")},
		{"another spec", standing(), wantsIt(another), step(decide.PlanChange, "releases")},
		{"another spec, only declared", standing(), wantsIt(another, declared), step(decide.PlanChange, "")},
		{"other labels", standing(), wantsIt(relabelled), step(decide.PlanChange, "")},
		{"a spec that cannot be read", standing(unreadable), wantsIt(), step(decide.PlanChange, "releases")},
		{"what was never released", standing(never), wantsIt(), step(decide.PlanChange, "releases, unreleased")},
		{"what was never released, only declared", standing(never), wantsIt(declared), step(decide.PlanUnchanged, "")},
		{"what was released of an older spec", standing(older), wantsIt(), step(decide.PlanChange, "releases, unreleased")},
		{"what was released and deleted since", standing(deleted), wantsIt(), step(decide.PlanChange, "releases, unreleased")},
		{"what was released with another durability", standing(asyncBefore), wantsIt(), step(decide.PlanChange, "releases, unreleased")},
		{"what was released enabled", standing(), wantsIt(disabled), step(decide.PlanChange, "releases, unreleased")},
		{"what was released with another command", standing(), wantsIt(otherRun), step(decide.PlanChange, "releases, unreleased")},
		{"what was released with another body", standing(), wantsIt(otherBody), step(decide.PlanChange, "releases, unreleased")},
		{"other labels of what was never released", standing(never), wantsIt(relabelled), step(decide.PlanChange, "releases")},
		{"a new fleet change", nil, wantsIt(change), step(decide.PlanCreate, "releases")},
		{"a fleet change that stands", standing(never), wantsIt(change), step(decide.PlanUnchanged, "")},
		{"another fleet change", standing(), wantsIt(change, another), step(decide.PlanChange, "releases")},
		{"a fleet change with other labels", standing(), wantsIt(change, relabelled), step(decide.PlanChange, "")},
		{"a new deployment", nil, wantsIt(deployment), step(decide.PlanCreate, "releases")},
		{"a deployment that stands", standing(), wantsIt(deployment, otherBody), step(decide.PlanUnchanged, "")},
		{"a deployment that was never released", standing(never), wantsIt(deployment), step(decide.PlanChange, "releases, unreleased")},
		{"a deployment that was released of an older spec", standing(older), wantsIt(deployment), step(decide.PlanChange, "releases, unreleased")},
		{"another deployment, only declared", standing(), wantsIt(deployment, another, declared), step(decide.PlanChange, "")},
		{"another deployment", standing(), wantsIt(deployment, another), step(decide.PlanChange, "releases")},
		{"a deployment with other labels", standing(), wantsIt(deployment, relabelled), step(decide.PlanChange, "")},
		{"another site", standing(), wantsIt(site, another), step(decide.PlanChange, "")},
		{"a new site", nil, wantsIt(site), step(decide.PlanCreate, "")},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.step, decide.Plan(c.now, c.want))
		})
	}
}

// N107
func TestPlanAllowed(t *testing.T) {
	t.Parallel()
	inSet := func(set string) map[string]string { return map[string]string{fleet.ApplySetLabel: set} }
	red := func(s *decide.PlanSeen) { s.Project = "red" }
	ours := func(s *decide.PlanSeen) { s.Labels = inSet("ours") }
	gone := func(s *decide.PlanSeen) { s.Deleting = true }
	ofSet := func(set string) func(*decide.PlanWanted) { return func(w *decide.PlanWanted) { w.Labels = inSet(set) } }
	for _, c := range []struct {
		what  string
		now   *decide.PlanSeen
		want  decide.PlanWanted
		sees  fleet.ProjectName // beside its own
		field string
		says  string
	}{
		{"what is not there", nil, wantsIt(), "", "", ""},
		{"what is its own", standing(), wantsIt(), "", "", ""},
		{"what is of a project that it may not know of", standing(red), wantsIt(), "", "/project", "belongs to another project"},
		{"what belongs to another project", standing(red), wantsIt(), "red", "/project", "belongs to project red"},
		{"what is of its set", standing(ours), wantsIt(ofSet("ours")), "", "", ""},
		{"what is of another set", standing(ours), wantsIt(ofSet("theirs")), "", "/labels", "belongs to apply set ours"},
		{"what is of a set, without one", standing(ours), wantsIt(), "", "/labels", "belongs to apply set ours"},
		{"what is of no set", standing(), wantsIt(ofSet("ours")), "", "", ""},
		{"what was of another set and is being deleted", standing(ours, gone), wantsIt(), "", "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			err := decide.PlanAllowed(c.now, c.want, func(p fleet.ProjectName) bool { return p == "default" || p == c.sees })
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []any{fleet.Conflict, c.field}, []any{e.Kind, e.Field})
			require.Contains(t, e.Message, c.says)
		})
	}
}

// N107
func TestPlanGeneration(t *testing.T) {
	t.Parallel()
	template := wantsIt(ofKind(fleet.KindTemplate))
	another := template
	another.Spec = []byte(`{"a":2}`)
	require.EqualValues(t, 1, decide.PlanGeneration(nil, template, 0))
	require.EqualValues(t, 6, decide.PlanGeneration(nil, template, 5), "numbers go on over a delete")
	require.EqualValues(t, 3, decide.PlanGeneration(standing(), template, 3))
	require.EqualValues(t, 4, decide.PlanGeneration(standing(), another, 3))
}

// N107
func TestPlanNodes(t *testing.T) {
	t.Parallel()
	nodes := []fleet.SiteNode{{Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		what            string
		standing, ahead map[string]string
		want            int
	}{
		{"that are new", nil, nil, -1},
		{"that are its own", map[string]string{"a": "plant-1", "b": "plant-1"}, nil, -1},
		{"that stand at another site", map[string]string{"b": "plant-2"}, nil, 1},
		{"that a site ahead of it takes", nil, map[string]string{"a": "plant-2"}, 0},
		{"that a site ahead of it takes away", map[string]string{"a": "plant-1"}, map[string]string{"a": "plant-2"}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decide.PlanNodes("plant-1", nodes, c.standing, c.ahead))
		})
	}
}

// N107
func TestByComposition(t *testing.T) {
	t.Parallel()
	order := func(parts map[string][]string, names ...string) (string, []decide.Circle) {
		place, all := map[string]int{}, make([][]string, len(names))
		for i, name := range names {
			place[name], all[i] = i, parts[name]
		}
		at, circles := decide.ByComposition(all, func(name string) (int, bool) { i, found := place[name]; return i, found })
		text := ""
		for _, i := range at {
			text += names[i]
		}
		return text, circles
	}
	t.Run("puts parts first, and leaves the rest as it is", func(t *testing.T) {
		t.Parallel()
		text, circles := order(map[string][]string{"a": {"c", "elsewhere"}, "c": {"d"}}, "a", "b", "c", "d")
		require.Equal(t, "dcab", text)
		require.Empty(t, circles)
	})
	t.Run("names where a circle closes", func(t *testing.T) {
		t.Parallel()
		text, circles := order(map[string][]string{"a": {"b"}, "b": {"d", "a"}, "c": {"c"}}, "a", "b", "c", "d")
		require.Equal(t, "dbac", text)
		require.Equal(t, []decide.Circle{{Template: 1, Part: 1}, {Template: 2, Part: 0}}, circles)
	})
	t.Run("gives each once, behind all of its parts", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(0, 8).Draw(t, "n")
			parts := make([][]string, n)
			for i := range parts {
				parts[i] = rapid.SliceOfN(rapid.StringMatching(`[a-j]`), 0, 3).Draw(t, "parts")
			}
			find := func(name string) (int, bool) { i := int(name[0] - 'a'); return i, i < n }
			at, circles := decide.ByComposition(parts, find)
			place := map[int]int{}
			for i, o := range at {
				place[o] = i
			}
			require.Len(t, place, n)
			require.Len(t, at, n)
			for o := range parts {
				for _, name := range parts[o] {
					if i, found := find(name); found && len(circles) == 0 {
						require.Less(t, place[i], place[o])
					}
				}
			}
		})
	})
}
