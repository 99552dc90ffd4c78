package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// BenchmarkApplyBatch is a batch of 500 configs of 4 KB, of which a node holds 1,000 names,
// compressed on its way, with the node's own loop beside it and the collection of what was
// replaced. The CPU time includes that of the region which answers from memory.
func BenchmarkApplyBatch(b *testing.B) {
	b.Run("active", func(b *testing.B) { benchmarkApplyBatch(b, fleet.RoleActive) })
	b.Run("standby", func(b *testing.B) { benchmarkApplyBatch(b, fleet.RoleStandby) })
}

const (
	batchNames = 1000
	batchItems = 500
	batchSize  = 4 << 10
)

// packedBatch is what the region answers of one batch.
type packedBatch struct {
	cmd           fleet.BatchCommand
	items, bodies []byte
}

func benchmarkApplyBatch(b *testing.B, role fleet.Role) {
	m := batched(b, role)
	const first = 4 // the store fills up: slots, and bodies to collect
	batches := make([]packedBatch, b.N+first)
	for n := range batches {
		batches[n] = packBatch(b, m, n)
	}
	var now *packedBatch
	m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Encoding", "zstd")
		switch tail(r) {
		case "items":
			_, _ = w.Write(now.items)
		case "bodies":
			w.Header().Set("Content-Type", bodiesType)
			_, _ = w.Write(now.bodies)
		case "results":
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Del("Content-Encoding")
			w.WriteHeader(http.StatusNoContent)
		}
		return true
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	apply := func(batches []packedBatch) {
		for n := range batches {
			now = &batches[n]
			out, err := m.ApplyBatch(b.Context(), now.cmd, nil)
			require.NoError(b, err)
			require.Equal(b, batchItems, out.Applied)
		}
		for more := true; more; {
			var err error
			more, err = m.store.Collect(b.Context())
			require.NoError(b, err)
		}
	}
	apply(batches[:first])
	begun, before := time.Now(), cpu(b)
	b.ReportAllocs()
	b.ResetTimer()
	apply(batches[first:])
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N*batchItems), "cpu-µs/item")
	b.ReportMetric(float64(time.Since(begun).Microseconds())/float64(b.N*batchItems), "µs/item")
	cancel()
	require.NoError(b, <-done)
}

func packBatch(b *testing.B, m *many, n int) packedBatch {
	b.Helper()
	m.next()
	clear(m.bodies)
	var stream bytes.Buffer
	for i := range batchItems {
		name := fleet.InstanceName(fmt.Sprintf("press-%05d", (n*batchItems+i)%batchNames))
		data := benchConfigOf(batchSize, n*batchItems+i)
		it := m.add(name, int64(n+1), string(data))
		stream.Write(record(it.Revision.Content.Hash, data))
	}
	items, err := json.Marshal(map[string]any{"items": m.items})
	require.NoError(b, err)
	return packedBatch{cmd: m.command(), items: packed(b, items), bodies: packed(b, stream.Bytes())}
}
