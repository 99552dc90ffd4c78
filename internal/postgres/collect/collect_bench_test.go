package collect_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// manyUnused makes bodies of 4 KB that nothing refers to, beside ten times as many that
// something does.
func (b *bench) manyUnused(n int) {
	b.T.Helper()
	b.histories(n, 10)
	b.Exec(`WITH made AS (INSERT INTO bodies (hash, size, used_at)
			SELECT sha256(convert_to('unused ' || i, 'UTF8')), 4096, now() - interval '2 days' + i * interval '1 ms' FROM generate_series(1, $1::int) i
			RETURNING id, hash),
		allowed AS (INSERT INTO body_projects SELECT 'default', hash FROM made)
		INSERT INTO body_chunks SELECT id, 0, decode(repeat(encode(hash, 'hex'), 128), 'hex') FROM made`, n)
	b.Exec(`ANALYZE`)
}

func (b *bench) manyEvents(n int) {
	b.T.Helper()
	b.Age("8 days")
	b.Exec(`INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, after, at)
		SELECT 1, 'updated', 'instance', 'default', 'plant', 'i' || i, gen_random_uuid(), i, 'ann',
		       jsonb_build_object('spec', jsonb_build_object('config', encode(sha256(convert_to(i::text, 'UTF8')), 'hex'))), now() - interval '8 days'
		FROM generate_series(1, $1::int) i`, n)
	b.Exec(`ANALYZE`)
}

// puts writes new instances until stop, and gives how long each took, in order of length.
func (b *bench) puts(stop <-chan struct{}) []time.Duration {
	var took []time.Duration
	for n := 0; ; n++ {
		select {
		case <-stop:
			slices.Sort(took)
			return took
		default:
		}
		since := time.Now()
		b.Put(fmt.Sprintf(`{"put":%d,"at":%d}`, n, since.UnixNano()), stores.Named(fmt.Sprintf("p%d", n)))
		took = append(took, time.Since(since))
	}
}

var measure = flag.Bool("measure", false, "run the tests that only measure; with -v")

// TestCollectionCosts prints what a collection costs, and what a PUT beside it pays.
func TestCollectionCosts(t *testing.T) {
	if !*measure {
		t.Skip("it only measures: -args -measure")
	}
	b := setup(t)
	b.manyEvents(100_000)
	b.manyUnused(10_000)
	alone := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(alone) })
	report := func(what string, took []time.Duration) {
		t.Logf("%s: %d PUTs, median %v, p99 %v, longest %v", what, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
	report("no collection", b.puts(alone))
	for _, kind := range fleet.CollectedKinds() {
		stop := make(chan struct{})
		puts := stores.Background(func() ([]time.Duration, error) { return b.puts(stop), nil })
		since := time.Now()
		var longest time.Duration
		var all int64
		pages := 0
		for more := true; more; pages++ {
			began := time.Now()
			var n int64
			var err error
			n, more, err = b.CollectPage(b.Ctx(), kind, fleet.DefaultRetention())
			require.NoError(t, err)
			all += n
			longest = max(longest, time.Since(began))
		}
		took := time.Since(since)
		close(stop)
		beside, _ := puts()
		t.Logf("%s: %d in %v, %.0f/s, %d pages, the longest %v", kind, all, took.Round(time.Millisecond), float64(all)/took.Seconds(), pages, longest)
		report("  beside it", beside)
	}
}
