package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// witness is the command of an instance: it says that it started and with which config, and
// it says so when another copy of it lives.
type witness struct {
	path string
}

const witnessScript = `umask 0
exec 9>>"$WITNESS.lock"
flock -n 9 || { echo "DOUBLE $$" >>"$WITNESS"; exit 1; }
set -- $(sha256sum <"$HOLDFAST_CONFIG")
echo "$$ $HOLDFAST_NODE $HOLDFAST_EPOCH $1" >>"$WITNESS"
exec sleep 1000000`

// ground is a directory in which programs under any uid may write.
func ground(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-ground-*") // that of the test is in one that only its user may enter
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	return &witness{path: filepath.Join(ground(t), "witness")}
}

// run is the command; it counts as started after some seconds.
func (w *witness) run(startSeconds float64) *fleet.Run {
	return &fleet.Run{
		Command: []string{"/bin/sh", "-c", witnessScript}, Env: map[string]string{"WITNESS": w.path}, StartSeconds: startSeconds,
	}
}

// start is one line of a witness.
type start struct {
	pid   int
	node  string
	epoch int64
	hash  string
}

func (w *witness) starts(t *testing.T) []start {
	t.Helper()
	text, err := os.ReadFile(w.path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	require.NotContains(t, string(text), "DOUBLE", "an instance never runs twice")
	var all []start
	epoch := int64(0)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		require.Len(t, words, 4, line)
		pid, err := strconv.Atoi(words[0])
		require.NoError(t, err)
		one := start{pid: pid, node: words[1], hash: words[3]}
		one.epoch, err = strconv.ParseInt(words[2], 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, one.epoch, epoch, "epochs only rise:\n%s", text)
		epoch = one.epoch
		all = append(all, one)
	}
	return all
}

// runs waits until the command runs with a config, and gives its process id.
func (w *witness) runs(t *testing.T, hash string) int {
	t.Helper()
	pid := 0
	waitFor(t, "the command runs with its newest config", func(context.Context) error {
		all := w.starts(t)
		if len(all) == 0 {
			return errNotYet
		}
		last := all[len(all)-1]
		if last.hash != hash || !alive(last.pid) {
			return fmt.Errorf("its last start was %+v", last)
		}
		pid = last.pid
		return nil
	})
	return pid
}

// alone waits until of all copies that ever started one is left.
func (w *witness) alone(t *testing.T) {
	t.Helper()
	waitFor(t, "one copy runs", func(context.Context) error {
		left := map[int]bool{}
		for _, s := range w.starts(t) {
			if alive(s.pid) {
				left[s.pid] = true
			}
		}
		if len(left) != 1 {
			return fmt.Errorf("%d run: %v", len(left), left)
		}
		return nil
	})
}
