package node

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// returning is a standby that was away: it holds press, and its region answers what it is owed.
func returning(t *testing.T) *expecting {
	t.Helper()
	e := expect(t)
	e.agent.signing = e.key.Enrolled("eu-1")
	e.agent.opt.Log = e.Applier.opt.Log
	e.must(e.cmd(1, "one"))
	e.must(e.cmd(1, "other", named("other")))
	e.mayRun = false
	require.NoError(t, e.settleAll(t.Context()))
	e.rt.said()
	return e
}

// wins has the node take the lease, as a tenure does.
func (e *expecting) wins() error {
	err := tenant{e.agent}.Owed(e.t.Context())
	e.mayRun = true
	_, _, adopted := e.store.Adopt(e.t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 2}, "")
	require.NoError(e.t, adopted)
	require.NoError(e.t, e.settleAll(e.t.Context()))
	return err
}

// X4, X21: a new active asks for owed deletes and disables before it starts instances.
func TestOwed(t *testing.T) {
	t.Parallel()
	start := "start other 1"
	t.Run("what was deleted while the node was away never starts", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		gone := e.deletion(2)
		e.spoil = answers(gone)
		require.NoError(t, e.wins())
		require.Equal(t, []string{start}, e.rt.said())
		require.Equal(t, fleet.ActionDelete, e.held(press).Action)
		require.Empty(t, e.file(press))
		gone.Epoch = 2
		require.True(t, e.must(gone).Already, "its own delivery finds it done")
	})
	t.Run("nor what was disabled, in the content that it had or in another", func(t *testing.T) {
		t.Parallel()
		for _, config := range []string{"one", "two"} {
			e := returning(t)
			off := e.cmd(2, config, disabled)
			e.spoil = answers(off)
			require.NoError(t, e.wins())
			require.Equal(t, []string{start}, e.rt.said())
			held := e.held(press)
			require.Equal(t, []any{int64(2), false, hashOf([]byte(config))}, []any{held.Version.Revision, held.Enabled, held.Content.Hash})
			e.restart()
			require.Empty(t, e.rt.said(), "it is in the store")
		}
	})
	t.Run("what cannot be fetched in time is held back until it comes", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		off := e.cmd(3, "two", disabled)
		bare := off
		bare.DeploymentID, bare.FetchToken = "", ""
		e.spoil = answers(bare)
		require.NoError(t, e.wins())
		require.Equal(t, []string{start}, e.rt.said())
		all, err := e.Instances(t.Context())
		require.NoError(t, err)
		require.Contains(t, all[1].Reason, "deleted or disabled while this node was disconnected")
		e.restart()
		require.NoError(t, e.settleAll(t.Context()))
		require.Empty(t, e.rt.said(), "nor does a later agent start it that cannot ask")
		off.Epoch = 2
		e.must(off)
		e.must(e.cmd(4, "two", enabled, under(fleet.RoleActive, 2)))
		require.Equal(t, []string{"start press 4"}, e.rt.said())
		e.restart()
		left, err := e.store.HeldBack(t.Context())
		require.NoError(t, err)
		require.Empty(t, left, "what has come is forgotten")
	})
	t.Run("what is held back starts when the region takes it back, of this agent or an earlier one", func(t *testing.T) {
		t.Parallel()
		for _, again := range []bool{false, true} {
			e := returning(t)
			bare := e.cmd(3, "two", disabled)
			bare.DeploymentID, bare.FetchToken = "", ""
			e.spoil = answers(bare)
			require.NoError(t, e.wins())
			require.Equal(t, []string{start}, e.rt.said())
			if again {
				e.restart()
				e.agent.Applier, e.agent.Store = e.Applier, e.store
			}
			e.spoil = answersOf(1, bare)
			e.agent.askAgain(t.Context())
			require.NoError(t, e.settleAll(t.Context()))
			require.Empty(t, e.rt.said(), "it is asked for still")
			e.spoil = answersOf(1)
			e.agent.askAgain(t.Context())
			require.NoError(t, e.settleAll(t.Context()))
			require.Equal(t, []string{"start press 1"}, e.rt.said())
			e.spoil = func(http.ResponseWriter, *http.Request) bool { panic("nothing is held back") } //nolint:forbidigo // a test ends here
			e.agent.askAgain(t.Context())
			left, err := e.store.HeldBack(t.Context())
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})
	t.Run("and when it is not said again to who takes the lease next", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		bare := e.cmd(3, "two", disabled)
		bare.DeploymentID, bare.FetchToken = "", ""
		e.spoil = answers(bare)
		require.NoError(t, e.wins())
		e.spoil = answers()
		require.NoError(t, tenant{e.agent}.Owed(t.Context()))
		require.NoError(t, e.settleAll(t.Context()))
		require.Equal(t, []string{start, "start press 1"}, e.rt.said())
	})
	t.Run("the node's former right as the active does not matter", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		meta, err := e.store.Meta(t.Context())
		require.NoError(t, err)
		require.Equal(t, fleet.RoleActive, meta.Role)
		_, _, err = e.store.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: meta.Epoch + 1}, "plant-1-b")
		require.NoError(t, err)
		e.spoil = answers(e.deletion(2))
		require.NoError(t, tenant{e.agent}.Owed(t.Context()))
		require.Equal(t, fleet.ActionDelete, e.held(press).Action)
		require.Empty(t, e.rt.said())
	})
	t.Run("what the region may not say is not acted upon", func(t *testing.T) {
		t.Parallel()
		for what, wrong := range map[string]func(e *expecting) fleet.RefreshDeploymentCommand{
			"an enabled one":   func(e *expecting) fleet.RefreshDeploymentCommand { return e.cmd(2, "two") },
			"one not asked of": func(e *expecting) fleet.RefreshDeploymentCommand { return e.deletion(2, named("stranger")) },
			"one not newer":    func(e *expecting) fleet.RefreshDeploymentCommand { return e.deletion(1) },
		} {
			e := returning(t)
			e.spoil = answers(wrong(e))
			ctx, cancel := context.WithCancel(t.Context())
			e.agent.opt.Retry = time.Hour // what may pass by itself is asked again
			e.spoil = after(e.spoil, cancel)
			require.Error(t, e.agent.askOwed(ctx), what)
			e.mayRun = true
			require.NoError(t, e.settleAll(t.Context()))
			require.Len(t, e.rt.said(), 2, what)
		}
	})
	t.Run("a region that is away is asked until the limit, and then all starts", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		e.agent.opt.Retry = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := 0
		e.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
			if asked++; asked == 3 {
				cancel() // the limit
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		require.ErrorIs(t, e.agent.askOwed(ctx), context.Canceled)
		e.mayRun = true
		require.NoError(t, e.settleAll(t.Context()))
		require.Len(t, e.rt.said(), 2)
	})
	t.Run("all names are asked about before the first is fetched: that may take all the time there is", func(t *testing.T) {
		t.Parallel()
		e := expect(t)
		e.agent.signing = e.key.Enrolled("eu-1")
		off := map[fleet.InstanceName]fleet.RefreshDeploymentCommand{}
		for i := range fleet.MaxComparedNames + 1 {
			e.deploys(numbered(i), 1, "one")
		}
		_, err := e.reconcile()
		require.NoError(t, err)
		for _, i := range []int{0, fleet.MaxComparedNames} { // one in each page
			off[numbered(i)] = e.cmd(2, "two", disabled, named(numbered(i)), noRun)
		}
		var mu sync.Mutex
		var did []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			did = append(did, what)
		}
		e.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			var in struct{ Instances []fleet.Extra }
			_ = json.NewDecoder(r.Body).Decode(&in)
			var owed []fleet.RefreshDeploymentCommand
			for _, asked := range in.Instances {
				if cmd, is := off[asked.Instance]; is {
					owed = append(owed, cmd)
				}
			}
			note("ask")
			_ = json.NewEncoder(w).Encode(map[string]any{"commands": owed})
			return true
		}
		e.region.before = func(http.ResponseWriter, *http.Request) bool { note("fetch"); return false }
		require.NoError(t, e.agent.askOwed(t.Context()))
		require.Equal(t, []string{"ask", "ask"}, did[:2])
		require.Contains(t, did, "fetch")
		for name := range off {
			require.False(t, e.held(name).Enabled, "%s", name)
		}
	})
	t.Run("a node that was never enrolled asks nobody", func(t *testing.T) {
		t.Parallel()
		e := returning(t)
		e.agent.signing = e.key
		e.asked = nil
		require.NoError(t, e.agent.askOwed(t.Context()))
		require.Empty(t, e.asked)
	})
}

// answers is a region that answers so when it is asked what is owed.
func answers(owed ...fleet.RefreshDeploymentCommand) func(http.ResponseWriter, *http.Request) bool {
	return answersOf(2, owed...)
}

// answersOf is one that is to be asked of so many.
func answersOf(names int, owed ...fleet.RefreshDeploymentCommand) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		var in struct{ Instances []fleet.Extra }
		if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.Instances) != names {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"commands": owed})
		return true
	}
}

// after answers, and then does one thing more.
func after(answer func(http.ResponseWriter, *http.Request) bool, then func()) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		defer then()
		return answer(w, r)
	}
}
