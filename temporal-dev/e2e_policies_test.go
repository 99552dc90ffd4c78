//go:build slow

package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// governedObjects is how many objects the project of this test has: some seconds of work.
const governedObjects = 20_000

// A policy over many objects is applied completely, each object once, whatever is killed meanwhile; a request by each
// door runs a full turn.
//
// M5, M11 to M13, M36, M37, X2, X6, X13, X23
func TestE2EPolicies(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	s.declareRed(t)
	_, err := s.pg.Exec(t.Context(), `INSERT INTO objects (kind, project, name, generation, resource_version, spec, syncing, created_by)
		SELECT 'pool', 'red', 'p-' || i, 1, 1, '{}', jsonb_build_object('owningRegion', $1::text, 'regions', jsonb_build_array($1::text)), 'test'
		FROM generate_series(1, $2::int) i`, regionName, governedObjects)
	require.NoError(t, err)

	for i, name := range []string{"", serverName, postgresName, temporalName} {
		t.Run("killed meanwhile: "+name, func(t *testing.T) {
			to := []string{"r0", "r1", "r2", "r3"}[i]
			began := time.Now()
			s.declareRed(t, regionName, to)
			if name != "" {
				waitFor(t, "some pages are done", func(ctx context.Context) error {
					n, err := s.count(ctx, `SELECT visited FROM policy_turns WHERE ended_at IS NULL AND visited > 1000`)
					if err == nil && n == 0 {
						err = errNotYet
					}
					return err
				})
				s.kill(t, name)
			}
			s.turned(t)
			t.Logf("%d objects in %v", governedObjects, time.Since(began).Round(time.Millisecond))
			n, err := s.count(t.Context(), `SELECT count(*) FROM objects WHERE project = 'red' AND kind = 'pool' AND syncing -> 'regions' ? $1`, to)
			require.NoError(t, err)
			require.EqualValues(t, governedObjects, n)
			n, err = s.count(t.Context(), `SELECT count(*) FROM events WHERE kind = 'pool' AND project = 'red'`)
			require.NoError(t, err)
			require.EqualValues(t, (i+1)*governedObjects, n, "each object was written once")
		})
	}

	t.Run("by a door and by the command line", func(t *testing.T) {
		waitFor(t, "Temporal, which was killed, answers", func(ctx context.Context) error {
			_, err := s.temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
				Namespace: temporalNamespace, Execution: &commonpb.WorkflowExecution{WorkflowId: fleet.PolicySubject(fleet.ProjectKey("red"))},
			})
			return err
		})
		out := s.result(t, s.door(t, "any", workflows.TypeApplyRegionPolicy, `{"holder":"project/red"}`, time.Minute))
		require.Equal(t, []any{fleet.OperationSucceeded, "applied"}, []any{out.State, out.Reason})
		require.Contains(t, out.Message, "20001 objects visited, the syncing of 0 changed")
		op, err := s.api.Operation(t.Context(), string(out.Operation), 0)
		require.NoError(t, err)
		require.Equal(t, []any{"project/red", fleet.PolicySubject(fleet.ProjectKey("red"))}, []any{op.Holder, op.Workflow.ID})
		c := newCLI(t, s)
		c.call(t, cliOK, "region", "apply-policy", "project/red")
		c.call(t, cliUsage, "region", "apply-policy", "site/plant-1")
		c.call(t, cliMissing, "region", "apply-policy", "project/blue")
	})
	requireSmall(t, s.histories(t))
}

// declareRed declares the project red, with a policy that enables some regions.
func (s *stack) declareRed(t *testing.T, regions ...string) {
	t.Helper()
	var put api.ProjectPut
	if len(regions) > 0 {
		put.MultiRegionPolicy = &api.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}
	}
	require.NoError(t, insist(t, "declare the project", func(ctx context.Context) error {
		_, err := s.api.PutProject(ctx, "red", put, api.Mutation{})
		return err
	}))
}

// turned waits for the end of the policy's turn.
func (s *stack) turned(t *testing.T) {
	t.Helper()
	waitFor(t, "the policy is applied", func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM policy_turns WHERE ended_at IS NOT NULL`)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
	o, _, err := s.api.Object(t.Context(), fleet.ProjectKey("red"))
	require.NoError(t, err)
	var syncing fleet.Syncing
	require.NoError(t, json.Unmarshal(o.Syncing, &syncing))
	require.Equal(t, regionName, syncing.OwningRegion)
}
