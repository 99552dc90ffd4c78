//go:build slow

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// recordHandOver hands a project over to a region that is not there: a cancel finds nobody, and then the database says that
// the region has claimed it.
func recordHandOver(t *testing.T, data string, doc devDoc, c client.Client) (door, policy client.WorkflowRun) {
	t.Helper()
	a, err := api.NewClient(doc.API, doc.Token)
	require.NoError(t, err)
	db := recordedDatabase(t, data)
	_, err = db.Exec(t.Context(), `INSERT INTO peers (name, public_key, number, admitted_by, admission, address, address_number, address_signature)
		VALUES ('us', decode(repeat('01', 32), 'hex'), 1, 'us', decode(repeat('00', 64), 'hex'), 'https://127.0.0.1:1', 1, decode(repeat('00', 64), 'hex'))`)
	require.NoError(t, err)
	_, err = a.PutProject(t.Context(), "handed", api.ProjectPut{
		MultiRegionPolicy: &api.MultiRegionPolicy{EnabledRegions: []string{regionName, "us"}, DefaultControlRegion: regionName},
	}, api.Mutation{})
	require.NoError(t, err)
	door, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "record-hand-over", TaskQueue: workflows.QueueServers},
		workflows.TypeHandOverRegion, workflows.HandOverRegionInput{Holder: "project/handed", To: "us"})
	require.NoError(t, err)
	policy = c.GetWorkflow(t.Context(), fleet.PolicySubject(fleet.ProjectKey("handed")), "")
	var id string
	waitFor(t, "the hand-over waits", func(ctx context.Context) error {
		return db.QueryRow(ctx, `SELECT id FROM operations WHERE kind = 'hand-over' AND reason = 'waiting'`).Scan(&id)
	})
	_, err = a.CancelOperation(t.Context(), id, api.Mutation{})
	require.NoError(t, err)
	waitFor(t, "the cancel finds nobody", func(ctx context.Context) error {
		tries := 0
		history := c.GetWorkflowHistory(ctx, policy.GetID(), "", false, 0)
		for history.HasNext() {
			event, err := history.Next()
			if err != nil {
				return err
			}
			if event.GetActivityTaskFailedEventAttributes() != nil {
				tries++
			}
		}
		if tries == 0 {
			return errNotYet
		}
		return nil
	})
	_, err = db.Exec(t.Context(), `UPDATE objects SET syncing = jsonb_build_object('owningRegion', 'us', 'regions', jsonb_build_array('us')) WHERE name = 'handed'`)
	require.NoError(t, err)
	require.NoError(t, door.Get(t.Context(), nil))
	return door, policy
}
