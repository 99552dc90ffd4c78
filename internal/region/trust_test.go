package region

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (m *mesh) cutBoth(a, b fleet.RegionName, cut bool) {
	m.setCut([2]fleet.RegionName{a, b}, cut)
	m.setCut([2]fleet.RegionName{b, a}, cut)
}

// waits until a region has set these objects of a peer aside, and no others.
func (m *mesh) waits(self, peer fleet.RegionName, aside map[string]string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return maps.Equal(aside, m.setAside(self, peer)) }, patience, 20*time.Millisecond, "%v", aside)
}

// M16, M27, M35, M41: a region takes what a peer creates when the policy that it knows enables the peer, and keeps what it has
// of a peer that the policy enables no more, until the peer takes it back.
func TestTrustFollowsThePolicy(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us", "ap")
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	defer func() { cancel(); wait() }()
	m.share("eu", "one", "eu", "us")
	m.settle("at first")

	m.cutBoth("us", "eu", true)
	m.share("eu", "one", "eu", "us", "ap")
	require.Eventually(t, func() bool { return m.held("ap")["eu/project/one"] != "" }, patience, 10*time.Millisecond)
	m.declare("ap", poolKey(1), "one", nil, fleet.PoolSpec{MaxReplicas: 1})
	m.waits("us", "ap", map[string]string{"ap/pool/pool-1": "not_shared"})
	by := questions{mesh: m, self: "us"}
	m.ask("us", "ap", false)
	turn := m.compare(by, "ap")
	require.Equal(t, fleet.SyncCounts{Compared: 1, Differed: 1, Waiting: 1}, turn.SyncCounts, "a comparison ends, and takes it neither")
	require.NotContains(t, m.held("us"), "ap/pool/pool-1")
	m.cutBoth("us", "eu", false)
	m.settle("the policy arrives")
	require.Contains(t, m.held("us"), "ap/pool/pool-1")
	m.waits("us", "ap", map[string]string{})

	m.cutBoth("ap", "eu", true) // ap does not learn that it is dropped
	m.share("eu", "one", "eu", "us")
	m.apply("eu")
	require.Eventually(t, func() bool { return m.held("us")["eu/project/one"] == content(m.project("eu", "one")) }, patience, 10*time.Millisecond)
	was := m.held("us")["ap/pool/pool-1"]
	m.declare("ap", poolKey(1), "one", nil, fleet.PoolSpec{MaxReplicas: 2})
	m.waits("us", "ap", map[string]string{"ap/pool/pool-1": "not_shared"})
	for range 2 {
		m.ask("us", "ap", false)
		require.Equal(t, fleet.SyncCounts{Compared: 1, Differed: 1, Waiting: 1}, m.compare(by, "ap").SyncCounts)
	}
	require.Equal(t, was, m.held("us")["ap/pool/pool-1"], "what was here stays")
	m.cutBoth("ap", "eu", false)
	m.settle("ap takes it back")
	require.NotContains(t, m.held("us"), "ap/pool/pool-1")
	m.waits("us", "ap", map[string]string{})
}

func (m *mesh) project(region fleet.RegionName, name string) fleet.Object {
	m.t.Helper()
	o, err := m.regions[region].store.GetObject(m.t.Context(), fleet.ProjectKey(fleet.ProjectName(name)))
	require.NoError(m.t, err)
	return o
}

// M16, M27, M41: what no policy shares is not taken, nor what another region created, whatever the peer says of it.
func TestTrustEndsAtTheCreator(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	m.share("us", "one", "eu", "us")
	m.declare("us", poolKey(1), "one", nil, fleet.PoolSpec{MaxReplicas: 1})
	us := m.regions["us"].store
	claim, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}})
	require.NoError(t, err)
	pool := func(region fleet.RegionName, i int, project fleet.ProjectName) fleet.CopyChange {
		return fleet.CopyChange{
			Key: fleet.CopyKey{Region: region, ObjectKey: poolKey(i)}, Version: fleet.CopyVersion{OwnerEpoch: 9, Number: 7},
			Object: &fleet.Object{
				ObjectKey: poolKey(i), UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: project, Generation: 1,
				Spec: json.RawMessage(`{"maxReplicas": 77}`), Syncing: syncing, CreatedBy: "test",
			},
		}
	}
	gone := fleet.CopyChange{Key: fleet.CopyKey{Region: "ap", ObjectKey: poolKey(5)}, Version: fleet.CopyVersion{OwnerEpoch: 9, Number: 7}, End: fleet.CopyDeleted}
	done, err := us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{
		pool("us", 1, "one"), pool("ap", 2, "one"), pool("eu", 3, "default"), pool("eu", 4, "unknown"), gone, pool("eu", 6, "one"),
	}})
	require.NoError(t, err)
	require.Equal(t, fleet.CopiesApplied{Written: 1, Refused: 5}, done)
	require.Equal(t, map[string]string{
		"us/pool/pool-1": "own_object", "ap/pool/pool-2": "not_its_owner", "eu/pool/pool-3": "ungoverned", "eu/pool/pool-4": "not_shared",
		"ap/pool/pool-5": "not_its_owner",
	}, m.setAside("us", "eu"))
	own, err := us.GetObject(t.Context(), poolKey(1))
	require.NoError(t, err)
	require.JSONEq(t, `{"maxReplicas": 1}`, string(own.Spec))
	require.Len(t, m.held("us"), 1)
}

// M31, X1: what waits for a policy, and was undone by a restore of its owner, is listed, and does not come later.
func TestUndoneWaitsNoMore(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	us := m.regions["us"].store
	claim, err := us.ClaimStream(t.Context(), "eu", "run-1")
	require.NoError(t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}})
	require.NoError(t, err)
	pool := func(number int64) fleet.CopyChange {
		key := poolKey(int(number))
		return fleet.CopyChange{
			Key: fleet.CopyKey{Region: "eu", ObjectKey: key}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: number},
			Object: &fleet.Object{
				ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: "unknown", Generation: 1,
				Spec: json.RawMessage(`{"maxReplicas": 7}`), Syncing: syncing, CreatedBy: "test",
			},
		}
	}
	place := base64.RawURLEncoding.EncodeToString([]byte("filter era 1.10.9"))
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{
		Claim: claim, Changes: []fleet.CopyChange{pool(4), pool(6)}, Place: &fleet.StreamPlace{Position: place},
	})
	require.NoError(t, err)
	require.Len(t, m.setAside("us", "eu"), 2)
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Reset: true, UndoneFrom: 5})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"eu/pool/pool-4": "not_shared"}, m.setAside("us", "eu"))
	lost, err := us.LostWrites(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, "eu/pool/pool-6 undone", lost[0].Key.String()+" "+lost[0].Reason)
	require.JSONEq(t, `{"maxReplicas": 7}`, string(lost[0].Object.Spec))

	// The stream that begins anew does not say how the other one ended: the comparison asks.
	_, err = us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Place: &fleet.StreamPlace{Position: place}, Current: true})
	require.NoError(t, err)
	require.Len(t, m.setAside("us", "eu"), 1)
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Empty(t, m.setAside("us", "eu"))
}

// M1, M2, M29: regions follow a repair: one that lost its copy has it again, one that got hold of the object does not keep it.
func TestRepairIsFollowed(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us", "ap")
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	defer func() { cancel(); wait() }()
	m.share("eu", "one", "eu", "us")
	m.declare("eu", poolKey(1), "one", nil, fleet.PoolSpec{MaxReplicas: 1})
	m.settle("at first")
	eu := m.regions["eu"]
	eu.exec(t, `UPDATE objects SET syncing = '{"owningRegion": "eu", "regions": ["ap", "eu"]}' WHERE name = 'pool-1'`)
	m.ask("us", "eu", false)
	require.EqualValues(t, 1, m.compare(questions{mesh: m, self: "us"}, "eu").Removed)
	m.ask("ap", "eu", false)
	require.EqualValues(t, 1, m.compare(questions{mesh: m, self: "ap"}, "eu").Waiting)
	n, err := eu.store.RepairSyncing(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	m.settle("repaired")
	require.Contains(t, m.held("us"), "eu/pool/pool-1")
	require.Empty(t, m.held("ap"))
	m.waits("ap", "eu", map[string]string{})
}
