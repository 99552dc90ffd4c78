package deliveries_test

import (
	"crypto/sha256"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// BenchmarkAlone delivers to one instance after the other of the same region, each by all that the
// store does for a single delivery: one delivery is one iteration. What all instances were
// delivered once before is not counted.
func BenchmarkAlone(b *testing.B) {
	url := testkit.DatabaseURL(b)
	s, err := store.Open(b.Context(), url, testkit.Region)
	require.NoError(b, err)
	b.Cleanup(s.Close)
	raw, err := pgxpool.New(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(raw.Close)
	x := &benchmark{b, s, raw, map[string]time.Duration{}}
	x.declare()
	x.batch(0)
	for n := range 2 * warmUp {
		x.alone(n)
	}
	clear(x.steps)
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	before, backends := cpu(own), x.backends()
	b.ResetTimer()
	for n := range b.N {
		x.alone(2*warmUp + n)
	}
	b.StopTimer()
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	each := float64(b.N)
	b.ReportMetric(float64((cpu(own)-before).Nanoseconds())/each, "go-cpu-ns/op")
	b.ReportMetric(float64((x.backends()-backends).Nanoseconds())/each, "postgres-cpu-ns/op")
	for step, took := range x.steps {
		b.ReportMetric(float64(took.Nanoseconds())/each, step+"-ns/op")
	}
}

// warmUp is how many deliveries make every statement's plan.
const warmUp = 25

// alone releases a new config of the next instance of the first site, and takes it all the way.
func (x *benchmark) alone(n int) {
	x.StopTimer()
	site := benchSite(0)
	name := fleet.InstanceName(fmt.Sprintf("i%04d", n%fleet.MaxBatchItems))
	body := fmt.Appendf(nil, `{"name":%q,"alone":%d}`, name, n)
	_, err := x.s.PutBody(x.Context(), project, body)
	require.NoError(x, err)
	content := stores.JSONOf(string(body))
	change := deliveries.InstanceChange{
		Write: stores.WriteOf(fleet.InstanceKey(site, name)), Content: content, Release: true, Reason: "because",
		Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilitySync},
	}
	of := fleet.Subject{Site: site, Instance: name, Run: fmt.Sprintf("run-%d", n), Build: "build"}
	x.StartTimer()
	x.timed("release", func() error {
		_, err := x.s.PutInstance(x.Context(), change)
		return err
	})
	x.take("observe", of, fleet.Step{})
	d := x.take("claim", of, fleet.Step{Claim: &fleet.Claim{
		Subject: of, Step: "1", Workflow: of.Name(), Deadline: time.Hour, TTL: 5 * minute,
	}}).Seen.Open
	require.Len(x, d.Targets, 2)
	for _, t := range d.Targets {
		sum := sha256.Sum256(fmt.Append(nil, d.ID, t.Node))
		told := x.take("prepare", of, fleet.Step{Prepare: &fleet.Prepare{
			Subject: of, Delivery: d.ID, Node: t.Node, TTL: 5 * minute, TokenHash: sum[:],
		}})
		require.NotNil(x, told.Prepared)
		x.take("record", of, fleet.Step{Record: &fleet.Record{
			Subject: of, Delivery: d.ID, Node: t.Node, Response: fleet.DeploymentStatusResponse{Held: stores.Holding(d.Revision)},
		}})
	}
	ended := x.take("end", of, fleet.Step{End: &fleet.End{
		Subject: of, Delivery: d.ID, State: fleet.DeliverySucceeded, Operation: fleet.OperationSucceeded,
	}})
	require.Nil(x, ended.Seen.Open)
	require.Empty(x, ended.Seen.Owed)
}

func (x *benchmark) take(name string, of fleet.Subject, step fleet.Step) (out fleet.Walked) {
	x.timed(name, func() (err error) {
		out, err = x.s.Walk(x.Context(), of, step, func(fleet.InstanceSeen, int) (fleet.Step, bool) { return fleet.Step{}, false })
		return err
	})
	return out
}
