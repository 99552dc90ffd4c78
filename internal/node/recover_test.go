package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

var points = []string{
	"before_fetch", "after_fetch", "before_start", "after_start", "before_switch", "after_switch", "before_reply",
}

// N7, N8, N95
func TestRecover(t *testing.T) {
	t.Parallel()
	forward := map[string]bool{"after_start": true, "before_switch": true, "after_switch": true, "before_reply": true}
	for _, point := range points {
		t.Run("a deploy killed at "+point+" is settled without the region, and may be repeated", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one"))
			cmd := b.cmd(2, "two")
			require.True(t, b.killedAt(point, cmd))
			url := b.region.URL
			b.region.asked()
			b.restart()
			require.Empty(t, b.region.asked())
			if forward[point] {
				b.is(2, "two", 2, 2)
			} else {
				b.is(1, "one", 1, 2)
			}
			b.rt.said()
			cmd.CentralFetchBaseURL = url
			require.Equal(t, forward[point], b.must(cmd).Already)
			b.is(2, "two", 2, 2)
			if forward[point] {
				require.Empty(t, b.rt.said(), "what runs already is not restarted")
			}
		})
		t.Run("a first deploy killed at "+point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			require.True(t, b.killedAt(point, b.cmd(1, "one")))
			b.restart()
			if forward[point] {
				b.is(1, "one", 1, 1)
			} else {
				b.is(0, "", 0, 1)
			}
			b.must(b.cmd(1, "one"))
			b.is(1, "one", 1, 1)
		})
		t.Run("a delete killed at "+point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one"))
			require.True(t, b.killedAt(point, b.deletion(2)))
			b.restart()
			if point == "before_fetch" || point == "after_fetch" {
				b.is(1, "one", 1, 2)
			} else {
				b.is(0, "", 2, 2) // accepted, and nothing about a stop can fail
			}
			b.must(b.deletion(2))
			b.is(0, "", 2, 2)
		})
		t.Run("a disable killed at "+point, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one"))
			require.True(t, b.killedAt(point, b.cmd(2, "one", disabled)))
			b.restart()
			b.must(b.cmd(2, "one", disabled))
			b.is(0, "one", 2, 2)
		})
	}
	t.Run("starts from the store exactly what a delivery starts from the region", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		delivered, config := b.rt.specs[press], b.file(press)
		require.NoError(t, b.rt.Stop(t.Context(), press))
		require.NoError(t, os.RemoveAll(filepath.Join(b.dir, "instances", "press")))
		b.region.Close()
		b.restart()
		require.Equal(t, delivered, b.rt.specs[press])
		require.Equal(t, config, b.file(press))
	})
	t.Run("starts what should run, and derives configs that are missing or different", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.must(b.cmd(1, "oven", named("oven")))
		require.NoError(t, b.rt.Stop(t.Context(), press))
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "instances", "press", "config.json"), []byte("eno"), 0o600))
		require.NoError(t, os.RemoveAll(filepath.Join(b.dir, "instances", "oven")))
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, "instances", "press", ".config-1.tmp"), nil, 0o600))
		b.rt.said()
		b.region.Close()
		b.restart()
		b.is(1, "one", 1, 1)
		require.Equal(t, "oven", b.file("oven"))
		require.Equal(t, []string{"start press 1"}, b.rt.said(), "the oven goes on")
		require.NoFileExists(t, filepath.Join(b.dir, "instances", "press", ".config-1.tmp"))
	})
	for what, torn := range map[string]string{"empty": "", "cut": "tw", "zeros": "\x00\x00\x00", "old": "one"} {
		t.Run("writes a config anew that a power cut left "+what+", before anything starts with it", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.must(b.cmd(1, "one"))
			b.must(b.cmd(2, "two"))
			b.must(b.cmd(1, "box", named("box"), noRun))
			clear(b.rt.running)
			for _, name := range []string{"press", "box"} {
				require.NoError(t, os.WriteFile(filepath.Join(b.dir, "instances", name, "config.json"), []byte(torn), 0o600))
			}
			b.rt.onStart = func(context.Context, guardian.Spec) error { require.Equal(t, "two", b.file(press)); return nil }
			b.restart()
			b.is(2, "two", 2, 2)
			require.Equal(t, "box", b.file("box"))
		})
	}
	t.Run("removes a config of the other kind, its removal was not durable", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one", noRun))
		lost := filepath.Join(b.dir, "instances", "press", "config.bin")
		require.NoError(t, os.WriteFile(lost, nil, 0o600))
		b.restart()
		require.Equal(t, "one", b.file(press))
		require.NoFileExists(t, lost)
	})
	t.Run("stops what is disabled, deleted, or runs another content", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(2, "one", disabled))
		b.must(b.cmd(1, "oven", named("oven")))
		b.must(b.deletion(2, named("oven")))
		b.must(b.cmd(1, "saw", named("saw")))
		for _, name := range []fleet.InstanceName{press, "oven", "saw"} {
			b.rt.running[name] = guardian.Status{Instance: name, Running: true, Guardian: guardian.Live}
		}
		b.restart()
		require.Zero(t, b.runsNow(press)+b.runsNow("oven"))
		require.Equal(t, int64(1), b.runsNow("saw"))
	})
	t.Run("starts again what a dead or hung guardian had", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		for _, health := range []guardian.Health{guardian.Dead, guardian.Hung} {
			st := b.rt.running[press]
			st.Guardian, st.Running = health, health == guardian.Hung
			b.rt.running[press] = st
			b.rt.said()
			b.restart()
			require.Equal(t, []string{"stop press", "start press 1"}, b.rt.said())
		}
	})
	t.Run("keeps and reports a guardian without a row; a delivery of the same content adopts it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		cmd := b.cmd(1, "one")
		b.rt.running[press] = guardian.Status{
			Instance: press, Running: true, Guardian: guardian.Live,
			Labels: guardian.Labels{Hash: cmd.Revision.Content.Hash, RunHash: cmd.Revision.RunHash},
		}
		b.restart()
		require.Empty(t, b.rt.said())
		all, err := b.Instances(t.Context())
		require.NoError(t, err)
		require.Equal(t, []fleet.NodeInstance{{Instance: press, Held: fleet.Held{Running: true}, Reason: ReasonUnknownGuardian}}, all)
		b.must(cmd)
		require.Empty(t, b.rt.said(), "it was adopted")
		b.must(b.cmd(2, "two"))
		require.Equal(t, []string{"stop press", "start press 2"}, b.rt.said())
	})
	t.Run("says why an enabled instance does not run, and goes on with the others", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		b.must(b.cmd(1, "oven", named("oven")))
		clear(b.rt.running)
		b.rt.onStart = startFails("one")
		b.restart()
		require.Equal(t, int64(1), b.runsNow("oven"))
		all, err := b.Instances(t.Context())
		require.NoError(t, err)
		require.Empty(t, all[0].Reason)
		require.Equal(t, press, all[1].Instance)
		require.Contains(t, all[1].Reason, "exit code 3")
		b.rt.onStart = nil
		require.NoError(t, b.settleAll(t.Context()))
		b.is(1, "one", 1, 1)
	})
}
