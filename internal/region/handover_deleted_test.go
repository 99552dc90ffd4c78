//go:build slow

package region

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// M38, X1: a region that has a template of its last owner hears from that one that the next owner deleted it, if the stream of the next
// owner began only after that.
func TestDeletedByTheClaimantAsTheLastOwnerSays(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	h.cut("us", "eu", true)
	h.cut("us", "ap", true)
	_, err := h.request("us", "us", true)
	require.NoError(t, err)
	for _, key := range []fleet.ObjectKey{lineKey, press} {
		h.turn("us claims "+key.String(), func() bool { return h.owner("us", "eu", key) == "us 2" }, "us")
	}
	_, err = h.regions["us"].store.DeleteDeclared(t.Context(), h.write(press))
	require.NoError(t, err)
	h.forgets("ap", "us")
	h.cut("us", "ap", false)
	h.turn("ap knows who owns the project", func() bool { return h.owner("ap", "eu", lineKey) == "us 2" }, "us", "ap")
	require.Equal(t, "eu 1", h.owner("ap", "eu", press))
	h.cut("us", "eu", false)
	h.agree("the template is gone everywhere")
	require.Equal(t, "not_found", h.owner("ap", "eu", press))
	require.Empty(t, h.aside("ap", "eu"))
	require.Zero(t, h.lost("ap")+h.lost("eu"))
}

// M34: so does a last owner that did not create it.
func TestDeletedByTheClaimantAsTheLastOwnerOfACopySays(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	_, err := h.request("eu", "us", false)
	require.NoError(t, err)
	for _, key := range []fleet.ObjectKey{lineKey, press} {
		h.turn("us takes "+key.String()+" over", func() bool { return h.owner("eu", "eu", key) == "us 2" && h.owner("ap", "eu", key) == "us 2" }, "eu", "us", "ap")
	}
	h.cut("ap", "us", true)
	h.cut("ap", "eu", true)
	_, err = h.request("ap", "ap", true)
	require.NoError(t, err)
	for _, key := range []fleet.ObjectKey{lineKey, press} {
		h.turn("ap claims "+key.String(), func() bool { return h.owner("ap", "eu", key) == "ap 3" }, "ap")
	}
	_, err = h.regions["ap"].store.DeleteDeclared(t.Context(), h.write(press))
	require.NoError(t, err)
	h.forgets("eu", "ap")
	h.cut("ap", "eu", false)
	h.turn("eu knows who owns the project", func() bool { return h.owner("eu", "eu", lineKey) == "ap 3" }, "ap", "eu")
	require.Equal(t, "us 2", h.owner("eu", "eu", press))
	h.cut("ap", "us", false)
	h.agree("the template is gone everywhere")
	for _, region := range []fleet.RegionName{"eu", "us", "ap"} {
		require.Equal(t, "not_found", h.owner(region, "eu", press), region)
	}
	require.Zero(t, h.lost("ap")+h.lost("eu")+h.lost("us"))
}

// M34, M42: a region that a cut kept from its hand-over believes the owner of the project, though a policy governs it no more.
func TestPolicyTakenAwayAfterTheHandOver(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("and the template deleted: %t", deleted), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us")
			h.share("eu", line, "eu", "us")
			require.NoError(t, h.template("eu", 1))
			h.agree("the project is shared")
			h.cut("eu", "us", true)
			_, err := h.request("eu", "us", false)
			require.NoError(t, err)
			h.setCut([2]fleet.RegionName{"us", "eu"}, false)
			for _, key := range []fleet.ObjectKey{lineKey, press} {
				h.turn("us claims "+key.String(), func() bool { return h.owner("us", "eu", key) == "us 2" }, "us")
			}
			w := h.write(lineKey)
			w.Region = "eu"
			_, err = h.regions["us"].store.Declare(t.Context(), w, fleet.ProjectSpec{})
			require.NoError(t, err)
			want := "us 2"
			if deleted {
				_, err = h.regions["us"].store.DeleteDeclared(t.Context(), h.write(press))
				require.NoError(t, err)
				want = "not_found"
			}
			h.cut("eu", "us", false)
			h.agree("both have the same")
			require.Equal(t, want, h.owner("eu", "eu", press))
			h.turn("nothing waits", func() bool { return len(h.aside("eu", "us")) == 0 }, "eu", "us")
			require.Zero(t, h.lost("eu"))
		})
	}
}

// M38: what two regions took over one after the other is not lost to the first owner, which a cut kept from the second.
func TestHandedOnTwice(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("and the template deleted: %t", deleted), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us", "ap")
			h.line("eu", "eu", "us", "ap")
			h.agree("the project is shared")
			h.setCut([2]fleet.RegionName{"eu", "us"}, true)
			owns := func(of fleet.RegionName, in ...fleet.RegionName) {
				h.t.Helper()
				h.turn(string(of)+" owns all", func() bool {
					for _, key := range []fleet.ObjectKey{lineKey, press} {
						for _, r := range in {
							if h.owner(r, "eu", key)[:2] != string(of) {
								return false
							}
						}
					}
					return true
				}, "eu", "us", "ap")
			}
			_, err := h.request("eu", "us", false)
			require.NoError(t, err)
			owns("us", "us", "ap")
			require.NoError(t, h.template("us", 2))
			_, err = h.request("us", "ap", false)
			require.NoError(t, err)
			owns("ap", "us", "ap", "eu")
			want := "ap 3"
			if deleted {
				_, err = h.regions["ap"].store.DeleteDeclared(t.Context(), h.write(press))
				require.NoError(t, err)
				want = "not_found"
			}
			h.turn("eu has it as ap does", func() bool { return h.owner("eu", "eu", press) == want }, "eu")
			h.setCut([2]fleet.RegionName{"eu", "us"}, false)
			h.agree("all have the same")
			require.Zero(t, h.lost("eu")+h.lost("us")+h.lost("ap"))
		})
	}
}

// M42: the policy of a service stays where its project, which would govern it then, is not known.
func TestServiceWithoutItsProject(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us")
	h.holder = fleet.ServiceKey("web")
	eu, us := h.regions["eu"].store, h.regions["us"].store
	_, err := eu.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: holding("eu")})
	require.NoError(t, err)
	_, err = eu.Declare(t.Context(), h.write(h.holder), fleet.ServiceSpec{HolderSpec: holding("eu", "us")})
	require.NoError(t, err)
	_, err = h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us owns the service", func() bool { return h.owner("us", "eu", h.holder) == "us 2" && h.owner("eu", "eu", h.holder) == "us 2" }, "eu", "us")
	w := h.write(h.holder)
	w.Region = "eu"
	_, err = us.Declare(t.Context(), w, fleet.ServiceSpec{})
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	require.ErrorContains(t, err, "project/line-a, which would govern it, is not in this region")
	before, err := h.here("us", "eu", h.holder)
	require.NoError(t, err)
	next := before
	next.Spec = json.RawMessage(`{}`)
	refused, errPlan := us.MayDeclare(t.Context(), []postgres.Declaring{{Object: &next, Before: &before}})
	require.NoError(t, errPlan)
	require.ErrorContains(t, refused[0], "is not in this region", "a plan says the same")
	_, err = us.Declare(t.Context(), w, fleet.ServiceSpec{HolderSpec: holding("us")})
	require.NoError(t, err)
}

// M38, X1: a region that has a deletion of which neither its restored owner nor the region that claims the object knows lists it.
func TestThirdRegionListsADeletion(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut: %t", cut), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "ap", "eu", "us")
			h.line("ap", "ap", "eu", "us")
			h.agree("the project is shared")
			h.cut("ap", "eu", true)
			_, err := h.regions["ap"].store.DeleteDeclared(t.Context(), h.write(press))
			require.NoError(t, err)
			h.turn("us has the deletion", func() bool { return h.owner("us", "ap", press) == "not_found" })
			if !cut {
				h.cut("ap", "eu", false)
				h.turn("eu has the deletion", func() bool { return h.owner("eu", "ap", press) == "not_found" })
			}
			h.cut("ap", "us", true)
			h.cut("ap", "eu", true)
			_, err = h.request("eu", "eu", true)
			require.NoError(t, err)
			want := "not_found"
			if cut {
				want = "eu 2"
			}
			h.turn("us follows eu", func() bool { return h.owner("us", "ap", lineKey) == "eu 2" && h.owner("us", "ap", press) == want }, "eu", "us")
			require.Equal(t, cut, h.lost("us") == 1)
			require.Zero(t, h.lost("eu"))
		})
	}
}

// M34, M38: what a claimant deleted waits for nobody in the region that was restored to before it created that.
func TestDeletedBeforeItWasCreatedAgain(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "ap", "eu")
	h.line("ap", "ap", "eu")
	h.agree("the project is shared")
	h.cut("ap", "eu", true)
	_, err := h.request("eu", "eu", true)
	require.NoError(t, err)
	h.turn("eu claims the template", func() bool { return h.owner("eu", "ap", press) == "eu 2" }, "eu")
	_, err = h.regions["eu"].store.DeleteDeclared(t.Context(), h.write(press))
	require.NoError(t, err)
	h.regions["ap"].exec(t, `DELETE FROM objects WHERE kind = 'template'`)
	w := h.write(lineKey)
	w.Region, w.Labels = "ap", map[string]string{"v": "3"}
	_, err = h.regions["eu"].store.Declare(t.Context(), w, fleet.ProjectSpec{HolderSpec: holding("eu", "ap")})
	require.NoError(t, err)
	h.cut("ap", "eu", false)
	h.turn("ap has the write after the deletion", func() bool { o, err := h.here("ap", "ap", lineKey); return err == nil && o.Labels["v"] == "3" }, "ap", "eu")
	require.Empty(t, h.aside("ap", "eu"))
}

// M38, X1: what a region owned is listed when the region that created it was restored to before that, and creates another of the name.
func TestCreatedAgainAfterTheHandOver(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "ap", "eu")
	h.share("ap", line, "ap", "eu")
	h.agree("the project is shared")
	_, err := h.request("ap", "eu", false)
	require.NoError(t, err)
	h.turn("eu owns the project", func() bool { return h.owner("ap", "ap", lineKey) == "eu 2" && h.owner("eu", "ap", lineKey) == "eu 2" }, "ap", "eu")
	h.cut("ap", "eu", true)
	h.regions["ap"].exec(t, `DELETE FROM objects WHERE name = $1`, line)
	_, err = postgres.RaiseEra(t.Context(), h.regions["ap"].url, "ap")
	require.NoError(t, err)
	require.NoError(t, h.regions["ap"].store.ResumeWrites(t.Context(), "ap"))
	h.share("ap", line, "ap", "eu")
	h.cut("ap", "eu", false)
	h.turn("eu has the new one", func() bool { return h.owner("eu", "ap", lineKey)[:2] == "ap" }, "ap", "eu")
	require.Equal(t, 1, h.lost("eu"))
}

// M31, M38: an end that a restore undid keeps nothing away from those that had heard of it.
func TestUndoneEndKeepsNothingAway(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end  func(h *handing, w postgres.Write) error
		lost int
	}{
		"deleted": {func(h *handing, w postgres.Write) error {
			_, err := h.regions["us"].store.DeleteDeclared(h.t.Context(), w)
			return err
		}, 1},
		"removed": {func(h *handing, w postgres.Write) error {
			policy := &fleet.MultiRegionPolicy{EnabledRegions: []string{"eu", "us"}, DefaultControlRegion: "us"}
			_, err := h.regions["us"].store.Declare(h.t.Context(), w, fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: policy}})
			return err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us", "ap")
			h.share("eu", line, "eu", "us", "ap")
			h.agree("the project is shared")
			h.cut("us", "eu", true)
			us := h.regions["us"]
			var last int64
			require.NoError(t, us.raw.QueryRow(t.Context(), `SELECT max(seq) FROM events`).Scan(&last))
			us.exec(t, `CREATE TABLE kept AS SELECT * FROM copies`)
			_, err := h.request("us", "us", true)
			require.NoError(t, err)
			h.turn("us claims the project", func() bool { return h.owner("us", "eu", lineKey) == "us 2" && h.owner("ap", "eu", lineKey) == "us 2" }, "us", "ap")
			w := h.write(lineKey)
			w.Region = "eu"
			require.NoError(t, row.end(h, w))
			h.turn("ap has it no more", func() bool { return h.owner("ap", "eu", lineKey) == "not_found" }, "ap")

			h.cut("us", "ap", true)
			for _, sql := range []string{`DELETE FROM copies`, `INSERT INTO copies SELECT * FROM kept`, `DELETE FROM copy_markers`, `DELETE FROM policy_turns`} {
				us.exec(t, sql)
			}
			us.exec(t, `DELETE FROM events WHERE seq > $1`, last)
			us.exec(t, `SELECT setval('events_seq_seq', $1)`, last)
			_, err = postgres.RaiseEra(t.Context(), us.url, "us")
			require.NoError(t, err)
			h.cut("us", "ap", false)
			h.cut("us", "eu", false)
			h.turn("ap has the project of eu", func() bool { return h.owner("ap", "eu", lineKey) == "eu 1" }, "ap", "us", "eu")
			h.agree("all have it")
			require.Equal(t, row.lost, h.lost("ap"), "a deletion is listed")
		})
	}
}
