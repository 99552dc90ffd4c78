package region

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// always is what holds after every step.
func (w *healWorld) always() {
	for _, n := range w.nodes {
		w.level(n)
	}
}

// level is what holds of a node after all that it did.
func (w *healWorld) level(n *healNode) {
	for _, name := range n.runtime.twice {
		w.fail("%s would run twice on %s", name, n.name)
	}
	n.runtime.twice = nil
	if n.life == nil {
		return
	}
	all, err := n.life.agent.Store.Instances(w.ctx)
	if err != nil {
		w.fail("read the store of %s: %v", n.name, err)
		return
	}
	held := map[fleet.InstanceName]fleet.Version{}
	for _, in := range all {
		if in.Current == nil {
			continue
		}
		held[in.Name] = in.Current.Version
		if in.Current.Deleted() && n.tombs[in.Name] != in.Current.Version {
			n.tombs[in.Name] = in.Current.Version
			w.confirmed(n, in.Name, in.Current.Version)
		}
	}
	for name, before := range n.seen {
		if before.Newer(held[name]) {
			w.fail("%s went back from %v to %v on %s", name, before, held[name], n.name)
		}
	}
	n.seen = held
}

// confirmed: what a node dropped, the region has deleted under that very number.
func (w *healWorld) confirmed(n *healNode, name fleet.InstanceName, v fleet.Version) {
	var action string
	err := w.region.pool.QueryRow(w.ctx, "SELECT action FROM revisions WHERE site = $1 AND name = $2 AND revision = $3", healSite, name, v.Revision).Scan(&action)
	if err != nil || action != string(fleet.ActionDelete) {
		w.fail("%s dropped %s by number %d, which is no delete (%s %v)", n.name, name, v.Revision, action, err)
	}
}

const healRounds = 15

// heal mends everything, and lets the region work until it has nothing to do.
func (w *healWorld) heal() {
	w.calm, w.shut = true, false
	w.say("all is mended")
	for _, n := range w.nodes {
		n.cut, n.dieAt = false, ""
		if err := n.start(w.ctx); err != nil {
			w.fail("start %s: %v", n.name, err)
		}
	}
	for len(w.late) > 0 {
		f := w.late[0]
		w.late = w.late[1:]
		f()
	}
	if err := w.resumePaused(); err != nil {
		w.fail("resume: %v", err)
	}
	for round := range healRounds {
		w.say("round %d", round)
		if err := w.round(); err != nil {
			w.fail("round %d: %v", round, err)
			return
		}
		w.always()
		if gaps := w.gaps(); len(gaps) == 0 && round > 1 {
			return
		}
	}
	for _, gap := range w.gaps() {
		w.fail("never healed: %s", gap)
	}
}

func (w *healWorld) round() error {
	if err := w.region.pass(w.ctx, 3*time.Minute); err != nil {
		return err
	}
	for _, n := range w.nodes {
		n.tick(w.ctx)
	}
	if _, err := w.region.sweep.SweepOperations(w.ctx, func() {}); err != nil {
		return err
	}
	if err := w.relay(); err != nil {
		return err
	}
	if err := w.sweepNodes(); err != nil {
		return err
	}
	w.unpark()
	for runs := 0; len(w.queue) > 0; runs++ {
		if runs == 100 {
			return fmt.Errorf("the entities wake each other without end")
		}
		w.runSome(0)
	}
	for _, n := range w.nodes {
		n.tick(w.ctx)
	}
	return nil
}

// gaps is what differs from a region at rest.
func (w *healWorld) gaps() []string {
	gaps := w.rows()
	for i := range healNames {
		gaps = append(gaps, w.gapsOf(fleet.InstanceName(healName(i)))...)
	}
	return gaps
}

// rows are of what is under way; there is none at rest.
func (w *healWorld) rows() []string {
	var out []string
	for _, q := range []string{
		"SELECT 'owed ' || name || ' to ' || node || ' ' || revision || ' ' || reason FROM owed",
		"SELECT 'open delivery ' || name || ' ' || revision FROM deliveries WHERE state = 'open'",
		"SELECT 'unsettled ' || name FROM under_way",
		"SELECT 'operation ' || kind || ' ' || name || ' ' || revision FROM operations WHERE state = 'running'",
		"SELECT 'pending ' || name || ' ' || revision FROM pending",
		"SELECT 'outbox ' || subject FROM outbox",
		"SELECT 'comparison ' || node FROM reconciles WHERE state = 'running'",
		"SELECT 'orphan ' || name || ' of ' || node || ' ' || reason FROM orphans",
		"SELECT 'batch of ' || workflow_id FROM batches WHERE state = 'open'",
		"SELECT 'fleet change ' || fleet || ' ' || run || ' ' || state FROM fleet_runs WHERE state IN ('running', 'paused')",
		"SELECT 'target ' || name || ' of ' || fleet || ' ' || run FROM fleet_targets WHERE state = 'delivering'",
		// A target that succeeded was deployed, and is still there or was followed by something newer.
		`SELECT 'succeeded ' || t.name || ' ' || t.revision || ', deployed is ' || coalesce(p.revision, 0) FROM fleet_targets t
		 LEFT JOIN snapshots p USING (site, name) WHERE t.state = 'succeeded' AND coalesce(p.revision, 0) < t.revision`,
		// What was acknowledged as durable, and was the last word, is what is deployed.
		`SELECT 'acknowledged ' || o.name || ' ' || o.revision || ', deployed is ' || coalesce(p.revision, 0) FROM operations o
		 JOIN revisions r USING (site, name, revision) LEFT JOIN snapshots p USING (site, name)
		 LEFT JOIN revisions d ON d.site = p.site AND d.name = p.name AND d.revision = p.revision
		 WHERE o.state = 'succeeded' AND o.kind <> 'reconcile'
		   AND (coalesce(p.revision, 0) < o.revision
		        OR o.requested_by <> 'region' AND (d.body_hash, d.enabled, d.run_hash) IS DISTINCT FROM (r.body_hash, r.enabled, r.run_hash)
		           AND NOT EXISTS (SELECT 1 FROM operations x WHERE x.site = o.site AND x.name = o.name AND x.requested_by <> 'region'
		                           AND x.kind <> 'reconcile' AND x.revision > o.revision)
		           AND NOT EXISTS (SELECT 1 FROM revisions f WHERE f.site = o.site AND f.name = o.name AND f.revision > o.revision
		                           AND f.reason LIKE 'fleet change %'))`,
	} {
		rows, err := w.region.pool.Query(w.ctx, q)
		var lines []string
		if err == nil {
			lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return append(out, err.Error())
		}
		out = append(out, lines...)
	}
	return out
}

func (w *healWorld) gapsOf(name fleet.InstanceName) []string {
	snap, want, err := w.region.store.Deployed(w.ctx, fleet.InstanceKey(healSite, name))
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return []string{err.Error()}
	}
	var gaps []string
	if want.Version != snap.Version && !w.declared(name, want.Version.Revision) {
		gaps = append(gaps, fmt.Sprintf("%s: desired is %d, deployed %d, and no reason says why", name, want.Version.Revision, snap.Version.Revision))
	}
	for i, n := range w.nodes {
		if n.life == nil {
			gaps = append(gaps, string(n.name)+" is not there")
			continue
		}
		held, err := n.life.agent.Applier.Held(w.ctx, name)
		if err != nil {
			return append(gaps, err.Error())
		}
		gone := snap.IsZero() || snap.Action == fleet.ActionDelete
		there := held.Known && !held.Version.IsZero() && held.Action != fleet.ActionDelete
		same := there && held.Version == snap.Version && held.Content.Hash == snap.Content.Hash && held.RunHash == snap.RunHash && held.Enabled == snap.Enabled
		if snap.IsZero() && want.Version.Newer(held.Version) {
			continue // an applied first attempt that was settled as not applied: nothing is deployed that it could be brought to
		}
		if gone && there || !gone && !same {
			gaps = append(gaps, fmt.Sprintf("%s: %s holds %v %.8s, deployed is %v %.8s", name, n.name, held.Version, held.Content.Hash, snap.Version, snap.Content.Hash))
		}
		st, runs := n.runtime.snapshot()[name]
		should := i == w.active && !gone && snap.Enabled && snap.RunHash != ""
		if runs != should || runs && (st.Labels.Hash != snap.Content.Hash || st.Labels.RunHash != snap.RunHash) {
			gaps = append(gaps, fmt.Sprintf("%s: runs on %s: %t, should: %t", name, n.name, runs, should))
		}
	}
	return gaps
}

// declared says whether the last attempt at a revision, or who asked for it before there was
// one, ended for a reason that stays. What was only to be fetched, for a change that has ended
// before its window opened, is owed to nobody (N100).
func (w *healWorld) declared(name fleet.InstanceName, revision int64) bool {
	var reason string
	err := w.region.pool.QueryRow(w.ctx, `SELECT coalesce(
		(SELECT CASE WHEN b.stage THEN 'staged' ELSE d.reason END FROM deliveries d LEFT JOIN batches b ON b.id = d.batch_id WHERE d.site = $1 AND d.name = $2 AND d.revision = $3 ORDER BY d.attempt DESC LIMIT 1),
		(SELECT o.reason FROM operations o WHERE o.site = $1 AND o.name = $2 AND o.revision = $3 ORDER BY o.created_at DESC LIMIT 1), '')`,
		healSite, name, revision).Scan(&reason)
	return err == nil && slices.Contains([]string{string(fleet.ApplyFailed), "cancelled", string(fleet.Stale), "workflow_terminated", "deadline", "staged"}, reason)
}

// dump is what a failure shows.
func (w *healWorld) dump() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "wrong:\n  " + strings.Join(w.wrong, "\n  ") + "\nwhat happened:\n  " + strings.Join(w.lines, "\n  ") +
		fmt.Sprintf("\nqueued: %d, open runs: %v", len(w.queue), slices.Sorted(maps.Keys(w.entities)))
}
