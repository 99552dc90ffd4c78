//go:build slow

package region

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// cancel asks for the end of a hand-over and does what its entity does then.
func (h *handing) cancel(in fleet.RegionName, id fleet.OperationID) {
	h.t.Helper()
	s := h.regions[in].store
	_, err := s.CancelOperation(h.t.Context(), id)
	require.NoError(h.t, err)
	turn := h.step(in)
	if turn.HandOver == nil {
		return // it was claimed, and this region knows it
	}
	require.True(h.t, turn.HandOver.Cancel)
	to, r, err := s.RenounceOf(h.t.Context(), lineKey)
	require.NoError(h.t, err)
	if err := h.regions[to].store.Renounce(h.t.Context(), in, *r); err != nil {
		require.Equal(h.t, fleet.IllegalState, fleet.KindOf(err), "%v", err)
		return
	}
	require.NoError(h.t, s.TakeBack(h.t.Context(), *r))
	require.NoError(h.t, s.TakeBack(h.t.Context(), *r), "again it changes nothing")
}

// M34: a hand-over that is cancelled before the claim leaves the old owner in a higher epoch, and the renounced one is claimed by nobody;
// after the claim it is too late.
func TestHandOverIsCancelled(t *testing.T) {
	t.Parallel()

	t.Run("before the claim", func(t *testing.T) {
		t.Parallel()
		h := newHanding(t, "eu", "us")
		h.line("eu", "eu", "us")
		h.agree("the project is shared")
		op, err := h.request("eu", "us", false)
		require.NoError(t, err)
		_, err = h.request("eu", "eu", false)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
		h.cancel("eu", op.ID)
		require.Equal(t, fleet.OperationCancelled, h.operation("eu", op.ID).State)
		require.Equal(t, "eu 3", h.owner("eu", "eu", lineKey))
		h.agree("both know that eu has it back")
		require.Equal(t, "eu 3", h.owner("us", "eu", lineKey))
		require.NoError(t, h.template("eu", 2))
		h.agree("eu writes on")

		again, err := h.request("eu", "us", false)
		require.NoError(t, err)
		h.turn("the next hand-over is claimed", func() bool { return h.owner("us", "eu", lineKey) == "us 4" }, "us")
		h.agree("both know")
		h.turn("it ends", func() bool { return h.operation("eu", again.ID).State == fleet.OperationSucceeded }, "eu")
	})

	t.Run("after the claim", func(t *testing.T) {
		t.Parallel()
		h := newHanding(t, "eu", "us")
		h.line("eu", "eu", "us")
		h.agree("the project is shared")
		op, err := h.request("eu", "us", false)
		require.NoError(t, err)
		h.turn("us has the fence", func() bool {
			h.cutOnce("eu", "us", h.fenced("us"))
			return h.owner("us", "eu", lineKey) == "us 2"
		}, "us")
		h.setCut([2]fleet.RegionName{"eu", "us"}, true) // eu does not hear of the claim
		h.cancel("eu", op.ID)
		h.setCut([2]fleet.RegionName{"eu", "us"}, false)
		h.agree("the hand-over succeeds")
		require.Equal(t, "us 2", h.owner("eu", "eu", lineKey))
		h.turn("the operation ends", func() bool { return h.operation("eu", op.ID).State == fleet.OperationSucceeded }, "eu")
	})

	t.Run("after the claim and a deletion", func(t *testing.T) {
		t.Parallel()
		h := newHanding(t, "eu", "us")
		h.share("eu", line, "eu", "us")
		h.agree("the project is shared")
		op, err := h.request("eu", "us", false)
		require.NoError(t, err)
		h.turn("us claims", func() bool {
			h.cutOnce("eu", "us", h.fenced("us"))
			return h.owner("us", "eu", lineKey) == "us 2"
		}, "us")
		h.setCut([2]fleet.RegionName{"eu", "us"}, true)
		_, err = h.regions["us"].store.DeleteDeclared(t.Context(), h.write(lineKey))
		require.NoError(t, err)
		h.cancel("eu", op.ID)
		h.setCut([2]fleet.RegionName{"eu", "us"}, false)
		h.agree("it is gone in both")
		require.Equal(t, "not_found", h.owner("eu", "eu", lineKey))
		require.Zero(t, h.lost("eu")+h.lost("us"))
	})
}

// M34, X1: an epoch that a region renounced is never claimed: neither by its entity, which has all that it waited for and does not hear
// that the hand-over was cancelled, nor by force.
func TestRenouncedEpochIsNeverClaimed(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us")
	h.line("eu", "eu", "us")
	h.agree("the project is shared")
	op, err := h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us has the fence", func() bool { return h.fenced("us") })
	require.True(t, h.step("us").Waits, "it asks for a comparison")
	h.turn("us has compared", func() bool {
		h.compares("us")
		var compared bool
		require.NoError(t, h.regions["us"].raw.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM claim_comparisons c JOIN region_syncs s ON s.peer = c.peer
			WHERE s.pass >= c.wanted AND s.ended_at IS NOT NULL)`).Scan(&compared))
		return compared
	})
	h.cut("eu", "us", true)
	h.cancel("eu", op.ID)
	require.Equal(t, "eu 3", h.owner("eu", "eu", lineKey))
	h.step("us")
	require.Equal(t, "eu 1", h.owner("us", "eu", lineKey), "it renounced epoch 2")
	_, err = h.request("us", "us", true)
	require.NoError(t, err)
	require.Equal(t, "us 3", h.owner("us", "eu", lineKey))
}

// M34, M39: a region that is to own a project, and has not claimed it, does not take a write of it for a new project of that name.
func TestWriteBeforeTheClaim(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us")
	h.line("eu", "eu", "us")
	h.agree("the project is shared")
	_, err := h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us has the fence", func() bool { return h.fenced("us") })
	_, err = h.regions["us"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{})
	require.Equal(t, fleet.Unavailable, fleet.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "has not claimed project/line-a from region eu yet")
}

// fenced reports whether a region has the project with its fence.
func (h *handing) fenced(in fleet.RegionName) bool {
	o, err := h.here(in, "eu", lineKey)
	return err == nil && o.SyncingNow().Fence != nil
}

// cutOnce cuts what one region hears of another when a condition holds.
func (h *handing) cutOnce(self, peer fleet.RegionName, when bool) {
	if when {
		h.setCut([2]fleet.RegionName{self, peer}, true)
	}
}

// M34, M38: a link that is cut at any step delays a hand-over and changes nothing else.
func TestHandOverThroughCuts(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"before the fence", "after the fence", "after the claim", "after the first write"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us", "ap")
			h.line("eu", "eu", "us", "ap")
			h.agree("the project is shared")
			at := func(step string) {
				if step == cut {
					h.cut("eu", "us", true)
				}
			}
			at("before the fence")
			require.NoError(t, h.template("eu", 2), "which us may not have yet")
			op, err := h.request("eu", "us", false)
			require.NoError(t, err)
			at("after the fence")
			if cut == "before the fence" || cut == "after the fence" {
				for range 5 {
					h.step("eu")
					h.step("us")
					<-time.After(20 * time.Millisecond)
				}
				require.NotEqual(t, "us 2", h.owner("eu", "eu", lineKey))
				require.Error(t, h.template("eu", 3))
				h.cut("eu", "us", false)
			}
			h.turn("us claims", func() bool { return h.owner("us", "eu", lineKey) == "us 2" }, "us", "eu")
			at("after the claim")
			o, err := h.here("us", "eu", press)
			require.NoError(t, err)
			require.Equal(t, "2", o.Labels["v"], "us has all that was written before the fence")
			require.NoError(t, h.template("us", 4))
			at("after the first write")
			require.Error(t, h.template("eu", 5))
			h.cut("eu", "us", false)
			h.agree("all have what us wrote")
			require.Equal(t, "us 2", h.owner("ap", "eu", press))
			h.turn("the operation ends", func() bool { return h.operation("eu", op.ID).State == fleet.OperationSucceeded }, "eu")
			for r := range h.regions {
				require.Zero(t, h.lost(r), r)
			}
		})
	}
}

// M38: a region claims a holder without its owner; what the owner wrote meanwhile is listed when it returns, and replaced.
func TestForcedHandOver(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	_, err := h.request("us", "us", false)
	refusedBy(t, "eu", err)
	_, err = h.request("eu", "us", true)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	require.ErrorContains(t, err, "/force")

	h.cut("eu", "us", true)
	h.cut("eu", "ap", true)
	require.NoError(t, h.template("eu", 2), "which nobody has")
	require.NoError(t, h.templateAs("eu", h.write(fleet.TemplateKey("unseen")), `{}`))
	op, err := h.request("us", "us", true)
	require.NoError(t, err)
	require.Equal(t, "us 2", h.owner("us", "eu", lineKey))
	o, err := h.here("us", "eu", lineKey)
	require.NoError(t, err)
	require.Equal(t, fleet.RegionName("eu"), o.SyncingNow().TookOver.Region, "it states its position")
	require.NoError(t, h.template("us", 3))
	h.turn("the claim ends", func() bool { return h.operation("us", op.ID).State == fleet.OperationSucceeded }, "us")
	h.turn("ap accepts the claim", func() bool { return h.owner("ap", "eu", press) == "us 2" }, "ap")
	require.NoError(t, h.template("eu", 4), "eu does not know it yet")

	h.cut("eu", "us", false)
	h.cut("eu", "ap", false)
	h.turn("what us never had is not lost: it is taken over", func() bool {
		return h.owner("us", "eu", fleet.TemplateKey("unseen")) == "us 2"
	}, "us", "eu")
	h.agree("eu fences itself")
	require.Equal(t, "us 2", h.owner("eu", "eu", lineKey))
	refusedBy(t, "us", h.template("eu", 5))
	require.Equal(t, 1, h.lost("eu"), "the template")
}

// M38: a write that the new owner never had is listed also where it deletes the object at once; what it had is not.
func TestForcedHandOverDeletes(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	seen := fleet.TemplateKey("seen")
	require.NoError(t, h.templateAs("eu", h.write(seen), `{}`))
	h.agree("the project is shared")
	h.cut("eu", "us", true)
	h.cut("eu", "ap", true)
	require.NoError(t, h.template("eu", 2), "which nobody has")
	_, err := h.request("us", "us", true)
	require.NoError(t, err)
	for _, key := range []fleet.ObjectKey{press, seen} {
		_, err = h.regions["us"].store.DeleteDeclared(t.Context(), h.write(key))
		require.NoError(t, err)
	}
	h.cut("eu", "us", false)
	h.cut("eu", "ap", false)
	h.agree("eu deletes what it created")
	require.Equal(t, "not_found", h.owner("eu", "eu", press))
	require.Equal(t, 1, h.lost("eu"), "the write that us never had")
}

// M38: of two regions that claim at once, the one with the higher name owns the holder in the end, and all agree.
func TestRivalClaims(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	for _, link := range [][2]fleet.RegionName{{"eu", "us"}, {"eu", "ap"}, {"us", "ap"}} {
		h.cut(link[0], link[1], true)
	}
	for i, r := range []fleet.RegionName{"us", "ap"} {
		_, err := h.request(r, r, true)
		require.NoError(t, err)
		require.NoError(t, h.template(r, 10+i))
	}
	for _, link := range [][2]fleet.RegionName{{"us", "ap"}, {"eu", "ap"}, {"eu", "us"}} {
		h.cut(link[0], link[1], false)
	}
	h.agree("all agree")
	for _, r := range []fleet.RegionName{"eu", "us", "ap"} {
		require.Equal(t, "us 2", h.owner(r, "eu", lineKey), r)
		require.Equal(t, "us 2", h.owner(r, "eu", press), r)
	}
	require.Positive(t, h.rivals.Load(), "the metric counts them")
	require.Equal(t, 1, h.lost("ap"), "what ap wrote")
	require.Zero(t, h.lost("us"))
	require.NoError(t, h.template("us", 20))
	h.agree("us writes on")
}

// M38: a comparison that finds the claims of two regions counts them too.
func TestRivalClaimsCompared(t *testing.T) {
	t.Parallel()
	h, _ := newMembers(t, "eu", "us", "ap")
	h.share("eu", line, "eu", "us", "ap")
	ctx, cancel := context.WithCancel(t.Context())
	wait := h.follow(ctx)
	h.settle("the project is shared")
	h.current("us", "eu", "ap")
	h.current("ap", "eu", "us")
	cancel()
	wait()
	for _, r := range []fleet.RegionName{"us", "ap"} {
		_, err := h.request(r, r, true)
		require.NoError(t, err)
	}
	require.Zero(t, h.rivals.Load())
	for i, link := range [][2]fleet.RegionName{{"us", "ap"}, {"ap", "us"}} {
		h.ask(link[0], link[1], false)
		h.compare(questions{mesh: h.mesh, self: link[0]}, link[1])
		require.Equal(t, int64(1+i), h.rivals.Load(), link)
	}
	require.Equal(t, "us 2", h.owner("ap", "eu", lineKey))
}

// M27, M31, M34: the new owner deletes what the old one created, and creates what is shared; nothing comes back.
func TestNewOwnerDeletesAndCreates(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	_, err := h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us claims", func() bool { return h.owner("us", "eu", lineKey) == "us 2" }, "us")
	us := h.regions["us"].store
	_, err = us.DeleteDeclared(t.Context(), h.write(press))
	require.NoError(t, err)
	require.NoError(t, h.templateAs("us", h.write(fleet.TemplateKey("made-in-us")), `{}`))
	h.agree("the template is gone everywhere")
	require.Equal(t, "not_found", h.owner("eu", "eu", press))
	require.Equal(t, "us 1", h.owner("ap", "us", fleet.TemplateKey("made-in-us")))

	_, err = h.request("us", "eu", false)
	require.NoError(t, err)
	h.turn("eu claims it again", func() bool { return h.owner("eu", "eu", lineKey) == "eu 3" }, "eu")
	h.agree("what us made goes to eu too")
	require.Equal(t, "eu 3", h.owner("us", "us", fleet.TemplateKey("made-in-us")))
	eu := h.regions["eu"].store
	_, err = eu.DeleteDeclared(t.Context(), h.write(fleet.TemplateKey("made-in-us")))
	require.NoError(t, err)
	h.agree("eu deletes what us made")
	_, err = eu.DeleteDeclared(t.Context(), h.write(lineKey))
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "the pool belongs to it")

	require.NoError(t, h.templateAs("eu", h.write(press), `{}`))
	h.agree("the region that created a template creates one of its name again")
	require.Equal(t, "eu 3", h.owner("ap", "eu", press))
	_, err = eu.DeleteDeclared(t.Context(), h.write(press))
	require.NoError(t, err)
	h.agree("it is gone again")
	require.NoError(t, h.templateAs("eu", h.write(press), `{}`))
	h.agree("and there again")
	require.Equal(t, "eu 4", h.owner("ap", "eu", press))
}

// M19, M38: a region that hears of a new owner only when that has dropped it loses what the project governed too, and a template that
// it created itself is the new owner's.
func TestNewOwnerDropsARegion(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	made := fleet.TemplateKey("made-in-ap")
	_, err := h.request("eu", "ap", false)
	require.NoError(t, err)
	h.turn("ap claims", func() bool { return h.owner("ap", "eu", lineKey) == "ap 2" }, "ap")
	require.NoError(t, h.templateAs("ap", h.write(made), `{}`))
	h.agree("ap made a template")
	_, err = h.request("ap", "eu", false)
	require.NoError(t, err)
	h.turn("eu claims it again", func() bool { return h.owner("eu", "eu", lineKey) == "eu 3" }, "eu")
	h.agree("what ap made is eu's")

	h.cut("ap", "us", true)
	_, err = h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us claims", func() bool { return h.owner("us", "eu", lineKey) == "us 4" }, "us")
	h.turn("and owns what is under it", func() bool { return h.owner("us", "eu", press) == "us 4" && h.owner("us", "ap", made) == "us 4" }, "us")
	policy := &fleet.MultiRegionPolicy{DefaultControlRegion: "us", EnabledRegions: []string{"eu", "us"}}
	_, err = h.regions["us"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: policy}})
	require.NoError(t, err)
	h.turn("us drops ap", func() bool {
		o, err := h.here("us", "eu", press)
		return err == nil && !o.SyncingNow().In("ap")
	}, "us")
	h.cut("ap", "us", false)

	wait := func(what string, until func() bool) { // without a comparison
		h.t.Helper()
		for deadline := time.Now().Add(patience); !until(); <-time.After(10 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "%s\n%s", what, h.dump())
		}
	}
	wait("the project and its template go", func() bool {
		return h.owner("ap", "eu", lineKey) == "not_found" && h.owner("ap", "eu", press) == "not_found"
	})
	wait("what ap created stays, as us has it", func() bool { return h.owner("ap", "ap", made) == "us 4" })
	require.Empty(t, h.aside("ap", "us"))
}

// M23, M34: a region whose stream of the new owner begins after that one claimed and deleted learns of the deletions by asking.
func TestClaimedAndDeleted(t *testing.T) {
	t.Parallel()
	of := holding("eu", "us")
	acme, web := fleet.OrganizationKey("acme"), fleet.ServiceKey("web")
	for _, holder := range []fleet.ObjectKey{lineKey, acme, web} {
		for _, force := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by force: %t", holder.Kind, force), func(t *testing.T) {
				t.Parallel()
				h := newHanding(t, "eu", "us")
				h.holder = holder
				eu, us := h.regions["eu"], h.regions["us"]
				declare := func(key fleet.ObjectKey, spec any) {
					t.Helper()
					w := h.write(key)
					if key == acme {
						w.Project = ""
					}
					_, err := eu.store.Declare(t.Context(), w, spec)
					require.NoError(t, err)
				}
				w, deleted := h.write(press), []fleet.ObjectKey{press, lineKey}
				switch holder {
				case acme:
					deleted = append(deleted, acme)
					declare(acme, fleet.OrganizationSpec{HolderSpec: of})
					declare(lineKey, fleet.ProjectSpec{Organization: acme.Name})
				case web:
					deleted, w.Service = []fleet.ObjectKey{press, web}, web.Name
					declare(lineKey, fleet.ProjectSpec{HolderSpec: of})
					declare(web, fleet.ServiceSpec{HolderSpec: of})
				default:
					declare(lineKey, fleet.ProjectSpec{HolderSpec: of})
				}
				require.NoError(t, h.templateAs("eu", w, `{"v":1}`))
				h.agree("the template is shared")
				h.cutOnce("eu", "us", true)
				in, lost := fleet.RegionName("eu"), 0
				if force {
					in, lost = "us", 1
					h.cut("eu", "us", true)
					require.NoError(t, h.templateAs("eu", w, `{"v":2}`))
				}
				_, err := h.request(in, "us", force)
				require.NoError(t, err)
				for _, key := range append(deleted, holder) {
					h.turn("us claims "+key.String(), func() bool { return h.owner("us", "eu", key) == "us 2" }, "us")
				}
				for _, key := range deleted {
					_, err := us.store.DeleteDeclared(t.Context(), h.write(key))
					require.NoError(t, err)
				}
				h.forgets("eu", "us")
				h.cut("eu", "us", false)
				h.ask("eu", "us", false)
				h.agree("it is gone in both")
				for _, key := range deleted {
					require.Equal(t, "not_found", h.owner("eu", "eu", key))
				}
				require.Empty(t, h.aside("eu", "us"))
				require.Equal(t, lost, h.lost("eu"), "what us never had, and nothing else")
			})
		}
	}
}

// holding is the policy of a holder that some regions share, of which the first controls it.
func holding(regions ...string) fleet.HolderSpec {
	return fleet.HolderSpec{MultiRegionPolicy: &fleet.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}}
}

// M27, M42: what belongs to a service that drops its region stays there, though the project enables it: what is not known may have a policy.
func TestDroppedByAService(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the service is deleted: %t", gone), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us")
			web, pool := fleet.ServiceKey("web"), fleet.ObjectKey{Kind: fleet.KindPool, Name: "fast"}
			h.holder = web
			eu, us := h.regions["eu"], h.regions["us"]
			declare := func(in *sharing, w postgres.Write, spec any) {
				t.Helper()
				_, err := in.store.Declare(t.Context(), w, spec)
				require.NoError(t, err)
			}
			declare(eu, h.write(lineKey), fleet.ProjectSpec{HolderSpec: holding("eu", "us")})
			declare(eu, h.write(web), fleet.ServiceSpec{HolderSpec: holding("eu", "us")})
			h.agree("the service is shared")
			w := h.write(pool)
			w.Service = web.Name
			if gone { // eu could not delete it if it knew of the pool
				h.cut("eu", "us", true)
				declare(us, w, fleet.PoolSpec{MaxReplicas: 1})
				_, err := eu.store.DeleteDeclared(t.Context(), h.write(web))
				require.NoError(t, err)
				h.cut("eu", "us", false)
				h.turn("us has the service no more", func() bool { return h.owner("us", "eu", web) == "not_found" }, "eu", "us")
			} else {
				declare(us, w, fleet.PoolSpec{MaxReplicas: 1})
				h.turn("eu has the pool", func() bool { return h.owner("eu", "us", pool) == "us 1" }, "eu", "us")
				declare(eu, h.write(web), fleet.ServiceSpec{HolderSpec: holding("eu")})
			}
			h.turn("eu does not have it", func() bool { return h.owner("eu", "us", pool) == "not_found" }, "eu", "us")
			declare(us, h.write(pool), fleet.PoolSpec{MaxReplicas: 2})
			o, err := h.here("us", "us", pool)
			require.NoError(t, err)
			require.Equal(t, []string{"us"}, o.SyncingNow().Regions)
			h.turn("nothing waits", func() bool { return len(h.aside("eu", "us")) == 0 }, "eu", "us")
		})
	}
}

// M34: a policy of its own does not take a project out of the hand-over of its organization.
func TestHandOverOfWhatIsAbove(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us")
	h.holder = fleet.OrganizationKey("acme")
	w := h.write(h.holder)
	w.Project = ""
	eu := h.regions["eu"].store
	_, err := eu.Declare(t.Context(), w, fleet.OrganizationSpec{HolderSpec: holding("eu", "us")})
	require.NoError(t, err)
	_, err = eu.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{Organization: "acme"})
	require.NoError(t, err)
	h.agree("all is shared")
	h.cut("eu", "us", true)
	_, err = h.request("eu", "us", false)
	require.NoError(t, err)
	_, err = eu.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: holding("eu", "us"), Organization: "acme"})
	refusedBy(t, "us", err)
	require.ErrorContains(t, err, "organization/acme is being handed over to region us")
	h.cut("eu", "us", false)
	h.turn("us owns the project", func() bool { return h.owner("us", "eu", lineKey) == "us 2" && h.owner("eu", "eu", lineKey) == "us 2" }, "eu", "us")
	require.Zero(t, h.lost("eu"))
}

// M38, X1: a region that has a write of which neither its restored owner nor the region that claims the object knows lists it, and no other
// state of an owner that had all.
func TestThirdRegionListsWhatIsLost(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut: %t", cut), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "ap", "eu", "us")
			h.share("ap", line, "ap", "eu", "us")
			h.agree("the project is shared")
			h.cut("ap", "eu", cut)
			w := h.write(lineKey)
			w.Labels = map[string]string{"v": "2"}
			_, err := h.regions["ap"].store.Declare(t.Context(), w, fleet.ProjectSpec{HolderSpec: holding("ap", "eu", "us")})
			require.NoError(t, err)
			for _, in := range []fleet.RegionName{"eu", "us"} {
				if !cut || in == "us" {
					h.turn(string(in)+" has the write", func() bool { o, err := h.here(in, "ap", lineKey); return err == nil && o.Labels["v"] == "2" })
				}
			}
			h.cut("ap", "us", true)
			_, err = h.request("eu", "eu", true)
			require.NoError(t, err)
			h.turn("us follows eu", func() bool { return h.owner("us", "ap", lineKey) == "eu 2" }, "eu", "us")
			w = h.write(lineKey)
			w.Region, w.Labels = "ap", map[string]string{"v": "3"}
			_, err = h.regions["eu"].store.Declare(t.Context(), w, fleet.ProjectSpec{HolderSpec: holding("eu", "ap", "us")})
			require.NoError(t, err)
			h.turn("us has the next write", func() bool { o, err := h.here("us", "ap", lineKey); return err == nil && o.Labels["v"] == "3" })
			require.Equal(t, cut, h.lost("us") == 1)
			require.Zero(t, h.lost("eu"))
		})
	}
}

// M23, M29: what moved to a region that never shared it with this one goes, though nothing but a question tells that.
func TestMovedWithoutThisRegion(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	h.cut("ap", "eu", true)
	h.cut("ap", "us", true)
	policy := &fleet.MultiRegionPolicy{DefaultControlRegion: "eu", EnabledRegions: []string{"eu", "us"}}
	_, err := h.regions["eu"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: policy}})
	require.NoError(t, err)
	_, err = h.request("eu", "us", false)
	require.NoError(t, err)
	h.turn("us owns all", func() bool {
		return h.owner("us", "eu", press) == "us 2" && h.owner("eu", "eu", press) == "us 2" && h.owner("eu", "eu", lineKey) == "us 2"
	}, "eu", "us")
	h.regions["eu"].exec(t, `DELETE FROM events`) // as a restore, and what us sent since, leave it
	h.cut("ap", "eu", false)
	h.cut("ap", "us", false)
	h.ask("ap", "eu", false)
	h.turn("the project and its template go", func() bool {
		return h.owner("ap", "eu", lineKey) == "not_found" && h.owner("ap", "eu", press) == "not_found" && len(h.aside("ap", "eu")) == 0
	}, "ap")
}

// M34, M38: a region that a cut kept from the policy which enabled the new owner believes the last owner, also about what it created itself.
func TestHandedOnMeanwhile(t *testing.T) {
	t.Parallel()
	for _, birth := range []fleet.RegionName{"eu", "us"} {
		t.Run("created in "+string(birth), func(t *testing.T) {
			t.Parallel()
			h := newHanding(t, "eu", "us", "ap")
			h.line(birth, "eu", "us")
			h.turn("both have the project", func() bool { return h.owner("us", birth, lineKey) == h.owner("eu", birth, lineKey) }, "eu", "us")
			if birth == "us" {
				_, err := h.request("us", "eu", false)
				require.NoError(t, err)
			}
			h.turn("eu owns all", func() bool {
				o, p := h.owner("us", birth, lineKey), h.owner("us", birth, press)
				return o[:2] == "eu" && o == p
			}, "eu", "us")
			h.cut("us", "eu", true)
			h.cut("us", "ap", true)
			policy := &fleet.MultiRegionPolicy{DefaultControlRegion: "eu", EnabledRegions: []string{"eu", "us", "ap"}}
			_, err := h.regions["eu"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: policy}})
			require.NoError(t, err)
			h.turn("ap has the project", func() bool { return h.owner("ap", birth, lineKey) == h.owner("eu", birth, lineKey) }, "eu", "ap")
			_, err = h.request("eu", "ap", false)
			require.NoError(t, err)
			h.turn("ap owns all", func() bool {
				o := h.owner("eu", birth, lineKey)
				return o[:2] == "ap" && h.owner("eu", birth, press) == o
			}, "eu", "ap")
			h.cut("us", "eu", false)
			h.cut("us", "ap", false)
			h.agree("us too")
			require.Empty(t, h.aside("us", "ap"))
			require.Empty(t, h.aside("us", "eu"))
		})
	}
}

// M34, M38: a claim by a region that no known policy enables, since a restore undid that policy, waits until an operator enables it again.
func TestRestoreUndoesEnabling(t *testing.T) {
	t.Parallel()
	h := newHanding(t, "eu", "us", "ap")
	enable := func(regions ...string) {
		t.Helper()
		policy := &fleet.MultiRegionPolicy{DefaultControlRegion: "eu", EnabledRegions: regions}
		_, err := h.regions["eu"].store.Declare(t.Context(), h.write(lineKey), fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: policy}})
		require.NoError(t, err)
	}
	enable("eu", "us")
	h.turn("us has the project", func() bool { return h.owner("us", "eu", lineKey) == "eu 1" }, "eu", "us")
	eu := h.regions["eu"]
	eu.exec(t, `CREATE TABLE saved AS SELECT * FROM objects WHERE kind = 'project'`)
	eu.exec(t, `CREATE TABLE last AS SELECT max(seq) AS seq FROM events`)

	h.cut("us", "eu", true)
	h.cut("us", "ap", true)
	enable("eu", "us", "ap")
	_, err := h.request("eu", "ap", false)
	require.NoError(t, err)
	h.turn("ap has the fence", func() bool { return h.fenced("ap") }, "eu")
	h.cutOnce("eu", "ap", true)
	h.turn("ap claims", func() bool { return h.owner("ap", "eu", lineKey) == "ap 2" }, "ap")
	eu.exec(t, `DELETE FROM objects WHERE kind = 'project'`)
	eu.exec(t, `INSERT INTO objects SELECT * FROM saved`)
	eu.exec(t, `DELETE FROM events WHERE seq > (SELECT seq FROM last)`)
	_, err = postgres.RaiseEra(t.Context(), eu.url, "eu")
	require.NoError(t, err)
	for _, peer := range []fleet.RegionName{"eu", "us"} {
		h.cut("ap", peer, false)
	}
	h.cut("us", "eu", false)
	h.turn("both set the claim aside", func() bool { return len(h.aside("eu", "ap")) == 1 && len(h.aside("us", "ap")) == 1 }, "eu", "us", "ap")
	require.Equal(t, decide.UnprovenOwner, h.aside("eu", "ap")[0].Reason)
	enable("eu", "us", "ap")
	h.agree("ap has it")
	require.Equal(t, "ap 2", h.owner("eu", "eu", lineKey))
	require.Empty(t, h.aside("us", "ap"))
}

// M31, M38: whatever a third region hears first, it has in the end what the owners have.
func TestHandOversAtRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []fleet.RegionName{"eu", "us", "ap"}
	pick := func() fleet.RegionName { return names[random.IntN(len(names))] }
	h := newHanding(t, names...)
	h.line("eu", "eu", "us", "ap")
	h.agree("the project is shared")
	for round := range 4 {
		for i := range 30 {
			switch r := pick(); random.IntN(6) {
			case 0:
				_, _ = h.request(r, pick(), false) // refused outside the owner
			case 1, 2:
				_ = h.template(r, 100*round+i) // by whoever owns it
			case 3:
				h.cut(r, pick(), true)
			case 4:
				h.cut(r, pick(), false)
			case 5:
				h.step(r)
			}
			<-time.After(time.Duration(random.IntN(10)) * time.Millisecond)
		}
		for _, a := range names {
			for _, b := range names {
				h.cut(a, b, false)
			}
		}
		h.agree(fmt.Sprintf("round %d", round))
		for _, r := range names {
			require.Zero(t, h.lost(r), "nobody claimed by force")
		}
	}
}
