package link_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// ledger is what a region keeps of replicas, as far as the link sees it.
type ledger struct {
	region *region
	take   func(fleet.ReplicasReport) error // nil takes all
	// refused counts the looks for deployments that fail from now on.
	refused atomic.Int32

	mu      sync.Mutex
	sets    map[fleet.NodeName][2]int64
	reports []fleet.ReplicasReport
	woken   map[string]int
}

var _ link.ReplicaStore = (*ledger)(nil)

func (r *region) ledger() *ledger {
	return &ledger{region: r, sets: map[fleet.NodeName][2]int64{}, woken: map[string]int{}}
}

func (l *ledger) with(o *link.Options) {
	o.Replicas = l
	o.Wake = func(_ context.Context, subjects []string) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range subjects {
			l.woken[s]++
		}
		return nil
	}
}

func (l *ledger) ReplicasReported(
	_ context.Context, r fleet.ReplicasReport,
) (deployments.ReplicasHeard, error) {
	if l.take != nil {
		if err := l.take(r); err != nil {
			return deployments.ReplicasHeard{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
	return deployments.ReplicasHeard{Wake: []string{"deployment.web"}}, nil
}

func (l *ledger) NodeStopped(
	ctx context.Context, id fleet.ConnectionID, identity string,
) (deployments.ReplicasHeard, error) {
	return deployments.ReplicasHeard{Wake: []string{"stopped." + identity}}, l.region.store.DeregisterConnection(ctx, id, identity)
}

func (l *ledger) NodeSetVersion(_ context.Context, node fleet.NodeName) (era, version int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, is := l.sets[node]; is {
		return s[0], s[1], nil
	}
	return 1, 0, nil
}

func (l *ledger) NodeSetVersions(ctx context.Context, server string) (map[fleet.ConnectionID]fleet.NodeReplicas, error) {
	out := map[fleet.ConnectionID]fleet.NodeReplicas{}
	all, err := l.region.store.ListConnections(ctx, "", "", 100)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range all {
		if s, is := l.sets[c.Node]; is && c.Server == server {
			out[c.ID] = fleet.NodeReplicas{Era: s[0], Version: s[1]}
		}
	}
	return out, err
}

func (l *ledger) WakeDeploymentsOn(_ context.Context, nodes []fleet.NodeName) ([]string, error) {
	if l.refused.Add(-1) >= 0 {
		return nil, fleet.Errorf(fleet.Unavailable, "the database is away")
	}
	var out []string
	for _, n := range nodes {
		out = append(out, "on."+string(n))
	}
	return out, nil
}

func (l *ledger) put(node fleet.NodeName, era, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets[node] = [2]int64{era, version}
}

func (l *ledger) taken() []fleet.ReplicasReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

func (l *ledger) wakes(subject string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.woken[subject]
}

// connected connects a node to a server.
func (r *region) connected(s *server, node fleet.NodeName) *live {
	r.t.Helper()
	r.key = r.node(node)
	return r.dial(s.address, signed(r.key)).connect(asNode(string(node), ""))
}

// toldSet waits for the next word about the node's set.
func (l *live) toldSet() [2]int64 {
	l.t.Helper()
	set := l.await("set", func(m *nodev1.ConnectResponse) bool { return m.GetReplicaSet() != nil }).GetReplicaSet()
	return [2]int64{set.GetEra(), set.GetVersion()}
}

// untold wants no word about the set among what was said until a heartbeat that is sent now is acked.
func (l *live) untold() {
	l.t.Helper()
	l.beat(0)
	l.await("ack and no set", func(m *nodev1.ConnectResponse) bool {
		require.Nil(l.t, m.GetReplicaSet(), "it was told")
		return m.GetHeartbeatAck() != nil
	})
}

func (l *live) report(sequence uint64, change ...func(*nodev1.ReplicasReport)) {
	l.t.Helper()
	in := &nodev1.ReplicasReport{Sequence: sequence, SetVersion: 7, Complete: true, Replicas: []*nodev1.ReplicaStatus{{
		Id: "0123456789ab", Phase: "running", Health: "HEALTHY", Endpoint: "10.0.0.1:80", Ports: map[string]uint32{"http": 80},
		Pid: 9, Age: durationpb.New(1), Unready: true,
	}}}
	for _, f := range change {
		f(in)
	}
	require.NoError(l.t, l.say(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_ReplicasReport{ReplicasReport: in}}))
}

func (l *live) reportAcked() uint64 {
	l.t.Helper()
	return l.await("ack of a report", func(m *nodev1.ConnectResponse) bool {
		return m.GetReplicasReportAck() != nil
	}).GetReplicasReportAck().GetSequence()
}

// Each version of a node's set is told once to each of its connections, wherever its stream is.
func TestSets(t *testing.T) {
	t.Parallel()
	changed := func(r *region) { r.exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-a 5')`) }
	t.Run("when the stream opens, also of a node that never had one", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		s := r.serve(deaf(), ledger.with)
		require.Equal(t, [2]int64{1, 0}, r.connected(s, "plant-1-a").toldSet())
		ledger.put("plant-1-b", 3, 4)
		require.Equal(t, [2]int64{3, 4}, r.connected(s, "plant-1-b").toldSet())
		r.client(s).connect(offer()).untold()
	})
	t.Run("at once when it changes, and once", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		first, second := r.serve(deaf(), ledger.with), r.serve(deaf(), ledger.with)
		r.listens(2)
		a, b := r.connected(first, "plant-1-a"), r.connected(second, "plant-1-b")
		require.Equal(t, [2]int64{1, 0}, a.toldSet())
		b.toldSet()
		changed(r)
		require.Equal(t, [2]int64{1, 5}, a.toldSet())
		changed(r)
		r.exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-a 4')`)
		r.exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-b 2')`)
		require.Equal(t, [2]int64{1, 2}, b.toldSet())
		r.exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-a 6')`)
		require.Equal(t, [2]int64{1, 6}, a.toldSet(), "and not the versions before it again")
	})
	t.Run("by comparing, when the word was lost or the era was raised", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		ledger.put("plant-1-a", 1, 9)
		s := r.serve(slow(), ledger.with)
		l := r.connected(s, "plant-1-a")
		require.Equal(t, [2]int64{1, 9}, l.toldSet())
		ledger.put("plant-1-a", 1, 10)
		require.Equal(t, [2]int64{1, 10}, l.toldSet())
		ledger.put("plant-1-a", 2, 3)
		require.Equal(t, [2]int64{2, 3}, l.toldSet(), "lower, of a later era")
		s.compared(r)
		l.untold()
	})
	t.Run("by a process that knows of no replicas, never", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(slow())
		l := r.connected(s, "plant-1-a")
		changed(r)
		s.compared(r)
		l.untold()
	})
}

// S53, X4: a report is acked when it is durable, and what it moved is woken.
func TestReports(t *testing.T) {
	t.Parallel()
	t.Run("are acked when they are written", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		var away atomic.Int64
		away.Store(2)
		ledger.take = func(fleet.ReplicasReport) error {
			if away.Add(-1) >= 0 {
				return fleet.Errorf(fleet.Unavailable, "no database")
			}
			return nil
		}
		l := r.connected(r.serve(slow(), ledger.with), "plant-1-a")
		l.report(41)
		l.beat(0)
		l.acked() // heartbeats do not wait for it
		require.EqualValues(t, 41, l.reportAcked())
		require.Len(t, ledger.taken(), 1)
		got := ledger.taken()[0]
		require.Equal(t, fleet.ReplicasReport{
			Node: "plant-1-a", Connection: fleet.ConnectionID(l.id), Set: fleet.SetVersion{Number: 7}, Complete: true, Replicas: []fleet.ReplicaStatus{{
				ID: "0123456789ab", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Endpoint: "10.0.0.1:80",
				Ports: map[string]int{"http": 80}, PID: 9, Age: 1, Unready: true,
			}},
		}, got)
		r.eventually("what it is about is woken", func() bool { return ledger.wakes("deployment.web") == 1 })
		l.report(42)
		require.EqualValues(t, 42, l.reportAcked())
	})
	t.Run("of a connection that has ended are not acked", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		ledger.take = func(report fleet.ReplicasReport) error { return fleet.Errorf(fleet.Gone, "%s", fleet.Replaced) }
		s := r.serve(deaf(), ledger.with)
		l := r.connected(s, "plant-1-a")
		r.exec(`UPDATE connections SET state = 'Disconnected', reason = 'replaced', ended_at = now()`)
		l.report(1)
		require.Equal(t, "replaced", refused(t, codes.Aborted, l.ended()))
	})
	many := func(in *nodev1.ReplicasReport) {
		in.Replicas = slices.Repeat(in.GetReplicas(), fleet.MaxReportedReplicas+1)
	}
	for name, change := range map[string]func(*nodev1.ReplicasReport){
		"too many lines":       many,
		"an unknown word":      func(in *nodev1.ReplicasReport) { in.Replicas[0].Phase = "dancing" },
		"a long word":          func(in *nodev1.ReplicasReport) { in.Replicas[0].Reason = strings.Repeat("x", 100) },
		"no deployment's name": func(in *nodev1.ReplicasReport) { in.Replicas[0].Deployment = "../web" },
		"a line twice":         func(in *nodev1.ReplicasReport) { in.Replicas = slices.Repeat(in.GetReplicas(), 2) },
	} {
		t.Run("with "+name+" end the stream, and are listed as refused", func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			ledger := r.ledger()
			s := r.serve(slow(), ledger.with)
			l := r.connected(s, "plant-1-a")
			l.report(1, change)
			require.Equal(t, "stream_failed", refused(t, codes.Unavailable, l.ended()))
			require.Empty(t, ledger.taken())
			r.refusedReport(s, "node:plant-1-a")
		})
	}
	t.Run("of a provider that is no node are refused", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(slow(), r.ledger().with)
		l := r.client(s).connect(offer())
		l.report(1)
		require.Error(t, l.ended())
		r.refusedReport(s, "token:"+r.id)
	})
	t.Run("that do not wait for their turn end the stream", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		held, release := make(chan struct{}), make(chan struct{})
		ledger.take = func(fleet.ReplicasReport) error { held <- struct{}{}; <-release; return nil }
		s := r.serve(slow(), ledger.with)
		l := r.connected(s, "plant-1-a")
		l.report(1)
		<-held
		l.report(2)
		require.Error(t, l.ended())
		close(release)
		r.refusedReport(s, "node:plant-1-a")
	})
}

// refusedReport wants a refused report among the refusals.
func (r *region) refusedReport(s *server, identity string) {
	r.t.Helper()
	s.stop()
	all, err := r.store.ListRefusals(context.Background(), "", 0, 10)
	require.NoError(r.t, err)
	require.Len(r.t, all, 1)
	require.Equal(r.t, []string{"replicas_report", identity}, []string{all[0].Reason, all[0].Identity})
}

// What has replicas on a node is looked at when the node is lost, and when it comes back; by whom
// its connection ended, and at which server, is the same.
func TestTurnedNodes(t *testing.T) {
	t.Parallel()
	const subject = "on.plant-1-a"
	for name, lose := range map[string]func(r *region, s *server, l *live){
		"is silent":             func(*region, *server, *live) {},
		"closes its stream":     func(_ *region, _ *server, l *live) { l.cancel() },
		"deregisters":           func(r *region, s *server, l *live) { r.deregister(s, l) },
		"deregisters elsewhere": func(r *region, _ *server, l *live) { r.deregister(r.serve(slow()), l) },
		"is revoked": func(r *region, _ *server, _ *live) {
			require.NoError(r.t, r.store.RevokeNode(r.t.Context(), "plant-1-a"))
		},
		"is at a server that stops": func(_ *region, s *server, _ *live) { s.stop() },
	} {
		t.Run("one that "+name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			ledger := r.ledger()
			s := r.serve(quick(), ledger.with)
			l := r.connected(s, "plant-1-a")
			r.eventually("it came", func() bool { return ledger.wakes(subject) == 1 })
			if name == "is at a server that stops" {
				other := r.serve(quick(), ledger.with)
				lose(r, s, l)
				r.connected(other, "plant-1-a")
			} else {
				lose(r, s, l)
			}
			r.eventually("it went", func() bool { return ledger.wakes(subject) >= 2 })
		})
	}
	t.Run("one of which the database did not hear at first", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		ledger.refused.Store(2)
		r.connected(r.serve(quick(), ledger.with), "plant-1-a")
		r.eventually("it came", func() bool { return ledger.wakes(subject) >= 1 })
		require.Negative(t, ledger.refused.Load())
	})
	t.Run("one whose server was killed", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		ledger := r.ledger()
		m, with := r.mortal()
		a := r.serve(quick(), ledger.with, with)
		r.serve(quick(), ledger.with)
		l := r.connected(a, "plant-1-a")
		l.keep(quick().HeartbeatEvery)
		r.eventually("it came", func() bool { return ledger.wakes(subject) == 1 })
		m.dead.Store(true)
		r.eventually("it went", func() bool { return ledger.wakes(subject) == 2 })
	})
}

// S53, X4: what ended with its node is woken by the node's last word, at whichever server it is said.
func TestReplicasEnded(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ledger := r.ledger()
	l := r.connected(r.serve(slow(), ledger.with), "plant-1-a")
	in := &nodev1.DeregisterRequest{ConnectionId: l.id, ReplicasEnded: true}
	for range 2 {
		_, err := r.dial(r.serve(slow(), ledger.with).address, signed(r.key)).Deregister(t.Context(), in)
		require.NoError(t, err)
	}
	r.ends(l.id, fleet.Deregistered)
	r.eventually("what ended is woken", func() bool { return ledger.wakes("stopped.node:plant-1-a") > 0 })
}

func (r *region) deregister(s *server, l *live) {
	r.t.Helper()
	_, err := r.dial(s.address, signed(r.key)).Deregister(r.t.Context(), &nodev1.DeregisterRequest{ConnectionId: l.id})
	require.NoError(r.t, err)
}

// A node's facts are kept as it told them last; who is no node has none.
func TestNodeFacts(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	key := r.node("plant-1-a")
	c := r.dial(s.address, signed(key))
	facts := func() (out string) {
		require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT facts FROM nodes").Scan(&out))
		return out
	}
	in := asNode("plant-1-a", "")
	in.NodeFacts = &nodev1.NodeFacts{
		Address: "10.0.0.1", Labels: map[string]string{"zone": "a"}, Drivers: []string{"process"}, Cpu: 4, Memory: 1 << 30, Gpus: 2,
	}
	c.register(in)
	require.JSONEq(t, `{"address":"10.0.0.1","labels":{"zone":"a"},"drivers":["process"],"resources":{"cpu":4,"memory":1073741824,"gpus":2}}`, facts())
	c.register(asNode("plant-1-a", ""))
	require.JSONEq(t, `{"resources":{}}`, facts())
	in.NodeFacts.Memory = -1
	_, err := c.Register(t.Context(), in)
	refused(t, codes.InvalidArgument, err)
	_, err = r.client(s).Register(t.Context(), offer(func(in *nodev1.RegisterRequest) { in.NodeFacts = &nodev1.NodeFacts{} }))
	require.Contains(t, refused(t, codes.InvalidArgument, err), "only nodes may send facts")
}
