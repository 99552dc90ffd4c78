//go:build slow

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// hardRow is an object in one region's database: its own, or a copy.
type hardRow struct {
	Region, Key, Content string
	Number               int64
	Regions              []string
	MaxReplicas          string
}

const hardContent = `md5(concat_ws('|', uid, generation, project, service, CASE WHEN labels = 'null' THEN '{}' ELSE labels END, spec, syncing,
	created_by, created_at, updated_at, coalesce(deleting_since::text, '-'), owner_epoch))`

const hardOwned = `SELECT $1 AS region, kind || '/' || name AS key, ` + hardContent + ` AS content, greatest(resource_version, refreshed) AS number,
	ARRAY(SELECT jsonb_array_elements_text(syncing -> 'regions')) AS regions, coalesce(spec ->> 'maxReplicas', '') AS max_replicas
	FROM objects WHERE project LIKE 'hard-%'`

const hardCopied = `SELECT region, kind || '/' || name AS key, ` + hardContent + ` AS content, number,
	ARRAY(SELECT jsonb_array_elements_text(syncing -> 'regions')) AS regions, coalesce(spec ->> 'maxReplicas', '') AS max_replicas
	FROM copies WHERE region <> $1`

// hardWaits count what is still to be done, or was set aside.
var hardWaits = map[string]string{
	"outbox rows":        `SELECT count(*) FROM outbox`,
	"unapplied policies": `SELECT count(*) FROM policy_turns WHERE ended_at IS NULL`,
	"running operations": `SELECT count(*) FROM operations WHERE state = 'running'`,
	"quarantined copies": `SELECT count(*) FROM quarantine`,
	"lost writes":        `SELECT count(*) FROM lost_writes`, // there is none without a restore
}

// settle waits until each region has what the others owe it, and nothing waits.
func (h *hard) settle(what string) {
	h.t.Helper()
	err := pollEvery(h.t.Context(), 2*time.Second, *hardSettle, h.differs)
	require.NoError(h.t, err, "%s: %s", what, h.report())
}

// differs says what regions lack, or have too much.
func (h *hard) differs(ctx context.Context) error {
	owned := map[string][]hardRow{}
	for name, r := range h.regions {
		rows, err := r.rows(ctx, hardOwned)
		if err != nil {
			return err
		}
		owned[name] = rows
	}
	for _, name := range h.names {
		if err := h.lacks(ctx, h.regions[name], owned); err != nil {
			return err
		}
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

func (h *hard) lacks(ctx context.Context, at *hardRegion, owned map[string][]hardRow) error {
	copies, err := at.rows(ctx, hardCopied)
	if err != nil {
		return err
	}
	have := make(map[string]hardRow, len(copies))
	for _, c := range copies {
		have[c.Region+"/"+c.Key] = c
	}
	var bad []string
	for owner, rows := range owned {
		for _, o := range rows {
			if owner == at.name || !slices.Contains(o.Regions, at.name) {
				continue
			}
			key := owner + "/" + o.Key
			if c, is := have[key]; !is || c.Content != o.Content || c.Number != o.Number {
				bad = append(bad, fmt.Sprintf("%s is %+v, to be %+v", key, c, o))
			}
			delete(have, key)
		}
	}
	for key, c := range have {
		bad = append(bad, fmt.Sprintf("%s is too much: %+v", key, c))
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s differs in %d of %d copies, among them: %s", at.name, len(bad), len(copies), strings.Join(bad[:min(3, len(bad))], "; "))
	}
	return nil
}

func (r *hardRegion) rows(ctx context.Context, query string) ([]hardRow, error) {
	rows, err := r.pg.Query(ctx, query, r.name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[hardRow])
}

// check compares the regions with what was acknowledged: each object as it was written last, or gone, in the regions that
// the last policies say.
func (h *hard) check() {
	h.t.Helper()
	policies := map[string][]string{}
	for _, w := range h.writers {
		for project, regions := range w.policies {
			policies[project] = regions
		}
	}
	for _, name := range h.names {
		rows, err := h.regions[name].rows(h.t.Context(), hardOwned)
		require.NoError(h.t, err)
		have := make(map[string]hardRow, len(rows))
		for _, o := range rows {
			have[o.Key] = o
		}
		for _, w := range h.writers {
			if w.at.name == name {
				w.compare(have, policies)
			}
		}
		for key := range have {
			if !strings.HasPrefix(key, "project/") {
				h.accuse("%s has %s, which is deleted", name, key)
			}
		}
		h.rising(h.regions[name])
	}
}

// compare takes from what a region has what this writer knows.
func (w *hardWriter) compare(have map[string]hardRow, policies map[string][]string) {
	for _, o := range w.objects {
		row, is := have["pool/"+o.name]
		if !o.there {
			continue // what is left over is too much
		}
		delete(have, "pool/"+o.name)
		want := []string{w.at.name}
		if enabled := policies[o.project]; slices.Contains(enabled, w.at.name) {
			want = slices.Sorted(slices.Values(enabled))
		}
		slices.Sort(row.Regions)
		switch {
		case !is:
			w.accuse("%s lost %s", w.at.name, o.name)
		case row.MaxReplicas != strconv.Itoa(o.number):
			w.accuse("%s has %s with %s, acknowledged was %d", w.at.name, o.name, row.MaxReplicas, o.number)
		case !slices.Equal(row.Regions, want):
			w.accuse("%s shares %s with %v, its policy says %v", w.at.name, o.name, row.Regions, want)
		}
	}
}

// hardFalls counts the changes of a copy after which it had a lower version than before.
const hardFalls = `SELECT count(*) FROM (
	SELECT epoch, number, lag(epoch) OVER w AS epoch_before, lag(number) OVER w AS number_before FROM (
		SELECT region, kind, scope, name, seq, (coalesce(after, before) ->> 'ownerEpoch')::bigint AS epoch, (coalesce(after, before) ->> 'number')::bigint AS number
		FROM events WHERE region <> '') e
	WINDOW w AS (PARTITION BY region, kind, scope, name ORDER BY seq)) x
	WHERE (epoch, number) < (epoch_before, number_before)`

// rising looks at the whole history of a region's copies.
func (h *hard) rising(r *hardRegion) {
	h.t.Helper()
	n, err := r.count(h.t.Context(), hardFalls)
	require.NoError(h.t, err)
	if n > 0 {
		h.accuse("%s took %d older versions after newer ones", r.name, n)
	}
}
