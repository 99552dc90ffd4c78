//go:build !race

package region

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// runRow is an object in one region's database: its own, or a copy.
type runRow struct {
	Key     fleet.CopyKey
	Owner   fleet.RegionName
	Regions []string
	Project string
	Service string
	V       string
	Spec    json.RawMessage
	Epoch   int64
	Content string // all that is to be the same everywhere
}

// runRowsQuery reads tables, and nothing that the code under test computes from them.
const runRowsQuery = `WITH content AS (
	SELECT $1::text AS region, kind, name, project, service, labels, spec, syncing, concat_ws('|', uid, generation, labels, created_by, created_at, updated_at,
		coalesce(deleting_since::text, '-'), owner_epoch, CASE WHEN owner_number > 0 THEN owner_number ELSE greatest(resource_version, refreshed) END) AS rest, owner_epoch
	FROM objects WHERE kind IN ('organization', 'pool', 'project', 'service', 'template') AND name <> 'default'
	UNION ALL
	SELECT region, kind, name, project, service, labels, spec, syncing, concat_ws('|', uid, generation, labels, created_by, created_at, updated_at,
		coalesce(deleting_since::text, '-'), owner_epoch, number), owner_epoch FROM copies)
	SELECT region, kind, name, syncing ->> 'owningRegion', ARRAY(SELECT jsonb_array_elements_text(syncing -> 'regions')), project, service, coalesce(labels ->> 'v', ''), spec,
		owner_epoch, concat_ws('|', project, service, spec, syncing, rest) FROM content`

func (r *runs) rows(in fleet.RegionName) []*runRow {
	r.t.Helper()
	rows, err := r.regions[in].raw.Query(r.t.Context(), runRowsQuery, in)
	require.NoError(r.t, err)
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*runRow, error) {
		o := &runRow{}
		return o, row.Scan(&o.Key.Region, &o.Key.Kind, &o.Key.Name, &o.Owner, &o.Regions, &o.Project, &o.Service, &o.V, &o.Spec, &o.Epoch, &o.Content)
	})
	require.NoError(r.t, err)
	return out
}

// runWaits count what is still to be done, or was set aside.
const runWaits = `SELECT what || ': ' || id FROM (
	SELECT 'outbox' AS what, subject AS id FROM outbox UNION ALL
	SELECT 'unapplied policy', kind || ' ' || name FROM policy_turns WHERE ended_at IS NULL UNION ALL
	SELECT 'running operation', name || ' ' || kind FROM operations WHERE state = 'running' UNION ALL
	SELECT 'set aside', concat_ws(' ', region, kind, name, 'of', peer, reason, owner_epoch, number) FROM quarantine UNION ALL
	SELECT 'waits for parts', concat_ws(' ', region, kind, name, 'of', owner, problem) FROM copies_waiting UNION ALL
	SELECT 'comparison', peer FROM region_syncs WHERE ended_at IS NULL OR wanted <> pass) waits`

// differ says what keeps the regions from being done: what waits, and where they do not have what the owners' policies say.
func (r *runs) differ() (out []string) {
	r.t.Helper()
	has, holders := map[fleet.CopyKey]map[fleet.RegionName]*runRow{}, map[fleet.RegionName]held{}
	for _, name := range runNames {
		waiting, err := r.regions[name].raw.Query(r.t.Context(), runWaits)
		require.NoError(r.t, err)
		waits, err := pgx.CollectRows(waiting, pgx.RowTo[string])
		require.NoError(r.t, err)
		for _, w := range waits {
			out = append(out, string(name)+" "+w)
		}
		rows := r.rows(name)
		holders[name] = holdersIn(rows)
		for _, o := range rows {
			if has[o.Key] == nil {
				has[o.Key] = map[fleet.RegionName]*runRow{}
			}
			has[o.Key][name] = o
		}
	}
	for key, in := range has {
		out = append(out, differsIn(key, in, holders)...)
	}
	return out
}

func differsIn(key fleet.CopyKey, in map[fleet.RegionName]*runRow, holders map[fleet.RegionName]held) (out []string) {
	var owned *runRow
	for name, o := range in {
		if o.Owner != name {
			continue
		}
		if owned != nil {
			return []string{fmt.Sprintf("%s is owned by %s and by %s", key, owned.Owner, name)}
		}
		owned = o
	}
	if owned == nil {
		for name, o := range in {
			out = append(out, fmt.Sprintf("%s has %s of %s, which does not: %s", name, key, o.Owner, o.Content))
		}
		return out
	}
	for _, name := range runNames {
		o, should := in[name], slices.Contains(owned.Regions, string(name))
		switch {
		case o == nil && should:
			out = append(out, fmt.Sprintf("%s lacks %s of %s", name, key, owned.Owner))
		case o != nil && !should:
			out = append(out, fmt.Sprintf("%s has %s of %s too much", name, key, owned.Owner))
		case o != nil && o.Content != owned.Content:
			out = append(out, fmt.Sprintf("%s has %s as %s; its owner has %s", name, key, o.Content, owned.Content))
		}
	}
	if owner, regions := sharedAs(owned, holders[owned.Owner]); owner != owned.Owner || !slices.Equal(regions, owned.Regions) {
		out = append(out, fmt.Sprintf("%s is of %s in %v; its policy says %s in %v", key, owned.Owner, owned.Regions, owner, regions))
	}
	return out
}

// sharedAs is who is to own an object and which regions are to have it, by the first of its holders with a policy.
func sharedAs(o *runRow, holders held) (owner fleet.RegionName, regions []string) {
	shared, policy := o.Key.Kind != fleet.KindPool, holders.policy(o)
	switch {
	case policy == nil:
		owner, regions = o.Owner, []string{string(o.Owner)}
	case shared:
		owner, regions = fleet.RegionName(policy.DefaultControlRegion), slices.Clone(policy.EnabledRegions)
	case slices.Contains(policy.EnabledRegions, string(o.Owner)):
		owner, regions = o.Owner, slices.Clone(policy.EnabledRegions)
	default:
		owner, regions = o.Owner, []string{string(o.Owner)}
	}
	if birth := string(o.Key.Region); shared && !slices.Contains(regions, birth) {
		regions = append(regions, birth)
	}
	slices.Sort(regions)
	return owner, regions
}

const runListed = `SELECT region, kind, name, coalesce(object -> 'labels' ->> 'v', '') FROM lost_writes`

// runFalls counts changes of a copy after which it had a lower version than before.
const runFalls = `SELECT count(*) FROM (
	SELECT epoch, number, lag(epoch) OVER w AS epoch_before, lag(number) OVER w AS number_before FROM (
		SELECT region, kind, scope, name, seq, (coalesce(after, before) ->> 'ownerEpoch')::bigint AS epoch, (coalesce(after, before) ->> 'number')::bigint AS number
		FROM events WHERE region <> '') e
	WINDOW w AS (PARTITION BY region, kind, scope, name ORDER BY seq)) x
	WHERE (epoch, number) < (epoch_before, number_before)`

// account compares what is there with what was acknowledged.
func (r *runs) account() {
	r.t.Helper()
	there, listed := map[fleet.CopyKey]string{}, map[seen]bool{}
	for _, name := range runNames {
		for _, o := range r.rows(name) {
			there[o.Key] = o.V
			if o.Key.Kind == fleet.KindTemplate {
				r.usable(name, o)
			}
		}
		rows, err := r.regions[name].raw.Query(r.t.Context(), runListed)
		require.NoError(r.t, err)
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s seen, err error) {
			err = row.Scan(&s.key.Region, &s.key.Kind, &s.key.Name, &s.v)
			listed[s] = true
			return s, err
		})
		require.NoError(r.t, err)
		if !r.restored && !r.forced {
			var falls int
			require.NoError(r.t, r.regions[name].raw.QueryRow(r.t.Context(), runFalls).Scan(&falls))
			require.Zero(r.t, falls, "%s took older versions after newer ones", name)
		}
	}
	mayLose := r.restored || r.forced
	require.Empty(r.t, r.ledger.missing(there, listed, mayLose), "seed %d", r.seed)
	if !mayLose {
		require.Empty(r.t, listed, "seed %d: nothing was lost", r.seed)
	}
}

// usable reads a template with its base, and what it merges.
func (r *runs) usable(in fleet.RegionName, o *runRow) {
	r.t.Helper()
	s := r.regions[in].store
	spec, _, err := s.TemplateSpec(r.t.Context(), fleet.CopiedTemplate(o.Key.Region, o.Key.Name).In(in), 0)
	require.NoError(r.t, err, "%s in %s", o.Key, in)
	body, err := s.OpenBody(r.t.Context(), spec.Base.Hash)
	require.NoError(r.t, err, "%s in %s", o.Key, in)
	text, err := io.ReadAll(body)
	require.NoError(r.t, err)
	require.Equal(r.t, bodyOf(o.V), string(text), "%s in %s", o.Key, in)
	for _, pin := range spec.Compositions {
		_, _, err := s.TemplateSpec(r.t.Context(), pin.Name, pin.Generation)
		require.NoError(r.t, err, "%s in %s merges %s", o.Key, in, pin)
	}
}
