package replicas

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X8: where a machine does not let itself be divided, it says why.
func TestOwnCgroup(t *testing.T) {
	t.Parallel()
	const (
		v2     = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		hybrid = "40 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n"
		inside = "30 24 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	for _, c := range []struct{ name, mounts, own, want string }{
		{"a service", v2, "0::/system.slice/holdfast.service\n", "/sys/fs/cgroup/system.slice/holdfast.service"},
		{"the root", v2, "0::/\n", "/sys/fs/cgroup"},
		{"both versions", hybrid, "9:memory:/x\n0::/x\n", "/sys/fs/cgroup/unified/x"},
		{"a part of the tree", inside, "0::/docker/abc/x\n", "/sys/fs/cgroup/x"},
		{"outside of the part", inside, "0::/other\n", ""},
		{"version 1 alone", "40 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "9:memory:/x\n", ""},
	} {
		dir, err := ownCgroup(c.mounts, c.own)
		require.Equal(t, c.want, dir, c.name)
		require.Equal(t, c.want == "", err != nil, c.name)
	}
}

// S20, X8: an agent divides the cgroup around its own where that was left to it, and never its own: a
// manager of services could not start it there again.
func TestDivisible(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	unit := filepath.Join(root, "system.slice", "holdfast.service")
	agent := filepath.Join(unit, "agent")
	require.NoError(t, os.MkdirAll(agent, 0o700))
	for _, dir := range []string{filepath.Dir(unit), unit, agent} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("domain\n"), 0o600))
	}
	require.False(t, delegated(unit))
	for _, c := range []struct{ own, want string }{{root, root}, {unit, ""}, {agent, ""}} {
		dir, err := divisible(c.own, delegated)
		require.Equal(t, c.want, dir)
		if c.want == "" {
			require.ErrorContains(t, err, "DelegateSubgroup")
		}
	}
	left := func(dir string) bool { return dir == unit }
	dir, err := divisible(agent, left)
	require.NoError(t, err)
	require.Equal(t, unit, dir)
	_, err = divisible(unit, left)
	require.ErrorContains(t, err, "DelegateSubgroup")
	for _, name := range []string{"user.delegate", "trusted.delegate"} { // as systemd does; a file system may have either
		_ = unix.Setxattr(unit, name, []byte("1"), 0)
	}
	value := make([]byte, 8)
	if _, err := unix.Getxattr(unit, "user.delegate", value); err != nil {
		_, err = unix.Getxattr(unit, "trusted.delegate", value)
		require.NoError(t, err, "no attribute can be set here")
	}
	require.True(t, delegated(unit))
	require.False(t, delegated(agent))
}

// tree is what the kernel has in a cgroup, as plain files.
func tree(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func content(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	require.NoError(t, err)
	return string(text)
}

// S20: the limits of a replica are those that it asks for.
func TestLimits(t *testing.T) {
	t.Parallel()
	dir := tree(t, "cpuset cpu io memory pids\n")
	c, err := takeCgroups(dir, "holdfast-a")
	require.NoError(t, err)
	require.Equal(t, "+cpu +memory", content(t, dir, "cgroup.subtree_control"))
	require.Empty(t, content(t, dir, "cgroup.procs"), "nothing is moved")
	require.Equal(t, "+cpu +memory", content(t, dir, "holdfast-a", "cgroup.subtree_control"))
	at, err := c.make(first, fleet.Resources{CPU: 1.5, Memory: 1 << 20})
	require.NoError(t, err)
	require.Equal(t, "150000 100000", content(t, at, "cpu.max"))
	require.Equal(t, "1048576", content(t, at, "memory.max"))
	require.Equal(t, "1", content(t, at, "memory.oom.group"))
	ids, err := c.ids()
	require.NoError(t, err)
	require.Equal(t, []fleet.ReplicaID{first}, ids)
	free, err := c.make(second, fleet.Resources{})
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(free, "cpu.max"))
	require.NoFileExists(t, filepath.Join(free, "memory.max"))
	require.NoError(t, c.remove(t.Context(), second))
	require.NoDirExists(t, free)
	little, err := c.make(third, fleet.Resources{CPU: 0.001})
	require.NoError(t, err)
	require.Equal(t, "1000 100000", content(t, little, "cpu.max"), "the kernel takes no less")
	require.NoError(t, os.Remove(filepath.Join(little, "cpu.max")))
	require.NoError(t, os.MkdirAll(filepath.Join(little, "own", "deeper"), 0o700))
	require.NoError(t, c.remove(t.Context(), third))
	require.NoDirExists(t, little)

	require.False(t, c.killed(first))
	require.NoError(t, os.WriteFile(filepath.Join(at, "memory.events"), []byte("max 3\noom 1\noom_kill 2\n"), 0o600))
	require.True(t, c.killed(first))

	_, err = takeCgroups(tree(t, "cpu pids\n"), "holdfast-a")
	require.ErrorContains(t, err, `no controller "memory"`)
	_, err = takeCgroups("/no/such/cgroup", "holdfast-a")
	require.Equal(t, fleet.Precondition, fleet.KindOf(err))
	var none *Cgroups
	at, err = none.make(first, fleet.Resources{CPU: 1})
	require.NoError(t, err)
	require.Empty(t, at)
	require.NoError(t, none.remove(t.Context(), first))
}

// X8: it says what to do where something of before the delegation is in the way.
func TestOccupied(t *testing.T) {
	t.Parallel()
	err := occupied(control(filepath.Join(t.TempDir(), "missing", "cgroup.subtree_control"), "+cpu"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "systemctl")
	err = occupied(fleet.Errorf(fleet.Precondition, "set cgroup.subtree_control: %w", &os.PathError{Op: "write", Path: "x", Err: unix.EBUSY}))
	require.ErrorIs(t, err, unix.EBUSY)
	require.ErrorContains(t, err, "systemctl stop")
	require.NoError(t, occupied(nil))
}

// realCgroups are cgroups of this machine, without limits, or nil where it has none for this process.
func realCgroups(t *testing.T) *Cgroups {
	t.Helper()
	mounts, own := content(t, "/proc/self/mountinfo"), content(t, "/proc/self/cgroup")
	dir, err := ownCgroup(mounts, own)
	if err != nil {
		return nil
	}
	base, err := os.MkdirTemp(dir, "holdfast-test-")
	if err != nil {
		return nil
	}
	t.Cleanup(func() {
		require.NoError(t, (&Cgroups{base: base}).remove(context.Background(), first))
		require.NoError(t, os.Remove(base), "a cgroup is left")
	})
	return &Cgroups{base: base}
}

// X5: a replica that divided its cgroup ends as any other does.
func TestDivided(t *testing.T) {
	t.Parallel()
	cgroups := realCgroups(t)
	if cgroups == nil { // then no replica has one to divide
		_, err := FindCgroups("holdfast-test")
		require.Error(t, err)
		return
	}
	b := setup(t, func(o *Options) {
		process, ok := o.Drivers[fleet.DriverProcess].(*Process)
		require.True(t, ok)
		process.cgroups = cgroups
	})
	own := filepath.Join(cgroups.base, string(first), "own", "deeper")
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
		d.Command = []string{"sh", "-c", "mkdir -p " + own + " && echo 0 > " + own + "/cgroup.procs && exec " + d.Command[0] + " program"}
	}))))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Contains(t, content(t, own, "cgroup.procs"), itoa(st.GetPid()))
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	require.NoDirExists(t, filepath.Join(cgroups.base, string(first)))
}

// X5, X28: an agent removes the cgroups that belong to nothing before it starts anything, and never later:
// one may be of a replica that starts. What cannot be removed is no reason to run nothing.
func TestSweep(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	kept := filepath.Join(base, string(second), "in use")
	for _, dir := range []string{filepath.Join(base, string(first)), filepath.Dir(kept)} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	var process *Process
	b := setup(t, func(o *Options) {
		var ok bool
		process, ok = o.Drivers[fleet.DriverProcess].(*Process)
		require.True(t, ok)
		process.cgroups = &Cgroups{base: base}
	})
	<-b.keeper.ready
	require.Empty(t, b.keeper.absent)
	require.NoDirExists(t, filepath.Join(base, string(first)))
	require.FileExists(t, kept)
	starts, err := process.cgroups.make(third, fleet.Resources{})
	require.NoError(t, err)
	_, err = process.List(t.Context())
	require.NoError(t, err)
	require.DirExists(t, starts)
}

// X5: nothing of a replica outlives it, whatever it did to hide and although its guardian was killed;
// nor does its cgroup.
func TestHidden(t *testing.T) {
	t.Parallel()
	cgroups := realCgroups(t)
	if cgroups == nil { // then the node says so, and runs replicas without
		_, err := FindCgroups("holdfast-test")
		require.Error(t, err)
		return
	}
	b := setup(t, func(o *Options) {
		process, ok := o.Drivers[fleet.DriverProcess].(*Process)
		require.True(t, ok)
		process.cgroups = cgroups
	})
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
		d.Command = []string{"sh", "-c", "env -i setsid sh -c 'echo $$$$ > hidden; exec sleep 1000' & exec " + d.Command[0] + " program"}
	}))))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	var hidden string
	b.eventually(func() bool {
		text, err := os.ReadFile(b.in(first, "hidden"))
		hidden = strings.TrimSpace(string(text))
		return err == nil && hidden != ""
	}, "it does not hide")
	require.Contains(t, content(t, cgroups.base, string(first), "cgroup.procs"), hidden)
	st, _, err := b.runtime().Status(t.Context(), nameOf(first))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(st.GuardianPID, syscall.SIGKILL))
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	require.False(t, alive(hidden))
	require.NoDirExists(t, filepath.Join(cgroups.base, string(first)))
}
