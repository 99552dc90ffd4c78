package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// synced is a deployment that converged, on two nodes whose digests came; streams are theirs.
type synced struct {
	*bench
	streams map[fleet.NodeName]fleet.ConnectionID
}

func settled(t *testing.T) synced {
	t.Helper()
	b := synced{bench: setup(t).deployable(), streams: map[fleet.NodeName]fleet.ConnectionID{}}
	b.putDeployment()
	b.settles()
	for _, n := range []fleet.NodeName{nodeA, nodeB} {
		b.streams[n] = stores.Scan[fleet.ConnectionID](b, `SELECT id FROM connections WHERE node = $1 AND ended_at IS NULL`, n)
		b.digests(n)
	}
	return b
}

// believes is what a node has that does what its set says, as it is now.
func (b synced) believes(n fleet.NodeName) fleet.ReplicasReport {
	b.T.Helper()
	set, err := b.NodeReplicas(b.Ctx(), n)
	require.NoError(b.T, err)
	r := fleet.ReplicasReport{Node: n, Connection: b.streams[n], Set: fleet.SetVersion{Era: set.Era, Number: set.Version}}
	for _, x := range set.Replicas {
		said := healthy(x.ID)
		said.Deployment, said.Revision, said.ProcessVersion, said.Definition = x.Deployment, x.Revision, x.ProcessVersion, fleet.ShortHash(x.Definition)
		r.Replicas = append(r.Replicas, said)
	}
	return r
}

// digests has a node send a digest of what it believes.
func (b synced) digests(n fleet.NodeName, edits ...func(*fleet.ReplicasReport)) deployments.ReplicasHeard {
	b.T.Helper()
	r := b.believes(n)
	for _, edit := range edits {
		edit(&r)
	}
	r.Digest = &fleet.ReplicasDigest{}
	for _, x := range r.Replicas {
		r.Digest.Replicas = append(r.Digest.Replicas, fleet.ReplicaMark{
			ID: x.ID, Revision: x.Revision, ProcessVersion: x.ProcessVersion, Definition: x.Definition, Phase: x.Phase, Health: x.Health, Unready: x.Unready,
		})
	}
	r.Replicas = nil
	require.NoError(b.T, r.Validate())
	heard, err := b.ReplicasReported(b.Ctx(), r)
	require.NoError(b.T, err)
	return heard
}

// drift compares the digests of all nodes, a page of one at a time.
func (b synced) drift() (fleet.Drift, []fleet.NodeName) {
	b.T.Helper()
	all, asked := fleet.Drift{}, []fleet.NodeName(nil)
	for shard := range 2 {
		for after := ""; ; {
			out, err := b.CompareDigests(b.Ctx(), deployments.NodeShard{Shard: shard, Shards: 2}, after, 1)
			require.NoError(b.T, err)
			for kind, n := range out.Drift {
				all[kind] += n
			}
			asked = append(asked, out.Asked...)
			if after = out.Last; after == "" {
				break
			}
		}
	}
	return all, asked
}

func (b synced) none(why string) {
	b.T.Helper()
	drift, asked := b.drift()
	require.Empty(b.T, drift, why)
	require.Empty(b.T, asked, why)
}

// F24, F25, F29, F46, F56, X8: one pass finds each row that was changed by hand, once; the report that it requests, and
// nothing else, corrects it.
func TestDriftIsFoundAndCorrected(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		sql  string
		kind fleet.DriftKind
		then func(t *testing.T, b synced, id fleet.ReplicaID)
	}{
		"another state": {`UPDATE replicas SET state = 'UNHEALTHY' WHERE id = $1`, fleet.DriftState, func(t *testing.T, b synced, id fleet.ReplicaID) {
			require.Equal(t, fleet.ReplicaHealthy, b.replica(id).State)
		}},
		"another health": {`UPDATE replicas SET health = 'UNHEALTHY' WHERE id = $1`, fleet.DriftState, func(t *testing.T, b synced, id fleet.ReplicaID) {
			require.Equal(t, fleet.HealthHealthy, b.replica(id).Health)
		}},
		"another revision":   {`UPDATE replicas SET revision = revision + 7 WHERE id = $1`, fleet.DriftVersion, replacedByName},
		"another definition": {`UPDATE replicas SET definition = sha256('x') WHERE id = $1`, fleet.DriftVersion, replacedByName},
		"ended": {`UPDATE replicas SET state = 'TERMINATED', ended_at = now() WHERE id = $1`, fleet.DriftStray, func(t *testing.T, b synced, id fleet.ReplicaID) {
			require.False(t, b.named(nodeA)[id], "it is named to end (ADR 0007)")
		}},
		"unknown": {`DELETE FROM replicas WHERE id = $1`, fleet.DriftStray, func(t *testing.T, b synced, id fleet.ReplicaID) {
			require.Equal(t, map[fleet.ReplicaID]string{id: fleet.OrphanNeverKnown}, b.orphanReplicas(nodeA), "it waits for an operator")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := settled(t)
			b.none("before")
			out, err := b.CompareDigests(b.Ctx(), deployments.NodeShard{Shards: 1}, "", 10)
			require.NoError(t, err)
			require.Zero(t, out.Looked, "what is healthy and equal costs little")
			id := b.on(nodeA)[0].ID
			believed := b.believes(nodeA)
			b.Exec(c.sql, id)
			drift, asked := b.drift()
			require.Equal(t, fleet.Drift{c.kind: 1}, drift)
			require.Equal(t, []fleet.NodeName{nodeA}, asked)
			b.none("it was asked")

			believed.Complete, believed.Whole = true, true
			b.reports(believed)
			c.then(t, b, id)
			b.visits()
			if set := b.believes(nodeA); c.kind == fleet.DriftState {
				b.digests(nodeA)
				require.Len(t, set.Replicas, 1)
				b.none("it was corrected")
			}
		})
	}
}

func replacedByName(t *testing.T, b synced, id fleet.ReplicaID) {
	t.Helper()
	require.Equal(t, fleet.ReplicaTerminating, b.replica(id).State)
	require.False(t, b.named(nodeA)[id])
	b.visits()
	require.Equal(t, 2, b.seen().Target)
	live := 0
	for _, r := range b.replicas() {
		if r.State.Live() {
			live++
		}
	}
	require.Equal(t, 2, live, "another takes its place")
}

// F66: what differs is counted once, and asked for until the node answers or connects again.
func TestDriftIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := settled(t)
	b.Exec(`UPDATE replicas SET revision = revision + 7 WHERE node = $1`, nodeA)
	believed := b.believes(nodeA)
	differs := func(r *fleet.ReplicasReport) {
		for i := range r.Replicas {
			r.Replicas[i].Revision -= 7
		}
	}
	compared := func(n int, what string) {
		b.digests(nodeA, differs)
		drift, asked := b.drift()
		require.Equal(t, n, drift[fleet.DriftVersion], what)
		require.Equal(t, []fleet.NodeName{nodeA}, asked, what)
	}
	compared(1, "first")
	compared(0, "it has not answered")
	b.Exec(`UPDATE node_digests SET connection = 'another' WHERE node = $1`, nodeA)
	compared(1, "it connected again, and will not answer")
	believed.Replicas = nil
	b.reports(believed)
	compared(1, "it answered, and it still differs")
}

// F25: what a node lost is created again.
func TestMissingIsReplaced(t *testing.T) {
	t.Parallel()
	b := settled(t)
	id := b.on(nodeA)[0].ID
	b.digests(nodeA, func(r *fleet.ReplicasReport) { r.Replicas = nil })
	drift, _ := b.drift()
	require.Equal(t, fleet.Drift{fleet.DriftMissing: 1}, drift)
	b.complete(nodeA)
	b.visits()
	require.False(t, b.replica(id).State.Live())
	b.obey(nodeA)
	b.settles()
	require.Len(t, b.replicas(), 2)
}

// F50, F55: a digest says nothing after a report, of another set, or once its connection has ended.
func TestDigestThatDoesNotCount(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(b synced){
		"a report came since":      func(b synced) { b.tells(nodeA, healthy(b.on(nodeA)[0].ID)) },
		"its set has changed":      func(b synced) { b.Exec(`UPDATE node_sets SET version = version + 1`) },
		"it was of another era":    func(b synced) { b.Exec(`UPDATE region SET era = era + 1`) },
		"its connection has ended": func(b synced) { b.disconnect(nodeA) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := settled(t)
			do(b)
			b.Exec(`UPDATE replicas SET state = 'UNHEALTHY' WHERE node = $1`, nodeA)
			b.none(what)
		})
	}
	t.Run("a connection that has ended sends none", func(t *testing.T) {
		t.Parallel()
		b := settled(t)
		r := b.believes(nodeA)
		r.Digest, r.Replicas = &fleet.ReplicasDigest{}, nil
		b.disconnect(nodeA)
		_, err := b.ReplicasReported(b.Ctx(), r)
		require.Equal(t, fleet.Gone, fleet.KindOf(err))
	})
}

// F47: a pass that fails requests nothing and ends nothing; the next one finds what differs.
func TestPassThatFails(t *testing.T) {
	t.Parallel()
	b := settled(t)
	b.digests(nodeA, func(r *fleet.ReplicasReport) { r.Replicas = nil })
	b.Exec(`UPDATE node_digests SET marks = 'nonsense' WHERE node = $1`, nodeB)
	_, err := b.CompareDigests(b.Ctx(), deployments.NodeShard{Shards: 1}, "", 10)
	require.Equal(t, fleet.Internal, fleet.KindOf(err))
	require.EqualValues(t, 2, stores.Scan[int64](b, `SELECT count(*) FROM node_digests WHERE marks IS NOT NULL AND NOT asked`))
	b.visits()
	for _, r := range b.replicas() {
		require.Equal(t, fleet.ReplicaHealthy, r.State)
	}
	b.digests(nodeB)
	drift, asked := b.drift()
	require.Equal(t, fleet.Drift{fleet.DriftMissing: 1}, drift)
	require.Equal(t, []fleet.NodeName{nodeA}, asked)
}

// F47, F57, X1, X3: what a complete report lacks is lost there only by the word of a fresh domain: a set of this era that listed it, told
// by a connection that lasts. How old the report is on a clock decides nothing.
func TestStaleDomainEndsNothing(t *testing.T) {
	t.Parallel()
	b := settled(t)
	b.Exec(`UPDATE region SET era = 2`)
	id := b.on(nodeA)[0].ID
	fresh := b.believes(nodeA)
	fresh.Complete, fresh.Whole, fresh.Replicas = true, true, nil
	listed := stores.Scan[int64](b, `SELECT listed FROM replicas WHERE id = $1`, id)
	for why, set := range map[string]fleet.SetVersion{
		"an older set": {Era: fresh.Set.Era, Number: listed - 1},
		"an older era": {Era: fresh.Set.Era - 1, Number: fresh.Set.Number},
		"no set":       {},
	} {
		stale := fresh
		stale.Set = set
		b.reports(stale)
		b.visits()
		require.Equal(t, fleet.ReplicaHealthy, b.replica(id).State, why)
	}
	ended := fresh
	ended.Connection = "another"
	_, err := b.ReplicasReported(b.Ctx(), ended)
	require.Equal(t, fleet.Gone, fleet.KindOf(err))
	b.visits()
	require.Equal(t, fleet.ReplicaHealthy, b.replica(id).State, "a connection that has ended")
	require.Len(t, b.replicas(), 2)

	b.reports(fresh)
	b.visits()
	require.False(t, b.replica(id).State.Live())
}

// F55: a report by an older set than the newest says nothing about content, nor does a node without digests.
func TestContentIsJudgedByTheNewestSet(t *testing.T) {
	t.Parallel()
	b := settled(t)
	id := b.on(nodeA)[0].ID
	believed := b.believes(nodeA)
	believed.Complete = true
	b.Exec(`UPDATE replicas SET revision = revision + 7 WHERE id = $1`, id)
	b.Exec(`UPDATE node_sets SET version = version + 1`)
	b.reports(believed)
	require.Equal(t, fleet.ReplicaHealthy, b.replica(id).State)
	b.Exec(`UPDATE node_sets SET version = version - 1`)
	older := believed
	older.Replicas = []fleet.ReplicaStatus{healthy(id)}
	b.reports(older)
	require.Equal(t, fleet.ReplicaHealthy, b.replica(id).State)
	b.reports(believed)
	require.Equal(t, fleet.ReplicaTerminating, b.replica(id).State)
}

// F66: what a node corrected by itself is counted, and the age is that of the newest digest of a connected node.
func TestDigestIsMeasured(t *testing.T) {
	t.Parallel()
	b := settled(t)
	heard := b.digests(nodeA)
	require.Empty(t, heard.Drift)
	r := b.believes(nodeA)
	r.Replicas, r.Digest = nil, &fleet.ReplicasDigest{Missing: 2, Stray: 1}
	heard, err := b.ReplicasReported(b.Ctx(), r)
	require.NoError(t, err)
	require.Equal(t, fleet.Drift{fleet.DriftMissing: 2, fleet.DriftStray: 1}, heard.Drift)
	b.Exec(`UPDATE node_digests SET at = now() - interval '1 hour' WHERE node = $1`, nodeA)
	age, err := b.DigestAge(b.Ctx())
	require.NoError(t, err)
	require.GreaterOrEqual(t, age.Minutes(), 60.0)
	b.disconnect(nodeA)
	age, err = b.DigestAge(b.Ctx())
	require.NoError(t, err)
	require.Less(t, age.Minutes(), 60.0)
}
