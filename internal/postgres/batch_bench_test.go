package postgres_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// BenchmarkBatch500 takes the same 500 instances through batch after batch: release, and
// prepare and record at both nodes, and end. It says what one item costs.
func BenchmarkBatch500(b *testing.B) {
	url := testkit.DatabaseURL(b)
	s, err := postgres.Open(b.Context(), url, testkit.Region)
	require.NoError(b, err)
	b.Cleanup(s.Close)
	raw, err := pgxpool.New(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(raw.Close)
	x := &benchmark{b, s, raw}
	names := x.site(fleet.MaxBatchItems)
	steps := map[string]time.Duration{}
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	before, backends := cpu(own), x.backends()
	b.ResetTimer()
	for n := range b.N {
		x.round(names, n+1, steps)
	}
	b.StopTimer()
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	items := float64(b.N * len(names))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/items, "ns/item")
	b.ReportMetric(float64((cpu(own)-before).Nanoseconds())/items, "go-cpu-ns/item")
	b.ReportMetric(float64((x.backends()-backends).Nanoseconds())/items, "postgres-cpu-ns/item")
	for step, took := range steps {
		b.ReportMetric(float64(took.Nanoseconds())/items, step+"-ns/item")
	}
}

func cpu(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }

// backends is the processor time of the database's own processes, 0 where nobody tells.
func (x *benchmark) backends() time.Duration {
	rows, err := x.raw.Query(x.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	require.NoError(x, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(x, err)
	var all time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		for _, at := range []int{11, 12} { // utime and stime, in hundredths of a second
			ticks, err := strconv.Atoi(strings.Fields(fields)[at])
			require.NoError(x, err)
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return all
}

type benchmark struct {
	*testing.B
	s   *postgres.Store
	raw *pgxpool.Pool
}

// site declares two nodes and so many instances, none of them released.
func (x *benchmark) site(n int) []fleet.InstanceName {
	_, err := x.s.PutSite(x.Context(), writeOf(siteKey), twoNodes(nodeA, nodeB))
	require.NoError(x, err)
	_, err = x.raw.Exec(x.Context(), "UPDATE nodes SET sealing_key = decode(repeat('ab', 32), 'hex'), enrolled_at = now()")
	require.NoError(x, err)
	body := jsonOf(`{"a":0}`)
	_, err = x.s.PutBody(x.Context(), project, []byte(`{"a":0}`))
	require.NoError(x, err)
	names := make([]fleet.InstanceName, n)
	for i := range names {
		names[i] = fleet.InstanceName(fmt.Sprintf("i%04d", i))
		_, err := x.s.PutInstance(x.Context(), postgres.InstanceChange{
			Write: writeOf(keyOf(names[i])), Content: body,
			Spec: fleet.InstanceSpec{Config: &body, Enabled: true, Durability: fleet.DurabilitySync},
		})
		require.NoError(x, err)
	}
	return names
}

func (x *benchmark) round(names []fleet.InstanceName, n int, steps map[string]time.Duration) {
	timed := func(step string, f func() error) {
		began := time.Now()
		require.NoError(x, f())
		steps[step] += time.Since(began)
	}
	id := batchID(n)
	bodies := make([][]byte, len(names))
	items := make([]postgres.BatchChange, len(names))
	for i, name := range names {
		bodies[i] = fmt.Appendf(nil, `{"a":%d,"round":%d}`, i, n)
		content := jsonOf(string(bodies[i]))
		items[i] = postgres.BatchChange{
			Instance: name, Generation: int64(n), Content: content,
			Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilitySync},
		}
	}
	timed("bodies", func() error {
		_, err := x.s.PutBodies(x.Context(), project, bodies)
		return err
	})
	var out postgres.BatchReleased
	timed("release", func() (err error) {
		out, err = x.s.ReleaseBatch(x.Context(), alone(releaseOf(id, items...)))
		return err
	})
	require.Equal(x, len(names), out.Claimed)
	for _, node := range out.Nodes {
		x.serve(id, node, timed)
	}
	timed("end", func() error {
		ended, err := x.s.EndBatch(x.Context(), id, endOfDelivery)
		require.Equal(x, len(names), ended.Succeeded)
		return err
	})
}

func (x *benchmark) serve(id fleet.BatchID, node fleet.NodeName, timed func(string, func() error)) {
	var list []fleet.BatchItem
	timed("prepare", func() error {
		token := jsonOf(string(id) + string(node)).Hash
		told, err := x.s.PrepareBatch(x.Context(), postgres.BatchPrepare{
			ID: id, Node: node, Tries: 3, TTL: 5 * minute, TokenHash: []byte(token)[:32],
		})
		require.NotNil(x, told)
		return err
	})
	timed("items", func() (err error) {
		list, err = x.s.BatchItems(x.Context(), id, node)
		return err
	})
	timed("record", func() error { return x.s.RecordBatch(x.Context(), id, node, takenAll(list)) })
}
