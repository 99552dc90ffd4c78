package deliveries_test

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
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// benchSites have as many instances each as a batch takes.
const benchSites = 10

// BenchmarkBatch500 takes 10 sites with 500 instances of 4 KB each through fleet change after
// fleet change, one batch an iteration, by all that the store does for one. It says what one
// item costs; the first delivery of all is not counted.
func BenchmarkBatch500(b *testing.B) {
	url := testkit.DatabaseURL(b)
	s, err := store.Open(b.Context(), url, testkit.Region)
	require.NoError(b, err)
	b.Cleanup(s.Close)
	raw, err := pgxpool.New(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(raw.Close)
	x := &benchmark{b, s, raw, map[string]time.Duration{}}
	x.declare()
	for n := range benchSites {
		x.batch(n)
	}
	clear(x.steps)
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	before, backends := cpu(own), x.backends()
	b.ResetTimer()
	for n := range b.N {
		x.batch(benchSites + n)
	}
	b.StopTimer()
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	items := float64(b.N * fleet.MaxBatchItems)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/items, "ns/item")
	b.ReportMetric(float64((cpu(own)-before).Nanoseconds())/items, "go-cpu-ns/item")
	b.ReportMetric(float64((x.backends()-backends).Nanoseconds())/items, "postgres-cpu-ns/item")
	for step, took := range x.steps {
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
	s     *store.Store
	raw   *pgxpool.Pool
	steps map[string]time.Duration
}

func (x *benchmark) exec(sql string, args ...any) {
	_, err := x.raw.Exec(x.Context(), sql, args...)
	require.NoError(x, err)
}

func (x *benchmark) timed(step string, f func() error) {
	began := time.Now()
	require.NoError(x, f(), step)
	x.steps[step] += time.Since(began)
}

// declare makes the sites with two nodes each, and their instances, none of them released.
func (x *benchmark) declare() {
	for i := range benchSites {
		site := benchSite(i)
		key := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}
		_, err := x.s.Declare(x.Context(), stores.WriteOf(key), stores.TwoNodes(fleet.NodeName(site+"-a"), fleet.NodeName(site+"-b")))
		require.NoError(x, err)
		x.exec(`INSERT INTO objects (kind, project, scope, name, generation, resource_version, spec, syncing, created_by)
			SELECT 'instance', $1, $2, format('i%s', lpad(i::text, 4, '0')), 1, 1, '{"template": "bench"}', '[]', 'ann'
			FROM generate_series(0, $3 - 1) i`, project, site, fleet.MaxBatchItems)
	}
	x.exec("UPDATE nodes SET sealing_key = decode(repeat('ab', 32), 'hex'), enrolled_at = now()")
}

func benchSite(n int) fleet.SiteName {
	return fleet.SiteName(fmt.Sprintf("plant-%d", n%benchSites))
}

// fleetRun starts a change of all instances.
func (x *benchmark) fleetRun(run int64) {
	x.exec("UPDATE fleet_runs SET state = 'succeeded', ended_at = now() WHERE ended_at IS NULL")
	x.exec(`INSERT INTO fleet_runs (fleet, run, project, generation, spec, state, waves, until_wave, requested_by, deadline_at)
		VALUES ($1, $2, $3, 1, '{"batchSize": 500}', 'running', 1, 1, 'ann', now() + interval '1 day')`, rollout, run, project)
	x.exec(`INSERT INTO fleet_targets (fleet, run, site, name, wave)
		SELECT $1, $2, o.scope, o.name, 1 FROM objects o WHERE o.kind = 'instance' ORDER BY o.scope, o.name`, rollout, run)
}

// batch takes the next site all the way.
func (x *benchmark) batch(n int) {
	x.StopTimer()
	run := int64(n/benchSites + 1)
	if n%benchSites == 0 {
		x.fleetRun(run)
	}
	id, site := batchID(n+1), benchSite(n)
	x.StartTimer()
	var targets []fleets.FleetTarget
	x.timed("targets", func() error {
		_, err := x.s.GetFleetRun(x.Context(), rollout, run)
		require.NoError(x, err)
		targets, err = x.s.FleetTargets(x.Context(), fleets.FleetPage{
			Fleet: rollout, Run: run, Wave: 1, Site: site, State: fleet.FleetTargetWaiting, Limit: fleet.MaxBatchItems,
		})
		return err
	})
	var out deliveries.BatchReleased
	r := releaseOf(id, x.compose(targets, n)...)
	r.Site, r.FleetRun = site, run
	x.timed("release", func() (err error) {
		out, err = x.s.ReleaseBatch(x.Context(), r)
		return err
	})
	require.Equal(x, fleet.MaxBatchItems, out.Claimed)
	for _, node := range out.Nodes {
		x.serve(id, node)
	}
	x.timed("end", func() error {
		ended, err := x.s.EndBatch(x.Context(), id)
		require.Equal(x, fleet.MaxBatchItems, ended.Succeeded)
		return err
	})
	x.timed("see", func() error {
		_, err := x.s.SeeFleet(x.Context(), fleet.FleetVisit{Fleet: rollout, Run: "run-1", Build: "build"})
		return err
	})
}

// compose makes of each target a small body of overrides, and one of 4 KB.
func (x *benchmark) compose(targets []fleets.FleetTarget, n int) []deliveries.BatchChange {
	items := make([]deliveries.BatchChange, len(targets))
	overrides, configs := make([][]byte, len(targets)), make([][]byte, len(targets))
	for i, t := range targets {
		overrides[i] = fmt.Appendf(nil, `{"name":%q,"round":%d}`, t.Instance, n)
		configs[i] = fmt.Appendf(nil, `{"name":%q,"round":%d,"text":%q}`, t.Instance, n, benchText)
		own, content := stores.JSONOf(string(overrides[i])), stores.JSONOf(string(configs[i]))
		items[i] = deliveries.BatchChange{
			Instance: t.Instance, Generation: t.Generation, Content: content, Spec: fleet.InstanceSpec{
				Template: "bench", TemplateGeneration: 1, Overrides: &own, Enabled: true, Durability: fleet.DurabilitySync,
			},
		}
	}
	x.timed("bodies", func() error {
		_, err := x.s.PutBodies(x.Context(), project, append(overrides, configs...))
		return err
	})
	return items
}

var benchText = strings.Repeat("a config of some size. ", 4096/23)

func (x *benchmark) serve(id fleet.BatchID, node fleet.NodeName) {
	x.timed("prepare", func() error {
		token := stores.JSONOf(string(id) + string(node)).Hash
		told, err := x.s.PrepareBatch(x.Context(), fleet.BatchPrepare{
			ID: id, Node: node, Tries: 3, TTL: 5 * minute, TokenHash: []byte(token)[:32],
		})
		require.NotNil(x, told)
		return err
	})
	var list []fleet.BatchItem
	x.timed("items", func() (err error) {
		list, err = x.s.BatchItems(x.Context(), id, node)
		return err
	})
	hashes := make([]fleet.Hash, len(list))
	for i, item := range list {
		hashes[i] = item.Revision.Content.Hash
	}
	x.timed("fetch", func() error {
		return x.s.BatchBodies(x.Context(), id, node, hashes, func(fleet.Hash, []byte) error { return nil })
	})
	x.timed("record", func() error { return x.s.RecordBatch(x.Context(), id, node, takenAll(list)) })
}
