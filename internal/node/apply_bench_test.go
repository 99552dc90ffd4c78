package node

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// BenchmarkApply is one delivery of a 64 KiB JSON config, compressed on its way, with the
// node's own loop beside it and the collection of all that was replaced. The CPU time includes that of the region which answers.
func BenchmarkApply(b *testing.B) {
	b.Run("active", func(b *testing.B) { benchmarkApply(b, 1) })
	b.Run("active without a command", func(b *testing.B) { benchmarkApply(b, 1, noRun) })
	b.Run("standby", func(b *testing.B) { benchmarkApply(b, 2, under(fleet.RoleStandby, 2)) })
}

const (
	benchSize      = 64 << 10
	benchInstances = 20
)

func benchmarkApply(b *testing.B, epoch int64, changes ...with) {
	n := setup(b)
	if epoch > 1 {
		require.NoError(b, n.Adopt(b.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: epoch}, ""))
	}
	answers := map[string][]byte{}
	n.region.before = func(w http.ResponseWriter, r *http.Request) bool { return answerZstd(w, r, answers) }
	cmds := make([]fleet.RefreshDeploymentCommand, b.N+benchInstances)
	for i := range cmds {
		name := named(fleet.InstanceName(fmt.Sprintf("press-%d", i%benchInstances)))
		cmds[i] = n.cmd(int64(i+1), string(benchConfig(i)), append([]with{name}, changes...)...)
		answers[cmds[i].DeploymentID] = packed(b, n.region.bodies[cmds[i].DeploymentID])
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	for _, cmd := range cmds[:benchInstances] { // the first of each name is another case
		n.must(cmd)
	}
	before := cpu(b)
	b.ReportAllocs()
	b.ResetTimer()
	for _, cmd := range cmds[benchInstances:] {
		n.must(cmd)
	}
	for more := true; more; { // what these deliveries left to be done
		var err error
		more, err = n.store.Collect(b.Context())
		require.NoError(b, err)
	}
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	cancel()
	require.NoError(b, <-done)
}

func benchConfig(seed int) []byte { return benchConfigOf(benchSize, seed) }

// benchConfigOf is JSON that compresses as configs do.
func benchConfigOf(size, seed int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	out := bytes.NewBufferString(`{"tags":[`)
	for out.Len() < size-100 {
		fmt.Fprintf(out, `{"address":"ns=2;s=Line%d.Motor.%d","deadband":%.4f},`, r.IntN(100), r.IntN(1000), r.Float64())
	}
	out.WriteString(`{}]}`)
	return out.Bytes()
}

func packed(b *testing.B, data []byte) []byte {
	b.Helper()
	enc, err := zstd.NewWriter(nil)
	require.NoError(b, err)
	defer enc.Close() //nolint:errcheck // it writes nowhere
	return enc.EncodeAll(data, nil)
}

func answerZstd(w http.ResponseWriter, r *http.Request, answers map[string][]byte) bool {
	id, isConfig := bytes.CutSuffix([]byte(r.URL.Path), []byte("/config"))
	if !isConfig {
		return false
	}
	w.Header().Set("Content-Encoding", "zstd")
	_, _ = w.Write(answers[string(id[bytes.LastIndexByte(id, '/')+1:])])
	return true
}

// cpu is what the process has used of the processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
