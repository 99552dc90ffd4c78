package deployments_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// on gives the replicas of a node.
func (b *bench) on(n fleet.NodeName) []deployments.Replica {
	b.T.Helper()
	all, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Node: n, Ended: true}, "", 100)
	require.NoError(b.T, err)
	return all
}

func (b *bench) replica(id fleet.ReplicaID) deployments.Replica {
	b.T.Helper()
	r, err := b.GetReplica(b.Ctx(), id)
	require.NoError(b.T, err)
	return r
}

// S17, S47 to S53, S115, X13, X23: reports move replicas, by the machine, and revive none.
func TestReplicasReported(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	a := b.on(nodeA)[0].ID

	require.Equal(t, []string{webSub}, b.tells(nodeA, exited(a)))
	require.Equal(t, fleet.ReplicaUnhealthy, b.replica(a).State)
	require.NotNil(t, b.replica(a).FailedAt)
	require.Empty(t, b.tells(nodeA, exited(a)), "twice is once")
	require.Empty(t, b.tells(nodeB, healthy(a)), "it is not there")
	require.Equal(t, fleet.ReplicaUnhealthy, b.replica(a).State)
	require.Empty(t, b.tells(nodeA, healthy("0123456789ab")), "nobody knows it")
	b.settles() // S17: another takes its place
	require.Equal(t, fleet.ReplicaTerminated, b.replica(a).State)
	require.Empty(t, b.tells(nodeA, healthy(a)), "nothing revives it")
	require.Equal(t, fleet.ReplicaTerminated, b.replica(a).State)
	require.Len(t, b.replicas(), 2)

	by := b.replicas()[0]
	require.NoError(t, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), by.ID)) // S115
	require.NoError(t, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), by.ID))
	require.Equal(t, fleet.ReplicaTerminating, b.replica(by.ID).State)
	b.settles()
	require.Equal(t, fleet.ReplicaTerminated, b.replica(by.ID).State)
	require.Len(t, b.replicas(), 2)
	stores.Refused(t, fleet.NotFound, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), "0123456789ab"))
	require.NoError(t, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), by.ID), "the answer was lost")
	b.Exec(`UPDATE deployments SET state = 'ERROR'`) // nothing would come back
	require.NoError(t, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), by.ID))
	stores.Refused(t, fleet.IllegalState, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), b.replicas()[0].ID))
	b.Exec(`UPDATE deployments SET state = 'RUNNING'`)

	gone := b.connect(nodeA) // a report of a connection that has ended says nothing
	b.connect(nodeA)
	_, err := b.ReplicasReported(t.Context(), fleet.ReplicasReport{Node: nodeA, Connection: gone, Complete: true, Set: fleet.SetVersion{Number: 1 << 60}})
	stores.Refused(t, fleet.Gone, err)

	lost := b.replicas()[0] // a complete report that lacks one
	set, err := b.NodeReplicas(t.Context(), lost.Node)
	require.NoError(t, err)
	empty := fleet.ReplicasReport{Node: lost.Node, Complete: true, Set: fleet.SetVersion{Number: set.Version - 1<<20}}
	heard, err := b.ReplicasReported(t.Context(), empty)
	require.NoError(t, err)
	require.Empty(t, heard.Wake, "it may not know of it yet")
	empty.Set.Number = set.Version
	heard, err = b.ReplicasReported(t.Context(), empty)
	require.NoError(t, err)
	require.Equal(t, []string{webSub}, heard.Wake)
	require.True(t, b.replica(lost.ID).Lost)
	b.settles()
	require.Equal(t, fleet.ReplicaTerminated, b.replica(lost.ID).State)
	require.Len(t, b.replicas(), 2)
}

// S130: what is stored, what is kept of output, and what is old.
func TestReplicaOutputAndSamples(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	r := b.on(nodeA)[0]
	require.Equal(t, fleet.HealthHealthy, r.Health)
	require.Equal(t, 8000, r.Ports["http"])

	piece := bytes.Repeat([]byte("x"), 1<<19)
	require.NoError(t, b.AppendReplicaLog(t.Context(), nodeA, r.ID, 0, piece[:10]))
	require.NoError(t, b.AppendReplicaLog(t.Context(), nodeA, r.ID, 0, piece), "the longer one stays")
	require.NoError(t, b.AppendReplicaLog(t.Context(), nodeA, r.ID, 0, piece[:5]))
	stores.Refused(t, fleet.NotFound, b.AppendReplicaLog(t.Context(), nodeB, r.ID, 1<<19, piece))
	pieces, err := b.ReadReplicaLogs(t.Context(), r.ID, 7, 10)
	require.NoError(t, err)
	require.Len(t, pieces, 2)
	require.Len(t, append(pieces[0].Data, pieces[1].Data...), 1<<19)
	for i := range int64(4) {
		require.NoError(t, b.AppendReplicaLog(t.Context(), nodeA, r.ID, i<<19, piece))
	}
	pieces, err = b.ReadReplicaLogs(t.Context(), r.ID, 0, 10)
	require.NoError(t, err)
	require.Len(t, pieces, 2, "a megabyte in all")
	stores.Refused(t, fleet.Invalid, b.AppendReplicaLog(t.Context(), nodeA, r.ID, math.MaxInt64, piece))

	samples := []deployments.ReplicaSample{{ID: r.ID, CPU: 0.5, Memory: 7}, {ID: "0123456789ab", CPU: 1}}
	require.NoError(t, b.ReplicaSampled(t.Context(), nodeA, samples))
	require.NoError(t, b.ReplicaSampled(t.Context(), nodeB, samples))
	kept, err := b.ReplicaSamples(t.Context(), web)
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Equal(t, []any{0.5, int64(7)}, []any{kept[r.ID].CPU, kept[r.ID].Memory})

	b.disconnect(nodeA)
	require.Equal(t, fleet.HealthDegraded, b.replica(r.ID).Health)
	require.Equal(t, 1, b.viewed().Counts.Unheard)
}
