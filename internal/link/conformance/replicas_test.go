package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/provider"
)

const (
	replicaNode = "plant-1-a"
	oneReplica  = "0123456789ab"
)

// nodeRegion is a region with a node that has one replica in its set.
type nodeRegion struct {
	*region
	pool *pgxpool.Pool
	key  identity.Key
}

func newNodeRegion(t *testing.T, timing fleet.LinkTiming) *nodeRegion {
	t.Helper()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	r := &nodeRegion{region: &region{T: t, store: store, timing: timing, address: testkit.Address()}}
	r.pool, err = pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(r.pool.Close)
	r.key, err = identity.Generate(replicaNode)
	require.NoError(t, err)
	r.exec(`INSERT INTO nodes (name, site, role, signing_key, sealing_key, enrolled_at)
		VALUES ($1, 'plant-1', 'worker', $2, $2, now() - interval '1 minute')`, replicaNode, []byte(r.key.SigningPublic()))
	r.exec(`INSERT INTO deployments (name, uid, project, state) VALUES ('web', gen_random_uuid(), 'default', 'RUNNING')`)
	r.exec(`INSERT INTO node_sets (node, version) VALUES ($1, 7)`, replicaNode)
	r.exec(`INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, stop_seconds, state, listed)
		SELECT $1, name, uid, $2, 'plant-1', 1, 1, '\x00', 10, 'STARTING', 7 FROM deployments`, oneReplica, replicaNode)
	r.serve()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *nodeRegion) exec(sql string, args ...any) {
	r.Helper()
	_, err := r.pool.Exec(r.Context(), sql, args...)
	require.NoError(r, err, sql)
}

// replica reads what the region has of the replica.
func (r *nodeRegion) replica() (state string, pid int) {
	r.Helper()
	require.NoError(r, r.pool.QueryRow(context.Background(), `SELECT state, pid FROM replicas WHERE id = $1`, oneReplica).Scan(&state, &pid))
	return state, pid
}

// node is a feed with one replica, whose process id says how often it changed.
type node struct {
	t    *testing.T
	sets chan [2]int64
	seen func(pid int) // when a report is acked
	// asked counts the reports that the region requested.
	asked atomic.Int32

	news chan struct{}
	mu   sync.Mutex
	pid  uint32
	// digest is set when the next report is one.
	digest bool
	sent   map[uint64]*nodev1.ReplicasReport
	last   uint64
	acks   []uint64
}

var _ provider.ReplicaFeed = (*node)(nil)

func newNode(t *testing.T) *node {
	return &node{t: t, sets: make(chan [2]int64, 100), news: make(chan struct{}, 100), pid: 1, sent: map[uint64]*nodev1.ReplicasReport{}}
}

func (n *node) Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error) {
	if !complete {
		select {
		case <-n.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	report := &nodev1.ReplicasReport{Sequence: n.last, SetVersion: 7, Complete: complete, Replicas: []*nodev1.ReplicaStatus{
		{Id: oneReplica, Phase: "running", Health: "HEALTHY", Pid: n.pid},
	}}
	if n.digest {
		mark := &nodev1.ReplicaMark{Id: oneReplica, Revision: 1, ProcessVersion: 1, Phase: "running", Health: "HEALTHY"}
		report.Replicas, report.Digest, n.digest = nil, &nodev1.ReplicasDigest{Replicas: []*nodev1.ReplicaMark{mark}}, false
		report.SetEra = 1
	}
	n.sent[n.last] = report
	return report, nil
}

func (n *node) Acked(sequence uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acks = append(n.acks, sequence)
	if n.seen != nil {
		n.seen(int(n.sent[sequence].GetReplicas()[0].GetPid()))
	}
}

// digests has the next report be a digest.
func (n *node) digests() {
	n.mu.Lock()
	n.digest = true
	n.mu.Unlock()
	n.news <- struct{}{}
}

// changes gives the replica another process, and tells of it.
func (n *node) changes() {
	n.mu.Lock()
	n.pid++
	n.mu.Unlock()
	n.news <- struct{}{}
}

func (n *node) acked() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]uint64(nil), n.acks...)
}

// completes counts the reports that told all.
func (n *node) completes() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.sent {
		if r.GetComplete() {
			count++
		}
	}
	return count
}

// told waits for the next set that the node should have.
func (n *node) told() [2]int64 {
	n.t.Helper()
	select {
	case set := <-n.sets:
		return set
	case <-time.After(patience):
		require.FailNow(n.t, "no set was told")
		return [2]int64{}
	}
}

func (r *nodeRegion) join(address string, n *node) *running {
	r.Helper()
	return r.run(options(address, "", named(replicaNode), func(o *provider.Options) {
		o.Token = func(context.Context) (string, error) { return r.key.Sign(identity.LinkAudience, now()) }
		o.Replicas, o.OnReplicaSet = n, func(era, version int64) { n.sets <- [2]int64{era, version} }
		o.OnReplicasReport = func() { n.asked.Add(1) }
	}))
}

// S47, S53, X4: what becomes of replicas reaches the region over whatever happens to the stream.
func TestReplicas(t *testing.T) {
	t.Parallel()
	t.Run("each report is durable when it is acked, in order", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		n := newNode(t)
		n.seen = func(pid int) { _, kept := r.replica(); require.Equal(t, pid, kept) }
		r.join(r.address, n)
		require.EqualValues(t, 7, n.told()[1])
		for range 5 {
			n.changes()
		}
		r.eventually("all are acked", func() bool { return len(n.acked()) == 6 })
		require.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, n.acked())
		state, pid := r.replica()
		require.Equal(t, "HEALTHY", state)
		require.Equal(t, 6, pid)
	})
	t.Run("a report that was lost, or its ack, is told again with the next stream", func(t *testing.T) {
		t.Parallel()
		for what, frozen := range map[string]struct{ up, down bool }{"the report": {true, true}, "the ack": {false, true}} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				r := newNodeRegion(t, quick())
				w := newWire(t, r.address)
				n := newNode(t)
				r.join(w.address, n)
				r.eventually("the first is acked", func() bool { return len(n.acked()) == 1 })
				id := r.active(replicaNode, "")
				w.set(frozen.up, frozen.down, true)
				n.changes()
				r.ends(id, fleet.HeartbeatLapsed, fleet.StreamFailed)
				require.Len(t, n.acked(), 1)
				w.cut()
				w.set(false, false, false)
				r.active(replicaNode, id)
				r.eventually("the complete one is acked", func() bool { return len(n.acked()) == 2 })
				_, pid := r.replica()
				require.Equal(t, 2, pid)
				require.Equal(t, 2, n.completes())
			})
		}
	})
	t.Run("each stream begins with all replicas, and is told of the set", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		w := newWire(t, r.address)
		n := newNode(t)
		r.join(w.address, n)
		id := ""
		for i := range 4 {
			id = r.active(replicaNode, id)
			require.EqualValues(t, 7, n.told()[1])
			r.eventually("it is acked", func() bool { return len(n.acked()) == i+1 })
			require.Equal(t, i+1, n.completes())
			w.cut()
		}
	})
	t.Run("a server that restarts learns what happened meanwhile", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		n := newNode(t)
		r.join(r.address, n)
		n.told()
		id := r.active(replicaNode, "")
		r.stop()
		n.changes()
		r.exec(`UPDATE node_sets SET version = 8`)
		r.serve()
		r.active(replicaNode, id)
		require.EqualValues(t, 8, n.told()[1])
		r.eventually("it knows", func() bool { _, pid := r.replica(); return pid == 2 })
	})
	t.Run("of two servers, the one that has the stream tells what the other changed", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		first, address := r.stop, r.address
		t.Cleanup(first)
		r.address = testkit.Address()
		r.serve() // another
		n := newNode(t)
		c := r.join(address, n)
		n.told()
		id := r.active(replicaNode, "")
		r.exec(`UPDATE node_sets SET version = 9`)
		r.exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-a 9')`)
		require.EqualValues(t, 9, n.told()[1])
		c.end()
		require.NoError(t, c.result())
		n.changes()
		r.join(r.address, n)
		r.active(replicaNode, id)
		require.EqualValues(t, 9, n.told()[1])
		r.eventually("the other has the report", func() bool { _, pid := r.replica(); return pid == 2 })
	})
	t.Run("of two servers, the one that has the stream requests a report for the other", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		first, address := r.stop, r.address
		t.Cleanup(first)
		r.address = testkit.Address()
		r.serve() // another
		n := newNode(t)
		r.join(address, n)
		r.eventually("the first is acked", func() bool { return len(n.acked()) == 1 })
		n.digests()
		r.eventually("the digest is acked", func() bool { return len(n.acked()) == 2 })
		compare := func() []fleet.NodeName {
			out, err := r.store.CompareDigests(t.Context(), deployments.NodeShard{Shards: 1}, "", 10)
			require.NoError(t, err)
			return out.Asked
		}
		require.Empty(t, compare())
		r.exec(`UPDATE replicas SET state = 'UNHEALTHY'`)
		require.Equal(t, []fleet.NodeName{replicaNode}, compare())
		r.eventually("it is asked", func() bool { return n.asked.Load() == 1 })
		state, _ := r.replica()
		require.Equal(t, "UNHEALTHY", state, "only its report changes anything")
		n.changes()
		r.eventually("it is corrected", func() bool { state, _ := r.replica(); return state == "HEALTHY" })
	})
	t.Run("a report of the connection before comes too late", func(t *testing.T) {
		t.Parallel()
		r := newNodeRegion(t, patient())
		n := newNode(t)
		r.join(r.address, n)
		r.eventually("the first is acked", func() bool { return len(n.acked()) == 1 })
		before := r.active(replicaNode, "")
		r.stop()
		r.serve()
		r.active(replicaNode, before)
		_, err := r.store.ReplicasReported(t.Context(), fleet.ReplicasReport{
			Node: replicaNode, Connection: fleet.ConnectionID(before), Set: fleet.SetVersion{Number: 7},
			Replicas: []fleet.ReplicaStatus{{ID: oneReplica, Phase: fleet.PhaseExited, Health: fleet.HealthUnhealthy}},
		})
		require.Equal(t, fleet.Gone, fleet.KindOf(err), "%v", err)
	})
}
