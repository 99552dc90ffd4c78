//go:build slow

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// expected is what the region wants of one instance, and what it has deployed.
type expected struct {
	Name, Action, Hash string
	Enabled            bool
	Revision, Deployed int64
}

func (s *stack) expects(ctx context.Context, site string) ([]expected, error) {
	rows, err := s.pg.Query(ctx, `SELECT s.name, r.action, coalesce(encode(r.body_hash, 'hex'), ''), r.enabled, r.revision, coalesce(p.revision, 0)
		FROM subjects s JOIN revisions r ON r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision
		LEFT JOIN snapshots p ON p.site = s.site AND p.name = s.name WHERE s.site = $1 ORDER BY s.name`, site)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[expected])
}

// asExpected says how the nodes of a site differ from the region's expected set, or nothing.
func (s *stack) asExpected(ctx context.Context, site string) error {
	all, err := s.expects(ctx, site)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, e := range all {
		known[e.Name] = true
		if e.Deployed != e.Revision {
			return fmt.Errorf("%s: deployed is %d, desired %d", e.Name, e.Deployed, e.Revision)
		}
		for _, node := range pair(site) {
			if err := s.asOn(ctx, node, e); err != nil {
				return err
			}
		}
	}
	for _, node := range pair(site) {
		held, err := s.stores.currents(ctx, node)
		if err != nil {
			return err
		}
		for name := range held {
			if !known[name] {
				return fmt.Errorf("%s holds %s, which nobody asked for", node, name)
			}
		}
	}
	return nil
}

// asOn compares one instance with the file of a node. What was deleted leaves its tombstone.
func (s *stack) asOn(ctx context.Context, node string, e expected) error {
	got, err := s.stores.current(ctx, node, e.Name)
	if err != nil {
		return fmt.Errorf("%s on %s: %w", e.Name, node, err)
	}
	if got.action == "delete" != (e.Action == "delete") || got.Revision != e.Revision {
		return fmt.Errorf("%s on %s is %+v, wanted is %+v", e.Name, node, got, e)
	}
	if e.Action == "delete" {
		return nil
	}
	sum, err := s.stores.bytesHash(ctx, node, got)
	if err == nil && (got.hash != e.Hash || got.enabled != e.Enabled || sum != e.Hash) {
		err = fmt.Errorf("%s on %s is %+v with bytes %.12s, wanted is %+v", e.Name, node, got, sum, e)
	}
	return err
}

// healed waits until both nodes are as the region expects, nothing is under way, and each
// command runs once or not at all, as it should.
func (r *random) healed(t *testing.T) {
	t.Helper()
	began := time.Now()
	waitFor(t, "both nodes are as expected", func(ctx context.Context) error { return r.asExpected(ctx, randomSite) })
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("both nodes are as expected after %v", took)
	if took > randomHeals {
		t.Logf("SLOW: they should be after %v", randomHeals)
	}
	r.quiet(t)
	t.Logf("nothing is under way after %v", time.Since(began).Round(time.Millisecond))
	require.NoError(t, r.asExpected(t.Context(), randomSite))
	all, err := r.expects(t.Context(), randomSite)
	require.NoError(t, err)
	for _, e := range all {
		w := r.witnesses[e.Name]
		switch {
		case w == nil:
		case e.Enabled && e.Action != "delete":
			w.runs(t, e.Hash)
			w.alone(t)
		default:
			for _, start := range w.starts(t) {
				require.False(t, alive(start.pid), "%s runs though it is not enabled", e.Name)
			}
		}
	}
}
