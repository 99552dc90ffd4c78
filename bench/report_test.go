package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func of(values ...float64) []float64 { return values }

func TestFigure(t *testing.T) {
	t.Parallel()
	pairs := series{ours: of(41, 40, 45, 39, 90), plain: of(20, 20, 20, 20, 20)}
	count := series{ours: of(2)}
	for _, c := range []struct {
		f     figure
		value float64
		cells []string // without the note
	}{
		{figure{name: "r", unit: "ms", series: pairs, limit: 2}, 2.05, []string{"r", "41.0 (39.0 to 90.0) ms", "20.0 ms", "2.05 (1.95 to 4.50)", "≤ 2", "**no**", "0.0"}},
		{figure{name: "r", unit: "/s", series: pairs, limit: 2, least: true}, 2.05, []string{"r", "41.0 (39.0 to 90.0) /s", "20.0 /s", "2.05 (1.95 to 4.50)", "≥ 2", "yes", "0.0"}},
		{figure{name: "v", unit: "ms", series: pairs, by: byValue, limit: 50}, 41, []string{"v", "41.0 (39.0 to 90.0) ms", "20.0 ms", "2.05 (1.95 to 4.50)", "≤ 50 ms", "yes", "0.0"}},
		{figure{name: "d", unit: "ms", series: pairs, by: byDifference, limit: 20}, 21, []string{"d", "41.0 (39.0 to 90.0) ms", "20.0 ms", "2.05 (1.95 to 4.50)", "≤ 20 ms more", "**no**", "0.0"}},
		{figure{name: "c", series: count, by: byValue, limit: 2, others: 0.31}, 2, []string{"c", "2.00", "-", "-", "≤ 2", "yes", "0.3"}},
	} {
		require.InDelta(t, c.value, c.f.value(), 1e-9, c.f.name)
		require.Equal(t, c.cells, c.f.cells()[:len(c.cells)])
	}
	for v, want := range map[float64]string{0: "0.00", 0.279: "0.28", 9.994: "9.99", 10: "10.0", 99.94: "99.9", 100: "100", 12345.6: "12346", -41: "-41.0"} {
		require.Equal(t, want, short(v))
	}
}

func TestPageKeepsWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	page := func(at time.Time, older string, figures ...figure) string {
		out, err := report{machine: "2 cores", at: at, n: 60, figures: figures}.page(older)
		require.NoError(t, err)
		return out
	}
	named := func(name string, value float64) figure {
		return figure{name: name, series: series{ours: of(value)}, by: byValue}
	}
	const head, foot = "# Benchmarks\n\nBy hand.\n\n", "\nMore, with a table:\n\n| a |\n| - |\n"
	older := page(at, head+table(nil)+foot, named("idle: CPU", 1), named("fleet: changes", 1900), named("fleet: memory", 300))
	require.Len(t, rowsOf(older), 3)

	newer := page(at.Add(time.Hour), older, named("fleet: changes", 2300), named("latency: p50", 1.9))
	rows := rowsOf(newer)
	require.Len(t, rows, 3, "what is not measured any more goes with its measurement")
	for i, want := range [][2]string{{"idle: CPU", "2026-11-22 06:00"}, {"latency: p50", "2026-11-22 07:00"}, {"fleet: changes", "2026-11-22 07:00"}} {
		require.Equal(t, want, [2]string{rows[i][0], rows[i][len(rows[i])-1]})
	}
	require.Equal(t, newer, page(at, newer), "nothing measured, nothing changed")
	require.Equal(t, head, newer[:len(head)])
	require.Equal(t, foot, newer[len(newer)-len(foot):], "the text is written by hand")

	_, err := report{}.page("# Benchmarks\n")
	require.ErrorContains(t, err, "no table")
}
