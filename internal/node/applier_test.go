package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// N40, N95
func TestApply(t *testing.T) {
	t.Parallel()
	t.Run("fetches, starts and switches, and tells the command where its config is", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		resp := b.must(b.cmd(1, "one"))
		b.is(1, "one", 1, 1)
		require.False(t, resp.Already)
		require.Equal(t, int64(3), resp.Fetched)
		require.Equal(t, b.held(press), resp.Held)
		require.True(t, resp.Held.Known)
		require.True(t, resp.Held.Running)
		spec := b.rt.specs[press]
		require.Equal(t, []string{"press", "--serve"}, spec.Run.Command)
		dir := filepath.Join(b.dir, "instances", "press")
		require.Equal(t, dir, spec.Dir)
		require.ElementsMatch(t, []string{
			"PATH=/bin", "HOLDFAST_INSTANCE=press", "HOLDFAST_NODE=plant-1-a", "HOLDFAST_SITE=plant-1",
			"HOLDFAST_EPOCH=1", "HOLDFAST_CONFIG=" + filepath.Join(dir, "config.json"),
		}, spec.Env)
	})
	t.Run("restarts for a new config, which has its place only when the old process is gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.onStop = func(fleet.InstanceName) error { require.Equal(t, "one", b.file(press)); return nil }
		b.rt.onStart = func(context.Context, guardian.Spec) error { require.Equal(t, "two", b.file(press)); return nil }
		b.must(b.cmd(2, "two"))
		b.is(2, "two", 2, 2)
		require.Equal(t, []string{"start press 1", "stop press", "start press 2"}, b.rt.said())
		left, err := os.ReadDir(filepath.Join(b.dir, "instances", "press"))
		require.NoError(t, err)
		require.Len(t, left, 1)
	})
	t.Run("signals when the command says so, restarts when the command itself changed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", withRun(signalRun)))
		b.must(b.cmd(2, "two", withRun(signalRun)))
		b.is(2, "two", 2, 2)
		b.must(b.cmd(3, "two"))
		require.Equal(t, []string{"start press 1", "signal press SIGUSR1 2", "stop press", "start press 3"}, b.rt.said())
		b.must(b.cmd(4, "two", withRun(signalRun)))
		b.rt.said()
		b.rt.onSignal = func(fleet.InstanceName) error { return fleet.Errorf(fleet.NotFound, "it has gone") }
		b.must(b.cmd(5, "five", withRun(signalRun)))
		require.Equal(t, []string{"stop press", "start press 5"}, b.rt.said(), "one that cannot be told is restarted")
	})
	t.Run("projects the config of an instance without a command, artifacts as config.bin", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", noRun))
		b.is(0, "one", 1, 1)
		b.must(b.cmd(2, "\x00bytes", noRun, artifact))
		b.is(0, "", 2, 2)
		data, err := os.ReadFile(filepath.Join(b.dir, "instances", "press", "config.bin"))
		require.NoError(t, err)
		require.Equal(t, "\x00bytes", string(data))
		require.Empty(t, b.rt.said())
	})
	t.Run("shares a body between instances and revisions", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.region.asked()
		require.Zero(t, b.must(b.cmd(1, "one", named("oven"), noRun)).Fetched)
		b.must(b.cmd(2, "one", named("oven"), disabled))
		require.Equal(t, []string{"/api/internal/deployments/" + b.cmd(2, "one").DeploymentID + "/run "}, b.region.asked())
	})
	t.Run("downloads a body once when two instances want it at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		fetched, wanted := make(chan struct{}), make(chan struct{}, 1)
		b.opt.Failpoint = func(step string) {
			switch step {
			case "before_fetch":
				select {
				case <-fetched:
					wanted <- struct{}{} // the second one is here
				default:
				}
			case "after_fetch":
				select {
				case <-fetched:
				default:
					close(fetched)
					<-wanted
				}
			}
		}
		first := b.start(b.cmd(1, "one", noRun))
		<-fetched
		require.Zero(t, b.must(b.cmd(1, "one", named("oven"), noRun)).Fetched)
		require.NoError(t, <-first)
		require.Len(t, b.region.asked(), 1)
	})
	t.Run("refuses what is not for this node or makes no sense, before anything else", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, change := range []with{
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Site = "plant-2" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Instance = "../x" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Role = "boss" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.Version.Revision = 0 },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.Content.Hash = "x" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.RunHash = "x" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.Content.Kind = "" },
			func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Revision.Action = "" },
		} {
			_, err := b.apply(b.cmd(1, "one", change))
			require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		}
		require.False(t, b.held(press).Known)
		require.Empty(t, b.region.asked())
	})
}

// N93, N85
func TestApplyAgain(t *testing.T) {
	t.Parallel()
	t.Run("a duplicate downloads nothing and restarts nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		cmd := b.cmd(1, "one")
		b.must(cmd)
		b.rt.said()
		b.region.asked()
		resp := b.must(cmd)
		require.True(t, resp.Already)
		require.Zero(t, resp.Fetched)
		require.Empty(t, b.rt.said())
		require.Empty(t, b.region.asked())
	})
	t.Run("equal content under a higher number stores the number and no more", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.said()
		b.region.asked()
		require.True(t, b.must(b.cmd(7, "one")).Already)
		b.is(1, "one", 7, 7)
		require.Empty(t, b.rt.said())
		require.Empty(t, b.region.asked())
		b.restart()
		require.Empty(t, b.rt.said(), "nor does a later start of the agent")
	})
	t.Run("a duplicate starts what should run and does not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		require.NoError(t, b.rt.Stop(t.Context(), press))
		require.True(t, b.must(b.cmd(1, "one")).Held.Running)
	})
	t.Run("an older one is refused and counted, whatever it carries", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(3, "three"))
		b.region.asked()
		for _, old := range []fleet.RefreshDeploymentCommand{b.cmd(2, "two"), b.cmd(2, "three"), b.deletion(1)} {
			_, err := b.apply(old)
			require.Equal(t, fleet.Stale, fleet.KindOf(err))
		}
		require.Equal(t, int64(3), b.counted.StaleRefused.Load())
		require.Equal(t, []string{audit.OlderRevision, audit.OlderRevision, audit.OlderRevision}, b.listed())
		require.Empty(t, b.region.asked())
		b.is(3, "three", 3, 3)
	})
	t.Run("the same number with another hash is refused, counted and alarmed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		_, err := b.apply(b.cmd(1, "other"))
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		require.Equal(t, int64(1), b.counted.Conflicts.Load())
		require.Contains(t, b.logs.String(), "level=ERROR")
		b.is(1, "one", 1, 1)
	})
	t.Run("the same command twice at once is one apply", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		entered, goOn := make(chan struct{}), make(chan struct{})
		b.rt.onStart = func(context.Context, guardian.Spec) error { close(entered); <-goOn; return nil }
		first, second := b.start(b.cmd(1, "one")), (<-chan error)(nil)
		<-entered
		second = b.start(b.cmd(1, "one"))
		close(goOn)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.Equal(t, []string{"start press 1"}, b.rt.said())
	})
	// N51, X13
	t.Run("a second attempt does not share the failure of one that is closed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		closed, next := b.cmd(1, "one"), b.cmd(1, "one")
		next.DeploymentID = strings.Repeat("b", 32)
		b.region.bodies[next.DeploymentID] = []byte("one")
		b.region.runs[next.DeploymentID] = testRun
		entered, goOn := make(chan struct{}), make(chan struct{})
		b.region.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, closed.DeploymentID) {
				return false
			}
			close(entered)
			<-goOn
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		first := b.start(closed)
		<-entered
		second := b.start(next)
		close(goOn)
		require.Equal(t, fleet.Stale, fleet.KindOf(<-first))
		require.NoError(t, <-second)
		b.is(1, "one", 1, 1)
	})
}

// start applies in the background.
func (b *bench) start(cmd fleet.RefreshDeploymentCommand) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := b.apply(cmd)
		done <- err
	}()
	return done
}

// N43, N95
func TestApplyFails(t *testing.T) {
	t.Parallel()
	t.Run("at the start: the previous revision runs again and the number stays as the mark", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.onStart = startFails("bad")
		_, err := b.apply(b.cmd(2, "bad"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		require.Contains(t, err.Error(), "exit code 3")
		require.False(t, strings.HasPrefix(err.Error(), "Communication failure:"))
		b.is(1, "one", 1, 2)
		_, err = b.apply(b.cmd(2, "bad"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err), "it may be tried again")
		b.rt.onStart = nil
		b.must(b.cmd(2, "bad"))
		b.is(2, "bad", 2, 2)
	})
	t.Run("at the first start: nothing runs, nothing is left", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.rt.onStart = startFails("bad")
		_, err := b.apply(b.cmd(1, "bad"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		b.is(0, "", 0, 1)
		b.must(b.cmd(2, "two"))
		b.is(2, "two", 2, 2)
	})
	t.Run("at the stop of the old one: it stays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.onStop = func(fleet.InstanceName) error { return errors.New("it does not stop") }
		_, err := b.apply(b.cmd(2, "two"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		b.is(1, "one", 1, 2)
	})
	t.Run("by wrong bytes: nothing is switched or stopped", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.said()
		cmd := b.cmd(2, "two")
		b.region.bodies[cmd.DeploymentID] = []byte("owt")
		_, err := b.apply(cmd)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
		require.Empty(t, b.rt.said())
		b.is(1, "one", 1, 2)
		b.must(b.cmd(2, "two"))
	})
	t.Run("by communication: nothing is switched, and a retry goes through", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.region.before = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(502); return true }
		_, err := b.apply(b.cmd(2, "two"))
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
		b.is(1, "one", 1, 2)
		b.region.before = nil
		b.must(b.cmd(2, "two"))
		b.is(2, "two", 2, 2)
	})
	// N51, N53
	t.Run("as stale when the delivery is no longer offered", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		cmd := b.cmd(1, "one")
		delete(b.region.bodies, cmd.DeploymentID)
		_, err := b.apply(cmd)
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
	})
	t.Run("when the token was sealed to another key, without showing it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.apply(b.cmd(1, "one", func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.FetchToken = "AAAA" }))
		require.Equal(t, fleet.Unauthenticated, fleet.KindOf(err))
		require.NotContains(t, err.Error()+b.logs.String(), "AAAA")
	})
}

// N18
func TestPreempt(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"while it fetches": "fetch", "while it starts": "start"} {
		t.Run("a newer revision ends an older one "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one"))
			entered := make(chan struct{})
			switch at {
			case "fetch":
				slow := b.cmd(2, "two").DeploymentID
				b.region.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.Contains(r.URL.Path, slow) {
						close(entered)
						hang(r)
					}
					return false
				}
			case "start":
				b.rt.onStart = func(ctx context.Context, spec guardian.Spec) error {
					if spec.Labels.Version.Revision != 2 {
						return nil
					}
					close(entered)
					<-ctx.Done()
					return ctx.Err()
				}
			}
			older := b.start(b.cmd(2, "two"))
			<-entered
			_, err := b.apply(b.deletion(1))
			require.Equal(t, fleet.Stale, fleet.KindOf(err), "an older one does not disturb it")
			b.must(b.cmd(3, "three"))
			err = <-older
			require.Equal(t, fleet.Stale, fleet.KindOf(err))
			require.Contains(t, err.Error(), "superseded by revision 3")
			b.is(3, "three", 3, 3)
		})
	}
	t.Run("what was pre-empted puts the previous revision back, should the newer one fail", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		entered := make(chan struct{})
		b.rt.onStart = func(ctx context.Context, spec guardian.Spec) error {
			if spec.Labels.Version.Revision == 2 {
				close(entered)
				<-ctx.Done()
				return ctx.Err()
			}
			return startFails("bad")(ctx, spec)
		}
		older := b.start(b.cmd(2, "two"))
		<-entered
		_, err := b.apply(b.cmd(3, "bad"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		require.Equal(t, fleet.Stale, fleet.KindOf(<-older))
		b.is(1, "one", 1, 3)
	})
	t.Run("a cancelled caller leaves the previous revision running, and who joined goes on", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		entered := make(chan struct{}, 2)
		b.rt.onStart = func(ctx context.Context, spec guardian.Spec) error {
			if spec.Labels.Version.Revision == 2 && len(b.rt.specs) == 1 && ctx.Value(ctxKey{}) != nil {
				entered <- struct{}{}
				<-ctx.Done()
				return fmt.Errorf("wait for the command: %w", context.Cause(ctx))
			}
			return nil
		}
		gone := errors.New("workflow execution already completed") // what Temporal cancels with
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), ctxKey{}, true))
		first := make(chan error, 1)
		go func() {
			_, err := b.Apply(ctx, b.cmd(2, "two"), nil)
			first <- err
		}()
		<-entered
		second := b.start(b.cmd(2, "two"))
		cancel(gone)
		err := <-first
		require.ErrorIs(t, err, gone)
		require.Equal(t, fleet.Internal, fleet.KindOf(err), "it says nothing about the revision")
		require.NoError(t, <-second)
		b.is(2, "two", 2, 2)
	})
	t.Run("instances do not wait for each other", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		entered, goOn := make(chan struct{}), make(chan struct{})
		b.rt.onStart = func(_ context.Context, spec guardian.Spec) error {
			if spec.Instance == press {
				close(entered)
				<-goOn
			}
			return nil
		}
		slow := b.start(b.cmd(1, "one"))
		<-entered
		b.must(b.cmd(1, "two", named("oven")))
		close(goOn)
		require.NoError(t, <-slow)
	})
}

type ctxKey struct{}

// N88, N70
func TestStates(t *testing.T) {
	t.Parallel()
	t.Run("disable stops and keeps, enable starts without a download", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.region.asked()
		require.False(t, b.must(b.cmd(2, "one", disabled)).Held.Enabled)
		b.is(0, "one", 2, 2)
		b.restart()
		b.is(0, "one", 2, 2)
		b.must(b.cmd(3, "one", enabled))
		b.is(3, "one", 3, 3)
		require.Empty(t, b.region.asked())
	})
	t.Run("an enable of what the node lacks fetches it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(4, "four", enabled))
		b.is(4, "four", 4, 4)
	})
	t.Run("a failed enable leaves it disabled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", disabled))
		b.rt.onStart = startFails("one")
		_, err := b.apply(b.cmd(2, "one", enabled))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		b.is(0, "one", 1, 2)
	})
	t.Run("delete stops, leaves a tombstone and no file; nothing older returns, a newer one does", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		h := b.must(b.deletion(2)).Held
		require.Equal(t, fleet.ActionDelete, h.Action)
		require.True(t, h.Known)
		b.is(0, "", 2, 2)
		_, err := b.apply(b.cmd(1, "one"))
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		require.True(t, b.must(b.deletion(2)).Already)
		b.restart()
		b.is(0, "", 2, 2)
		require.NoDirExists(t, filepath.Join(b.dir, "instances", "press"))
		b.must(b.cmd(3, "one"))
		b.is(3, "one", 3, 3)
	})
	t.Run("a delete that cannot remove the file has happened all the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		config := filepath.Join(b.dir, "instances", string(press), "config.json")
		require.NoError(t, os.Remove(config))
		require.NoError(t, os.MkdirAll(filepath.Join(config, "in the way"), 0o700))
		require.EqualValues(t, 2, b.must(b.deletion(2)).Held.Version.Revision)
		require.NoError(t, os.RemoveAll(filepath.Join(config, "in the way")))
		require.NoError(t, b.settleAll(t.Context()))
		require.NoDirExists(t, filepath.Dir(config))
	})

	t.Run("output goes on where the region has it up to", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.NoError(t, b.store.SetLogOffset(t.Context(), press, 77))
		b.must(b.cmd(1, "one"))
		require.EqualValues(t, 77, b.rt.specs[press].OutputFrom)
	})

	t.Run("a delete that cannot stop it leaves it running", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.rt.onStop = func(fleet.InstanceName) error { return errors.New("it does not stop") }
		_, err := b.apply(b.deletion(2))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		b.is(1, "one", 1, 2)
		b.rt.onStop = nil
		b.must(b.deletion(2))
		b.is(0, "", 2, 2)
	})
}

// N46, N47, N49, N64, N80
func TestRoles(t *testing.T) {
	t.Parallel()
	standby := under(fleet.RoleStandby, 2)
	t.Run("a standby persists, and neither runs nor projects; as the active it starts from its store", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", standby))
		b.is(0, "", 1, 1)
		_, err := b.apply(b.cmd(1, "one", under(fleet.RoleActive, 1)))
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		b.region.Close()
		require.NoError(t, b.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 3}, "plant-1-a"))
		require.NoError(t, b.Recover(t.Context()))
		b.is(1, "one", 1, 1)
		require.Contains(t, b.rt.specs[press].Env, "HOLDFAST_EPOCH=3")
	})
	t.Run("an older replicate never overwrites a newer one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(2, "two", standby))
		_, err := b.apply(b.cmd(1, "one", standby))
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		b.is(0, "", 2, 2)
	})
	// X21
	t.Run("a lower epoch, and another role at this one, are refused and counted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", under(fleet.RoleActive, 5)))
		for _, right := range []with{under(fleet.RoleActive, 4), under(fleet.RoleStandby, 5)} {
			_, err := b.apply(b.cmd(2, "two", right))
			require.Equal(t, fleet.Stale, fleet.KindOf(err))
		}
		require.Equal(t, int64(2), b.counted.StaleRefused.Load())
		require.Equal(t, []string{audit.StaleEpoch, audit.WrongRole}, b.listed())
		require.Equal(t, audit.Refusal{
			Door: audit.DoorNode, Identity: "region", Reason: audit.StaleEpoch,
			What: "deliver press 1.2 as active at epoch 4: stale_epoch: revision 1.2 as active at epoch 4; the node holds up to 1.1 and is active at epoch 5",
		}, b.refused[0])
		b.is(1, "one", 1, 1)
	})
	t.Run("a node that becomes standby stops everything, also what it is just starting", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.must(b.cmd(1, "oven", named("oven")))
		entered := make(chan struct{})
		b.rt.onStart = func(ctx context.Context, _ guardian.Spec) error { close(entered); <-ctx.Done(); return ctx.Err() }
		starting := b.start(b.cmd(2, "two"))
		<-entered
		require.NoError(t, b.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 2}, ""))
		require.NoError(t, b.settleAll(t.Context()))
		require.Equal(t, fleet.Stale, fleet.KindOf(<-starting))
		b.is(0, "", 1, 2)
		require.Zero(t, b.runsNow("oven"))
	})
	t.Run("nothing is started or switched without the lease, and what runs is stopped", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.mayRun = false
		_, err := b.apply(b.cmd(2, "two", func(_ *bench, c *fleet.RefreshDeploymentCommand) { c.Epoch = 9 }))
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		require.EqualValues(t, 1, b.counted.StaleRefused.Load())
		require.NoError(t, b.settleAll(t.Context()))
		require.Zero(t, b.runsNow(press))
		meta, err := b.store.Meta(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, meta.Epoch, "who does not hold the lease learns no epoch as its holder")
		b.mayRun = true
		require.NoError(t, b.settleAll(t.Context()))
		b.is(1, "one", 1, 1)
	})
	t.Run("the loop carries out a change of role, and ends with its context", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		stopped := make(chan struct{})
		b.rt.onStop = func(fleet.InstanceName) error { close(stopped); return nil }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		require.NoError(t, b.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 2}, ""))
		select {
		case <-stopped:
		case <-time.After(patience):
			require.Fail(t, "it was not stopped")
		}
		cancel()
		require.NoError(t, <-done)
	})
}
