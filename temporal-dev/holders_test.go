package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func held(hashes ...fleet.Hash) instanceView {
	i := instanceView{Name: "press-7", site: "plant-1"}
	for n, hash := range hashes {
		i.Status.Nodes = append(i.Status.Nodes, holder{Node: laptopSite(i.site).Nodes[n].Name, RevisionHash: hash})
	}
	return i
}

func TestHolders(t *testing.T) {
	t.Parallel()
	t.Run("are whole only when two nodes hold the same", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, held("aa", "aa").whole())
		require.ErrorContains(t, held().whole(), "held by 0 nodes")
		require.ErrorContains(t, held("aa").whole(), "held by 1 nodes")
		require.ErrorContains(t, held("", "").whole(), "not the same")
		require.ErrorContains(t, held("aa", "bb").whole(), "not the same on plant-1-a and plant-1-b")
	})
	t.Run("are shown one node a line", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		require.NoError(t, printHolders(&out, []instanceView{held("0123456789abcdef", "")}))
		require.Contains(t, out.String(), "plant-1  press-7   plant-1-a        0         0123456789ab  false\n")
	})
}

func TestExamples(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string][]string{
		"templates": {"furnace"}, "instances": {"furnace-2", "line-meter", "press-7"},
	} {
		all, err := examplesIn(folder)
		require.NoError(t, err)
		var names []string
		for _, e := range all {
			require.NoError(t, fleet.ValidateName("name", e.name))
			names = append(names, e.name)
		}
		require.Equal(t, want, names)
	}
	require.NoError(t, laptopSite("plant-1").Validate())
}
