package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// confines answers as a node's isolation does.
type confines func(fleet.ProjectName) (guardian.Confinement, error)

func (f confines) User(p fleet.ProjectName) (guardian.Confinement, error) { return f(p) }

const redRun = `{"command":["/bin/red"],"project":"red"}`

// X10, X19: a command that the node may not run is refused with its reason, and what ran goes on.
func TestIsolationMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opt.Isolation = confines(func(p fleet.ProjectName) (guardian.Confinement, error) {
		if p != "" {
			return guardian.Confinement{}, fleet.NoSeparation(p)
		}
		return guardian.Confinement{}, nil
	})
	b.must(b.cmd(1, `{"a":1}`))
	_, err := b.apply(b.cmd(2, `{"a":2}`, withRun(redRun)))
	require.Equal(t, fleet.IsolationMissing, fleet.KindOf(err), "%v", err)
	b.is(1, `{"a":1}`, 1, 2)
}

// X10: the config and the directory of a command are its user's, and stay so while it runs; what runs nothing is the
// agent's again.
func TestConfinedInstance(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	const uid = 2_000_061_000
	b := setup(t)
	b.opt.Isolation = confines(func(p fleet.ProjectName) (guardian.Confinement, error) {
		require.Equal(t, fleet.ProjectName("red"), p)
		return guardian.Confinement{UID: uid, Hide: b.dir}, nil
	})
	owned := func(by int) {
		t.Helper()
		for _, path := range []string{"", "config.json"} {
			info, err := os.Stat(filepath.Join(b.dir, "instances", string(press), path))
			require.NoError(t, err)
			require.Equal(t, by, int(info.Sys().(*syscall.Stat_t).Uid), path)
			require.Zero(t, info.Mode().Perm()&0o077, path)
		}
	}
	b.must(b.cmd(1, `{"a":1}`, withRun(redRun)))
	owned(uid)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "instances", string(press), "config.json"), []byte("torn"), 0o600))
	require.NoError(t, b.settleAll(t.Context()))
	b.is(1, `{"a":1}`, 1, 1)
	owned(uid)
	b.must(b.cmd(2, `{"a":2}`, withRun(redRun)))
	owned(uid)
	b.must(b.cmd(3, `{"a":3}`, noRun))
	info, err := os.Stat(filepath.Join(b.dir, "instances", string(press), "config.json"))
	require.NoError(t, err)
	require.Zero(t, info.Sys().(*syscall.Stat_t).Uid)
	require.Equal(t, `{"a":3}`, b.file(press))
}
