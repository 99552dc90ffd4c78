//go:build slow

package main

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// arena is a region whose network can be cut, and whose instances leave a witness.
type arena struct {
	*stack
	wires
	sites   []string
	witness string // the program that instances run

	mu   sync.Mutex
	cuts map[way]int // a way may be cut by several faults
}

// way is one direction between two ends.
func (a *arena) cut(t *testing.T, ways ...way) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var first []way
	for _, w := range ways {
		if a.cuts[w]++; a.cuts[w] == 1 {
			first = append(first, w)
		}
	}
	if len(first) > 0 {
		require.NoError(t, a.wires.cut(first...))
	}
}

func (a *arena) heal(t *testing.T, ways ...way) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var last []way
	for _, w := range ways {
		if a.cuts[w]--; a.cuts[w] == 0 {
			last = append(last, w)
		}
	}
	if len(last) > 0 {
		require.NoError(t, a.wires.heal(last...))
	}
}

func newArena(t *testing.T, sites int, lease time.Duration) *arena {
	t.Helper()
	realOnly(t)
	program, err := witnessProgram()
	require.NoError(t, err)
	a := &arena{witness: program, cuts: map[way]int{}}
	var nodes []string
	for _, site := range siteNames(sites) {
		a.sites = append(a.sites, string(site))
		nodes = append(nodes, pair(string(site))...)
	}
	data := e2eData(t)
	a.wires = newWires(t, nodes)
	t.Logf("nodes are joined by %s", a.kind())
	a.of(t, filepath.Join(data, "region"))
	file := filepath.Join(data, "network.json")
	require.NoError(t, writeJSON(file, a.network()))
	a.stack = launchAt(t, data, sites, lasting(lease), networkVariable+"="+file, linksVariable+"=")
	require.True(t, a.up(), "%s", a.said)
	a.connect(t)
	t.Cleanup(func() { a.dump(t) })
	require.NoError(t, a.started(t.Context(), a.stack))
	return a
}

// witnessProgram is the program of testdata/witness.
var witnessProgram = sync.OnceValues(func() (string, error) { return build("./testdata/witness") })

// folder makes one for a witness; it goes with the test.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(ground(t), "runs")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o777)) // programs under any uid write there
	return dir
}
