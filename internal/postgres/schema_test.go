package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

var literal = regexp.MustCompile(`'([A-Za-z_]*)'::text`)

// allowed lists what the CHECK of one column allows.
func (b *bench) allowed(table, column string) []string {
	b.T.Helper()
	check := stores.Scan[string](b, `SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c
		JOIN pg_attribute a ON a.attrelid = c.conrelid AND ARRAY[a.attnum] = c.conkey
		WHERE c.contype = 'c' AND c.conrelid = $1::regclass AND a.attname = $2`, table, column)
	var out []string
	for _, m := range literal.FindAllStringSubmatch(check, -1) {
		out = append(out, m[1])
	}
	return out
}

func wordsOf[T ~string](list ...T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

func TestStatesOfSQL(t *testing.T) {
	t.Parallel()
	b := bare(t)
	for column, want := range map[string][]string{
		"deliveries.state":       wordsOf(fleet.DeliveryStates()...),
		"deliveries.settled_as":  wordsOf(fleet.SettledApplied, fleet.SettledNotApplied),
		"delivery_nodes.state":   wordsOf(fleet.TargetStates()...),
		"operations.state":       wordsOf(fleet.OperationStates()...),
		"fleet_runs.state":       wordsOf(fleet.FleetStates()...),
		"fleet_targets.state":    wordsOf(fleet.FleetTargetStates()...),
		"nodes.role":             wordsOf(fleet.RoleActive, fleet.RoleStandby, fleet.RoleWorker),
		"revisions.action":       wordsOf(fleet.ActionDeploy, fleet.ActionEnable, fleet.ActionDisable, fleet.ActionDelete),
		"revisions.durability":   wordsOf(fleet.DurabilitySync, fleet.DurabilityAsync),
		"revisions.content_kind": wordsOf("", fleet.ContentJSON, fleet.ContentArtifact),
		"api_tokens.role":        {"admin", "operator", "viewer", "provider"},
		"connections.state":      wordsOf(fleet.ConnectionStates()...),
		"node_drains.phase":      wordsOf(fleet.DrainPhases()...),
		"deployments.state":      wordsOf(fleet.DeploymentStates()...),
		"rollouts.state":         wordsOf(fleet.RolloutStates()...),
		"replicas.state":         wordsOf(fleet.ReplicaStates()...),
		"replicas.health":        wordsOf(fleet.ReplicaHealths()...),
		"replicas.phase":         knownPhases(),
		"replicas.exact_phase":   wordsOf("", fleet.PhasePreStart, fleet.PhaseLaunching),
		"events.type":            {"created", "updated", "deleting", "deleted", "status"},
	} {
		table, name, _ := strings.Cut(column, ".")
		require.ElementsMatch(t, want, b.allowed(table, name), column)
	}
}

// X23
func TestConstraints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"a":1}`)
	b.Turn(fleet.OperationDelete)
	_, err := b.Raw.Exec(t.Context(), `INSERT INTO owed (site, name, node, revision, action, due)
		SELECT site, name, 'n', revision, action, true FROM revisions WHERE action = 'deploy'`)
	require.NoError(t, err)
	for what, sql := range map[string]string{
		"an ended operation without its time":        `UPDATE operations SET state = 'failed'`,
		"a running operation with one":               `UPDATE operations SET ended_at = now()`,
		"a delete with a body":                       `UPDATE revisions SET body_hash = (SELECT hash FROM bodies LIMIT 1) WHERE action = 'delete'`,
		"a deploy without one":                       `UPDATE revisions SET body_hash = NULL WHERE action = 'deploy'`,
		"a body that is still referred to, gone":     `DELETE FROM bodies`,
		"a revision that is still referred to, gone": `DELETE FROM revisions`,
		"a body whose name is referred to, unnamed":  `UPDATE bodies SET hash = NULL`,
		"a second delivery of a name in a batch": `INSERT INTO deliveries (id, site, name, revision, attempt, claim, node, epoch, state, phase, requested_by, workflow_id,
			run_id, deadline_at, batch_id) SELECT lpad(i::text, 32, '0'), 'plant-1', 'press-7', 1, 100 + i, i::text, 'n', 1, 'failed', 'closed', 'x', 'w', 'r', now(), 'b'
			FROM generate_series(1, 2) i`,
		"a desired number above the last": `UPDATE subjects SET desired_revision = last_revision + 1`,
		"a chunk above 1 MiB":             `INSERT INTO body_chunks SELECT id, 9, convert_to(repeat('x', 1048577), 'UTF8') FROM bodies LIMIT 1`,
		"a second region":                 `INSERT INTO region SELECT false, 'x', 1, 'x', 1`,
		"an epoch of none":                `UPDATE site_leases SET epoch = 0`,
	} {
		_, err := b.Raw.Exec(t.Context(), sql)
		require.Error(t, err, what)
	}
}

// N11: what a pending delivery is known by. Its tokens are kept by node and as hashes, its
// content in bodies of any length.
func TestPendingTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"a":1}`)
	d := b.MustClaim(run1, "1")
	require.Regexp(t, "^[0-9a-f]{32}$", string(d.ID))
	row := stores.Scan[string](b, `SELECT concat_ws(' ', deployment_id, site, name, revision, encode(revision_hash, 'hex')) FROM pending
		WHERE expires_at > created_at`)
	require.Equal(t, fmt.Sprintf("%s plant press 1 %s", d.ID, d.Revision.Content.Hash), row)
	for _, columns := range []string{"deployment_id", "site, name", "expires_at"} {
		found := stores.Scan[int](b, `SELECT count(*) FROM pg_indexes WHERE tablename = 'pending' AND schemaname = current_schema()
			AND indexdef LIKE '%(' || $1 || ')'`, columns)
		require.Equal(t, 1, found, columns)
	}
}

// knownPhases are those that a server of the build before knows.
func knownPhases() []string {
	known := []string{""}
	for _, p := range fleet.ReplicaPhases() {
		if p.Exact() == "" {
			known = append(known, string(p))
		}
	}
	return known
}
