//go:build slow

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// hardRow is an object in one region's database: its own, or a copy.
type hardRow struct {
	Key, Owner, Content string
	Regions             []string
	MaxReplicas         string
	Enabled             []string // of a project
}

// hardRows are all of a region, with what is to be the same in all that have one.
const hardRows = `SELECT region || '/' || kind || '/' || name AS key, syncing ->> 'owningRegion' AS owner, md5(rest) AS content,
	ARRAY(SELECT jsonb_array_elements_text(syncing -> 'regions')) AS regions, coalesce(spec ->> 'maxReplicas', '') AS max_replicas,
	ARRAY(SELECT jsonb_array_elements_text(spec -> 'multiRegionPolicy' -> 'enabledRegions')) AS enabled
	FROM (SELECT $1::text AS region, kind, name, spec, syncing, concat_ws('|', uid, generation, project, service, CASE WHEN labels = 'null' THEN '{}' ELSE labels END, spec,
		syncing, created_by, created_at, updated_at, coalesce(deleting_since::text, '-'), owner_epoch,
		CASE WHEN owner_number > 0 THEN owner_number ELSE greatest(resource_version, refreshed) END) AS rest
	FROM objects WHERE project LIKE 'hard-%'
	UNION ALL SELECT region, kind, name, spec, syncing, concat_ws('|', uid, generation, project, service, CASE WHEN labels = 'null' THEN '{}' ELSE labels END, spec,
		syncing, created_by, created_at, updated_at, coalesce(deleting_since::text, '-'), owner_epoch, number) FROM copies) o`

// hardWaits count what is still to be done, or was set aside.
var hardWaits = map[string]string{
	"outbox rows":        `SELECT count(*) FROM outbox`,
	"unapplied policies": `SELECT count(*) FROM policy_turns WHERE ended_at IS NULL`,
	"running operations": `SELECT count(*) FROM operations WHERE state = 'running'`,
	"quarantined copies": `SELECT count(*) FROM quarantine`,
	"waiting copies":     `SELECT count(*) FROM copies_waiting`,
}

// settle waits until each region has what the others owe it, and nothing waits.
func (h *hard) settle(what string) {
	h.t.Helper()
	err := pollEvery(h.t.Context(), 2*time.Second, *hardSettle, h.differs)
	require.NoError(h.t, err, "%s: %s", what, h.report())
}

// differs says what regions lack, or have too much.
func (h *hard) differs(ctx context.Context) error {
	all, err := h.rows(ctx)
	if err != nil {
		return err
	}
	var bad []string
	for key, has := range all {
		owned := hardRow{}
		for name, o := range has {
			if o.Owner == name {
				owned = o
			}
		}
		for _, name := range h.names {
			o, is := has[name]
			if should := slices.Contains(owned.Regions, name); is != should || is && o.Content != owned.Content {
				bad = append(bad, fmt.Sprintf("%s has %s as %+v, to be %+v", name, key, o, owned))
			}
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d objects differ, among them: %s", len(bad), len(all), strings.Join(bad[:min(3, len(bad))], "; "))
	}
	for _, name := range h.names {
		for what, query := range hardWaits {
			n, err := h.regions[name].count(ctx, query)
			if err == nil && n > 0 {
				err = fmt.Errorf("%s has %d %s", name, n, what)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rows are all objects, by name, as each region has them.
func (h *hard) rows(ctx context.Context) (map[string]map[string]hardRow, error) {
	out := map[string]map[string]hardRow{}
	for _, name := range h.names {
		rows, err := h.regions[name].pg.Query(ctx, hardRows, name)
		if err != nil {
			return nil, err
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByName[hardRow])
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if out[o.Key] == nil {
				out[o.Key] = map[string]hardRow{}
			}
			out[o.Key][name] = o
		}
	}
	return out, nil
}

// check compares the regions with what was acknowledged: each object as it was written last, or gone, in the regions that its policy
// says. What a restore undid is either there or, if another region had it, listed.
func (h *hard) check() {
	h.t.Helper()
	all, err := h.rows(h.t.Context())
	require.NoError(h.t, err)
	policies, listed, mayLose := map[string][]string{}, h.listed(), h.mayLose()
	for key, has := range all {
		_, name, _ := strings.Cut(key, "/project/")
		for at, o := range has {
			if name != "" && o.Owner == at {
				policies[name] = slices.Sorted(slices.Values(o.Enabled))
			}
		}
	}
	for _, w := range h.writers {
		for project, regions := range w.policies {
			if got := slices.Sorted(slices.Values(regions)); !mayLose && !slices.Equal(got, policies[project]) {
				h.accuse("%s enables %v, acknowledged was %v", project, policies[project], got)
			}
		}
		w.compare(all, policies, listed)
	}
	for _, name := range h.names {
		h.rising(h.regions[name])
		n, err := h.regions[name].count(h.t.Context(), `SELECT count(*) FROM lost_writes`)
		require.NoError(h.t, err)
		if n > 0 && !mayLose {
			h.accuse("%s lists %d lost writes", name, n)
		}
		h.t.Logf("%s lists %d lost writes", name, n)
	}
}

// compare looks for what this writer knows.
func (w *hardWriter) compare(all map[string]map[string]hardRow, policies map[string][]string, listed map[hardState]bool) {
	for _, o := range w.objects {
		row, is := all[w.at.name+"/pool/"+o.name][w.at.name]
		if now := (hardState{o.name, row.MaxReplicas}); now != o.state() {
			switch {
			case !o.undone:
				w.accuse("%s has %v, acknowledged was %v", w.at.name, now, o.state())
			case o.had && !listed[o.state()]:
				w.accuse("%s has %v; %v was undone, another region had it, and none lists it", w.at.name, now, o.state())
			}
		}
		if !is {
			continue
		}
		want := []string{w.at.name}
		if enabled := policies[o.project]; slices.Contains(enabled, w.at.name) {
			want = enabled
		}
		if slices.Sort(row.Regions); !slices.Equal(row.Regions, want) {
			w.accuse("%s shares %s with %v, its policy says %v", w.at.name, o.name, row.Regions, want)
		}
	}
}

// hardFalls counts the changes of a copy after which it had a lower version than before. A restored owner begins with lower ones.
const hardFalls = `SELECT count(*) FROM (
	SELECT epoch, number, lag(epoch) OVER w AS epoch_before, lag(number) OVER w AS number_before FROM (
		SELECT region, kind, scope, name, seq, (coalesce(after, before) ->> 'ownerEpoch')::bigint AS epoch, (coalesce(after, before) ->> 'number')::bigint AS number
		FROM events WHERE kind = 'pool' AND region <> '' AND region <> ALL($1)) e
	WINDOW w AS (PARTITION BY region, kind, scope, name ORDER BY seq)) x
	WHERE (epoch, number) < (epoch_before, number_before)`

// rising looks at the whole history of a region's copies.
func (h *hard) rising(r *hardRegion) {
	h.t.Helper()
	var n int64
	err := r.pg.QueryRow(h.t.Context(), hardFalls, h.restoredNames()).Scan(&n)
	require.NoError(h.t, err)
	if n > 0 {
		h.accuse("%s took %d older versions after newer ones", r.name, n)
	}
}
