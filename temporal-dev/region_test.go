//go:build slow

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// once runs the program as a person would, to its end.
func once(t *testing.T, data string, flags ...string) string {
	t.Helper()
	args := slices.Concat([]string{asProgram, "--once", "--data", data, lasting(e2eLease)}, freeFlags, flags)
	out, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

var holderLine = regexp.MustCompile(`(?m)^plant-\d +\S+ +plant-\d-[ab] .*$`)

// unrolled are the lines without who is active, which a node that is stopped first gives to the
// other one, and how many are, and run.
func unrolled(lines []string) (held []string, active, running int) {
	for _, line := range lines {
		f := strings.Fields(line) // site, instance, node, role, revision, hash, running
		held = append(held, strings.Join(slices.Concat(f[:3], f[4:6]), " "))
		if f[3] == "active" {
			active++
		}
		if f[6] == "true" {
			running++
		}
	}
	return held, active, running
}

// upRegion starts a region in this process and gives it when it is up.
func upRegion(t *testing.T, data string, sites int) (devDoc, func()) {
	t.Helper()
	o := freeOptions(data)
	o.sites = sites
	o.pace = e2ePace
	said := &transcript{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runRegion(ctx, o, output{progress: said, trouble: said}) }()
	stop := func() {
		cancel()
		require.NoError(t, <-ended, said)
		ended <- nil
	}
	t.Cleanup(stop)
	waitFor(t, "the region is up", func(context.Context) error {
		if !strings.Contains(said.String(), "the region is up") && len(ended) == 0 {
			return errNotYet
		}
		return nil
	})
	require.NotContains(t, said.String(), "!", "nothing went wrong")
	var doc devDoc
	require.NoError(t, readJSON(filepath.Join(data, devFile), &doc))
	return doc, stop
}

// holdersNow is the table of who holds what.
func holdersNow(ctx context.Context, doc devDoc) (string, error) {
	seen, err := newClient(doc.API, doc.Token, nil).holders(ctx, siteNames(defaultSites))
	var table bytes.Buffer
	if err == nil {
		err = printHolders(&table, seen)
	}
	return table.String(), err
}

func TestRegion(t *testing.T) {
	t.Parallel()
	t.Run("does not start where a port is taken, and says which", func(t *testing.T) {
		t.Parallel()
		taken := net.JoinHostPort(loopback, strconv.Itoa(listen(t).Port))
		var stderr bytes.Buffer
		code := run([]string{"--data", t.TempDir(), "--api", taken}, &bytes.Buffer{}, &stderr)
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr.String(), taken+" is taken by another program")
	})
	t.Run("delivers once, and a second start finds everything as it was", func(t *testing.T) {
		t.Parallel()
		realOnly(t)
		data := t.TempDir()
		first := once(t, data)
		held := holderLine.FindAllString(first, -1)
		require.Len(t, held, 2*2*3, first)
		require.NotContains(t, first, "! ")
		before, actives, running := unrolled(held)
		require.Equal(t, []int{2 * 3, 2}, []int{actives, running}, first)
		doc, _ := upRegion(t, data, defaultSites)
		waitFor(t, "everything is as it was", func(ctx context.Context) error {
			table, err := holdersNow(ctx, doc)
			after, activesAfter, runningAfter := unrolled(holderLine.FindAllString(table, -1))
			if err == nil && (!slices.Equal(before, after) || actives != activesAfter || running != runningAfter) {
				err = fmt.Errorf("it was\n%s\nand is\n%s", first, table)
			}
			return err
		})
	})
	t.Run("lets its nodes be taken away one by one", func(t *testing.T) {
		t.Parallel()
		realOnly(t)
		data := t.TempDir()
		doc, stop := upRegion(t, data, 1)
		require.Len(t, doc.Processes, 5)
		require.Equal(t, "plant-1-b", doc.Processes[4].Name)
		var out bytes.Buffer
		require.Equal(t, exitOK, run([]string{"stop", "plant-1-b", "--data", data}, &out, &out), &out)
		require.False(t, alive(doc.Processes[4].PID))
		require.Equal(t, exitOK, run([]string{"start", "plant-1-b", "--data", data}, &out, &out), &out)
		api := newClient(doc.API, doc.Token, nil)
		require.NoError(t, api.nodesReady(t.Context(), func() []fleet.NodeName { return []fleet.NodeName{"plant-1-a", "plant-1-b"} }))
		stop()
		for _, p := range doc.Processes {
			require.False(t, alive(p.PID), p.Name)
		}
	})
}
