//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// syncRounds is how much ordinary life is to show no drift.
var syncRounds = flag.Int("sync.rounds", 2, "rounds of ordinary life in which nothing may drift")

// F24, F25, F26, F27, F28, F29, F46, F47, F48, F49, F50, F57, F66, X8: ordinary life shows no drift. What was changed by hand is found, counted and
// corrected in one pass; what nobody knows waits for an operator.
func TestE2ESync(t *testing.T) {
	t.Parallel()
	s := startWith(t, 1, runtimeVariable+"=1s")
	d := newService(t, s, "synced", 3)
	d.deploy(t)
	s.drifts(t, "nothing happened", nil, func() {})
	for round := range *syncRounds {
		s.drifts(t, "ordinary life", nil, func() { d.livesOrdinarily(t, round) })
	}
	t.Run("killed", d.killedBesideItsGuardian)
	t.Run("killed in silence", s.killedInSilence)
	t.Run("forgotten by its node", d.forgottenByItsNode)
	t.Run("rows changed", d.rowsChanged)
	t.Run("guardian of an ended replica", d.guardedAfterItsEnd)
	t.Run("unknown guardian", d.guardedByNobody)
	s.drifts(t, "all of it is over", nil, func() {})
	d.destroy(t)
	s.drifts(t, "nothing runs", nil, func() {})
}

// livesOrdinarily releases, restarts, scales and loses a replica. Unlike in the source design, a restart leaves nothing for the next
// sync to update (F34).
func (d *service) livesOrdinarily(t *testing.T, round int) {
	t.Helper()
	d.put.Env["GREETING"] = "round " + strconv.Itoa(round)
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	requireSucceeded(t, d.ended(t, d.scale(t, 5).ID))
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	requireSucceeded(t, d.ended(t, d.scale(t, 3).ID))
	one := d.healthy(t, 3)[0]
	kill9(t, one.PID)
	d.replacedBy(t, one.ID)
}

func (d *service) replacedBy(t *testing.T, old fleet.ReplicaID) []api.Replica {
	t.Helper()
	return d.until(t, fmt.Sprintf("%s is replaced", old), func(all []api.Replica) error {
		if len(all) != 3 || slices.Contains(ids(all), old) || !allHealthy(all) {
			return errNotYet
		}
		return nil
	})
}

// drift reads the counters.
func (s *stack) drift(t *testing.T) map[string]int {
	t.Helper()
	out, err := driftIn(s.metrics(t))
	require.NoError(t, err)
	return out
}

func driftIn(metrics string) (map[string]int, error) {
	out := map[string]int{}
	for line := range strings.Lines(metrics) {
		rest, is := strings.CutPrefix(line, `holdfast_sync_drift_total{kind="`)
		if !is {
			continue
		}
		kind, value, _ := strings.Cut(strings.TrimSpace(rest), `"} `)
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out[kind] = n
	}
	if len(out) != len(fleet.DriftKinds()) {
		return nil, fmt.Errorf("it counts %v", out)
	}
	return out, nil
}

// passed waits until a digest of each node came and was compared: of what is now, and without a report since.
func (s *stack) passed(t *testing.T) {
	t.Helper()
	now, err := s.count(t.Context(), `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	require.NoError(t, err)
	const fresh = `SELECT count(*) FROM node_digests d LEFT JOIN node_sets s ON s.node = d.node JOIN connections c ON c.id = d.connection AND c.ended_at IS NULL
		WHERE d.marks IS NOT NULL AND d.version = coalesce(s.version, 0) AND d.after = d.reports AND d.at > to_timestamp($1::bigint / 1000000.0)`
	waitFor(t, "each node has sent a digest that counts", func(ctx context.Context) error {
		n, err := s.count(ctx, fresh, now)
		if err == nil && n < 2 {
			err = fmt.Errorf("%w: %d", errNotYet, n)
		}
		return err
	})
	compared := s.comparisons(t)
	waitFor(t, "the digests are compared", func(context.Context) error { return unless(s.comparisons(t) > compared) })
}

func (s *stack) comparisons(t *testing.T) int {
	t.Helper()
	_, rest, is := strings.Cut(s.metrics(t), "\nholdfast_sync_seconds_count ")
	require.True(t, is)
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(value)
	require.NoError(t, err)
	return n
}

// drifts wants exactly so much drift of what happens, and none after it.
func (s *stack) drifts(t *testing.T, what string, want map[string]int, happens func()) {
	t.Helper()
	before := s.drift(t)
	happens()
	sum := maps.Clone(before)
	for kind, n := range want {
		sum[kind] += n
	}
	waitFor(t, what+" is counted", func(context.Context) error {
		if now := s.drift(t); !maps.Equal(sum, now) {
			return fmt.Errorf("%w: was %v, is %v, wanted %v more", errNotYet, before, now, want)
		}
		return nil
	})
	s.passed(t)
	s.passed(t)
	require.Equal(t, sum, s.drift(t), "%s, and once", what)
}

// killedBesideItsGuardian: events tell of a kill within moments, and the next pass finds nothing.
func (d *service) killedBesideItsGuardian(t *testing.T) {
	r := d.healthy(t, 3)[0]
	guard := d.guards(t, r)
	d.drifts(t, "a kill", nil, func() {
		kill9(t, guard)
		_ = syscall.Kill(r.PID, syscall.SIGKILL) // it may have ended with its guardian
		d.replacedBy(t, r.ID)
	})
}

// killedInSilence: of a kill beside a guardian that stands still, without probes, nothing tells but the check of the
// drivers.
func (s *stack) killedInSilence(t *testing.T) {
	d := newService(t, s, "silent", 1, func(p *api.DeploymentPut) { p.Health = &fleet.HealthCheck{Type: fleet.HealthNone} })
	r := d.deploy(t)[0]
	guard := d.guards(t, r)
	s.drifts(t, "a silent kill", map[string]int{"missing": 1}, func() {
		standStill(t, guard)
		kill9(t, r.PID)
		d.until(t, "it is replaced", func(all []api.Replica) error {
			if len(all) != 1 || all[0].ID == r.ID || !allHealthy(all) {
				return errNotYet
			}
			return nil
		})
	})
	waitFor(t, "its guardian ends too", func(context.Context) error { return unless(!alive(guard)) })
	d.destroy(t)
}

// forgottenByItsNode: a row is removed from node.db while its agent is stopped.
func (d *service) forgottenByItsNode(t *testing.T) {
	r := d.healthy(t, 3)[0]
	d.drifts(t, "a forgotten replica", map[string]int{"missing": 1}, func() {
		d.signal(t, r.Node, syscall.SIGSTOP)
		path := url.URL{Scheme: "file", Path: filepath.Join(d.data, "nodes", r.Node, "node.db"), RawQuery: "_pragma=busy_timeout(5000)"}
		db, err := sql.Open("sqlite", path.String())
		require.NoError(t, err)
		out, err := db.ExecContext(t.Context(), `DELETE FROM replicas WHERE id = ?`, r.ID)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		n, err := out.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		d.kill(t, r.Node)
		d.until(t, "it runs again", func(all []api.Replica) error {
			if len(all) != 3 || !allHealthy(all) || slices.ContainsFunc(all, func(now api.Replica) bool { return now.PID == r.PID }) {
				return errNotYet
			}
			return nil
		})
	})
	waitFor(t, "and not twice", func(context.Context) error { return unless(!alive(r.PID)) })
}

// rowsChanged: the row of a replica is changed in Postgres.
func (d *service) rowsChanged(t *testing.T) {
	r := d.healthy(t, 3)[0]
	change := func(sql string) {
		out, err := d.pg.Exec(t.Context(), sql, r.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1, out.RowsAffected())
	}
	d.drifts(t, "another state", map[string]int{"state": 1}, func() { change(`UPDATE replicas SET state = 'UNHEALTHY' WHERE id = $1`) })
	require.Equal(t, r.PID, pidsByID(d.healthy(t, 3))[r.ID], "only its row was corrected")
	for what, sql := range map[string]string{
		"another revision":   `UPDATE replicas SET revision = revision + 1 WHERE id = $1`,
		"another definition": `UPDATE replicas SET definition = sha256('another') WHERE id = $1`,
	} {
		r = d.healthy(t, 3)[0]
		d.drifts(t, what, map[string]int{"version": 1}, func() { change(sql) })
		d.replacedBy(t, r.ID)
		require.False(t, alive(r.PID))
	}
	require.Contains(t, d.decisions(t), "other_content")
}

// guardian starts one as an agent does, under a replica's id.
func (s *stack) guardian(t *testing.T, node string, id fleet.ReplicaID) int {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	runtime := &guardian.Runtime{
		Root: filepath.Join(s.data, "nodes", node, "replicas", "run"), Executable: program, LifetimePID: os.Getpid(), Unleased: true,
	}
	st, err := runtime.Start(t.Context(), guardian.Spec{
		Instance: fleet.InstanceName(id), Once: true, Dir: s.data, Run: fleet.Run{Command: []string{"sleep", "1000"}, StartSeconds: 0.001},
	})
	require.NoError(t, err)
	return st.PID
}

// guardedAfterItsEnd: the region ended the replica, so it is ended again (ADR 0007).
func (d *service) guardedAfterItsEnd(t *testing.T) {
	r := d.healthy(t, 3)[0]
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	d.replacedBy(t, r.ID)
	d.drifts(t, "a guardian of an ended replica", map[string]int{"stray": 1}, func() {
		pid := d.guardian(t, r.Node, r.ID)
		waitFor(t, "it is ended again", func(context.Context) error { return unless(!alive(pid)) })
	})
	require.Contains(t, d.decisions(t), "came_back")
}

// guardedByNobody: the region does not know it; it runs until an operator approves its end.
func (d *service) guardedByNobody(t *testing.T) {
	var raw [6]byte
	_, err := rand.Read(raw[:])
	require.NoError(t, err)
	id, node := fleet.ReplicaID(hex.EncodeToString(raw[:])), pair("plant-1")[0]
	waiting := func(ctx context.Context) (int, error) {
		list, err := d.api.Orphans(ctx, node, api.Page{})
		return len(list.Items), err
	}
	pid := 0
	d.drifts(t, "an unknown guardian", map[string]int{"stray": 1}, func() {
		pid = d.guardian(t, node, id)
		waitFor(t, "it waits for an operator", func(ctx context.Context) error {
			n, err := waiting(ctx)
			if err == nil && n != 1 {
				err = errNotYet
			}
			return err
		})
	})
	require.True(t, alive(pid), "it runs on")
	_, err = d.api.ApproveOrphans(t.Context(), node, api.OrphanApproval{All: true}, api.Mutation{})
	require.NoError(t, err)
	waitFor(t, "it is ended", func(context.Context) error { return unless(!alive(pid)) })
}
