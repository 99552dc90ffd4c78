package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPageKeepsWhatWasNotMeasured(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	made := func(at time.Time, figures ...figure) report {
		return report{machine: "2 cores", at: at, n: 200, figures: figures}
	}
	fleet := atLeast("fleet: changes", 1900, 2000)
	fleet.measured = "1900/s"
	older := made(at, atMost("idle: CPU", 1, 4), fleet, atMost("fleet: memory", 300, 400)).page("")
	require.Len(t, rowsOf(older), 3)

	fleet.value, fleet.measured = 2300, "2300/s"
	page := made(at.Add(time.Hour), fleet, atMost("latency: p50", 1.9, 2)).page(older)
	rows := rowsOf(page)
	require.Len(t, rows, 3, "what is not measured any more goes with its measurement")
	for i, want := range [][2]string{{"idle: CPU", "2026-11-22 06:00"}, {"latency: p50", "2026-11-22 07:00"}, {"fleet: changes", "2026-11-22 07:00"}} {
		require.Equal(t, want, [2]string{rows[i][0], rows[i][len(rows[i])-1]})
	}
	require.Equal(t, page, made(at).page(page), "nothing measured, nothing changed")
}
