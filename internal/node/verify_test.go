package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// alters changes the delivered file of a name, and keeps what the sweep compares: size and modification time.
func (e *expecting) alters(name fleet.InstanceName, text string) {
	path := filepath.Join(e.dir, "instances", string(name), "config.json")
	before, err := os.Stat(path)
	require.NoError(e.t, err)
	require.Len(e.t, text, int(before.Size()))
	require.NoError(e.t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(e.t, os.Chtimes(path, before.ModTime(), before.ModTime()))
}

// N54, X12: on request a node hashes what it delivered, and writes again what somebody changed; a regular
// comparison and the sweep compare size and modification time.
func TestReconcileHashesFilesOnRequest(t *testing.T) {
	t.Parallel()
	e := expect(t)
	for _, name := range []fleet.InstanceName{"altered", "cut", "gone", "touched", "whole"} {
		e.must(e.deploys(name, 1, "one"))
	}
	run := e.cmd(1, "one") // a command that runs
	e.must(run)
	e.mu.Lock()
	e.deployed[press] = run
	e.version.Number++
	e.mu.Unlock()
	file := func(name fleet.InstanceName) string {
		return filepath.Join(e.dir, "instances", string(name), "config.json")
	}
	e.rt.said()
	e.region.asked()

	e.alters("altered", "eno")
	e.alters(press, "eno")
	report, err := e.reconcile()
	require.NoError(t, err)
	require.Equal(t, []int{6, 0}, []int{report.Equal, report.Restored})
	require.NoError(t, e.settleAll(t.Context()))
	require.Equal(t, "eno", e.file("altered"), "neither looks into a file of the same size and time")

	require.NoError(t, os.WriteFile(file("cut"), []byte("o"), 0o600))
	require.NoError(t, os.Remove(file("gone")))
	require.NoError(t, os.Chtimes(file("touched"), time.Now(), time.Now()))
	report, err = e.compared(true)
	require.NoError(t, err)
	require.True(t, report.Unchanged, "the set is")
	require.Equal(t, []int{4, 0}, []int{report.Restored, report.Failed})
	require.ElementsMatch(t, []fleet.Differs{
		{Instance: "altered", Why: "file_changed"},
		{Instance: "cut", Why: "file_changed"},
		{Instance: "gone", Why: "file_missing"},
		{Instance: press, Why: "file_changed"},
	}, report.Differs)
	require.Equal(t, report, e.reports[len(e.reports)-1], "the region gets the same")
	for _, name := range []fleet.InstanceName{"altered", "cut", "gone", "touched", "whole", press} {
		require.Equal(t, "one", e.file(name), name)
	}
	require.Empty(t, e.rt.said(), "the command that runs is left alone")
	require.Empty(t, e.region.asked(), "all of it comes from the node's own store")

	report, err = e.compared(true)
	require.NoError(t, err)
	require.Zero(t, report.Restored)
	require.True(t, report.Clean())
}

// N54: a node without the right to run leaves the files alone.
func TestStandbyHashesNoFiles(t *testing.T) {
	t.Parallel()
	e := expect(t)
	e.must(e.deploys("one", 1, "one"))
	e.alters("one", "eno")
	nothing := func(name fleet.InstanceName, why string, err error) { require.Fail(t, why, "%s: %v", name, err) }
	e.mayRun = false
	require.NoError(t, e.verifyFiles(t.Context(), nothing))
	e.mayRun = true
	_, _, err := e.store.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 2}, "plant-1-b")
	require.NoError(t, err)
	require.NoError(t, e.verifyFiles(t.Context(), nothing))
	require.Equal(t, "eno", e.file("one"))
}
