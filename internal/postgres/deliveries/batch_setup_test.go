package deliveries_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const rollout = fleet.FleetName("rollout")

func batchID(n int) fleet.BatchID { return fleet.BatchID(fmt.Sprintf("%032x", n)) }

func keyOf(name fleet.InstanceName) fleet.ObjectKey { return fleet.InstanceKey(plant, name) }

// instances puts n of them, each with a body of its own and nothing released.
func (b *bench) instances(n int, edits ...func(*deliveries.InstanceChange)) []fleet.InstanceName {
	b.T.Helper()
	names := make([]fleet.InstanceName, n)
	for i := range names {
		names[i] = fleet.InstanceName(fmt.Sprintf("i%03d", i))
		b.Put(fmt.Sprintf(`{"a":%d}`, i), append([]func(*deliveries.InstanceChange){stores.Named(string(names[i])), stores.Unreleased}, edits...)...)
	}
	return names
}

// fleetOf starts a run over instances, by rows.
func (b *bench) fleetOf(run int64, names ...fleet.InstanceName) {
	b.T.Helper()
	b.Exec(`INSERT INTO fleet_runs (fleet, run, project, generation, spec, state, waves, until_wave, requested_by, deadline_at)
		VALUES ($1, $2, 'default', 1, '{}', 'running', 1, 1, 'ann', now() + interval '1 day')`, rollout, run)
	b.Exec(`INSERT INTO fleet_targets (fleet, run, site, name, wave) SELECT $1, $2, $3, unnest($4::text[]), 1`, rollout, run, plant, names)
}

// changeTo is an item that gives an instance a new config, as it is now.
func (b *bench) changeTo(name fleet.InstanceName, body string, edits ...func(*deliveries.BatchChange)) deliveries.BatchChange {
	b.T.Helper()
	_, err := b.PutBodies(b.Ctx(), project, [][]byte{[]byte(body)})
	require.NoError(b.T, err)
	content := stores.JSONOf(body)
	c := deliveries.BatchChange{
		Instance: name, Content: content, Generation: 1,
		Spec: fleet.InstanceSpec{Config: &content, Enabled: true, Durability: fleet.DurabilitySync},
	}
	if o, err := b.GetObject(b.Ctx(), keyOf(name)); err == nil {
		c.Generation = o.Generation
	}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func releaseOf(id fleet.BatchID, items ...deliveries.BatchChange) deliveries.BatchRelease {
	return deliveries.BatchRelease{
		ID: id, Site: plant, Fleet: rollout, FleetRun: 1, Workflow: "fleet-batches.rollout", Run: "batch-run", Actor: "ann",
		Reason: "because", Deadline: time.Hour, TTL: 5 * minute, Items: items,
	}
}

func alone(r deliveries.BatchRelease) deliveries.BatchRelease {
	r.Fleet, r.FleetRun = "", 0
	return r
}

func staging(r deliveries.BatchRelease) deliveries.BatchRelease {
	r.Stage = true
	return r
}

func (b *bench) release(r deliveries.BatchRelease) deliveries.BatchReleased {
	b.T.Helper()
	out, err := b.ReleaseBatch(b.Ctx(), r)
	require.NoError(b.T, err)
	return out
}

// changes are new configs for all, that differ from each other.
func (b *bench) changes(names []fleet.InstanceName, to string, edits ...func(*deliveries.BatchChange)) []deliveries.BatchChange {
	b.T.Helper()
	out := make([]deliveries.BatchChange, len(names))
	for i, name := range names {
		out[i] = b.changeTo(name, fmt.Sprintf(`{"a":%d,"to":%q}`, i, to), edits...)
	}
	return out
}

func (b *bench) tell(id fleet.BatchID, node fleet.NodeName) *fleet.BatchNotify {
	b.T.Helper()
	sum := sha256.Sum256(fmt.Append(nil, id, node, time.Now()))
	out, err := b.PrepareBatch(b.Ctx(), fleet.BatchPrepare{ID: id, Node: node, Tries: 3, TTL: 5 * minute, TokenHash: sum[:]})
	require.NoError(b.T, err)
	return out
}

func (b *bench) items(id fleet.BatchID, node fleet.NodeName) []fleet.BatchItem {
	b.T.Helper()
	items, err := b.BatchItems(b.Ctx(), id, node)
	require.NoError(b.T, err)
	return items
}

func takenAll(items []fleet.BatchItem) []fleet.BatchResult {
	var out []fleet.BatchResult
	for _, i := range items {
		if !i.Gone {
			out = append(out, taken(i))
		}
	}
	return out
}

func taken(i fleet.BatchItem) fleet.BatchResult {
	return fleet.BatchResult{DeploymentID: i.DeploymentID, Instance: i.Instance, Held: stores.Holding(i.Revision), Fetched: i.Revision.Content.Size}
}

func refusedBy(i fleet.BatchItem, kind fleet.Kind) fleet.BatchResult {
	return fleet.BatchResult{DeploymentID: i.DeploymentID, Instance: i.Instance, Reason: kind, Message: "node says " + string(kind)}
}

func stagedBy(i fleet.BatchItem) fleet.BatchResult {
	return fleet.BatchResult{DeploymentID: i.DeploymentID, Instance: i.Instance, Staged: true}
}

// apply tells a node, and has it take all that it is told of.
func (b *bench) apply(id fleet.BatchID, node fleet.NodeName) {
	b.T.Helper()
	require.NotNil(b.T, b.tell(id, node))
	require.NoError(b.T, b.RecordBatch(b.Ctx(), id, node, takenAll(b.items(id, node))))
}

func (b *bench) endBatch(id fleet.BatchID) fleet.BatchEnded {
	b.T.Helper()
	out, err := b.EndBatch(b.Ctx(), id)
	require.NoError(b.T, err)
	return out
}

// deliver takes a batch all the way.
func (b *bench) deliver(r deliveries.BatchRelease) fleet.BatchEnded {
	b.T.Helper()
	for _, node := range b.release(r).Nodes {
		b.apply(r.ID, node)
	}
	return b.endBatch(r.ID)
}

// target is "state revision before tries reason" of a run's target.
func (b *bench) target(name fleet.InstanceName) string {
	b.T.Helper()
	return stores.Scan[string](b, `SELECT format('%s %s %s %s %s', state, revision, before_revision, tries, reason) FROM fleet_targets
		WHERE fleet = $1 AND run = 1 AND name = $2`, rollout, name)
}

func (b *bench) bodiesOf(id fleet.BatchID, node fleet.NodeName, hashes ...fleet.Hash) map[fleet.Hash]string {
	b.T.Helper()
	out := map[fleet.Hash]string{}
	require.NoError(b.T, b.BatchBodies(b.Ctx(), id, node, hashes, func(h fleet.Hash, body []byte) error {
		out[h] = string(body)
		return nil
	}))
	return out
}

func (b *bench) loseBatch(id fleet.BatchID) {
	b.T.Helper()
	require.NoError(b.T, b.LoseBatch(b.Ctx(), id, "workflow_terminated"))
}

// desiredOf is the revision that was released last.
func (b *bench) desiredOf(name fleet.InstanceName) fleet.Revision {
	b.T.Helper()
	views, err := b.ViewInstances(b.Ctx(), plant, string(name))
	require.NoError(b.T, err)
	return views[string(name)].Desired
}

func specIn(t *testing.T, raw json.RawMessage) fleet.InstanceSpec {
	t.Helper()
	var spec fleet.InstanceSpec
	require.NoError(t, json.Unmarshal(raw, &spec))
	return spec
}
