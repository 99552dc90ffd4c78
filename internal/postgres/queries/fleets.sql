-- Who is changed, in the order in which waves take them.
-- name: SelectFleetMembers :many
SELECT o.scope AS site, o.name FROM objects o
WHERE o.kind = 'instance' AND o.project = @project AND o.deleting_since IS NULL AND o.labels @> @labels::jsonb
  AND (cardinality(@sites::text[]) = 0 OR o.scope = ANY(@sites::text[]))
  AND (@template::text = '' OR o.spec ->> 'template' = @template::text)
ORDER BY o.scope, o.name;

-- name: InsertFleetRun :one
INSERT INTO fleet_runs (fleet, run, uid, project, generation, spec, rollback_of, state, message, waves, until_wave, requested_by, deadline_at)
SELECT @fleet, coalesce((SELECT max(r.run) FROM fleet_runs r WHERE r.fleet = @fleet), 0) + 1, @uid, @project, @generation, @spec,
       @rollback_of, 'running', @message, @waves, @waves, @requested_by, now() + make_interval(secs => @seconds::float8)
RETURNING *;

-- name: InsertFleetTargets :exec
INSERT INTO fleet_targets (fleet, run, site, name, wave)
SELECT @fleet, @run, t.site, t.name, t.wave
FROM (SELECT unnest(@sites::text[]) AS site, unnest(@names::text[]) AS name, unnest(@waves::integer[]) AS wave) t;

-- What a run released is taken back, all in one wave.
-- name: InsertRollbackTargets :execrows
INSERT INTO fleet_targets (fleet, run, site, name, wave, undoes, restores)
SELECT t.fleet, @run, t.site, t.name, 1, t.revision, t.before_revision FROM fleet_targets t
WHERE t.fleet = @fleet AND t.run = @rollback_of AND t.revision > 0;

-- name: NewestFleetRun :one
SELECT * FROM fleet_runs WHERE fleet = @fleet ORDER BY run DESC LIMIT 1;

-- A run is locked before its targets, here as by a batch.
-- name: NewestFleetRunForUpdate :one
SELECT * FROM fleet_runs WHERE fleet = @fleet ORDER BY run DESC LIMIT 1 FOR UPDATE;

-- name: FleetRunForUpdate :one
SELECT * FROM fleet_runs WHERE fleet = @fleet AND run = @run FOR UPDATE;

-- name: FleetWasRun :one
SELECT EXISTS (SELECT 1 FROM fleet_runs WHERE fleet = @fleet AND uid = @uid AND generation = @generation AND rollback_of = 0);

-- name: RunningFleetOperation :one
SELECT * FROM operations WHERE subject = @subject AND kind = 'fleet' AND state = 'running' AND revision = @run ORDER BY created_at, id LIMIT 1;

-- A state is left only from where it was seen, under the lock on the object.
-- name: MoveFleetRun :execrows
UPDATE fleet_runs SET state = sqlc.arg(state), reason = @reason, message = @message,
    ended_at = CASE WHEN sqlc.arg(state)::text IN ('running', 'paused') THEN NULL ELSE now() END
WHERE fleet = @fleet AND run = @run AND state = @from_state;

-- name: NextFleetWave :execrows
UPDATE fleet_runs SET wave = wave + 1
WHERE fleet = @fleet AND run = @run AND state = 'running' AND wave = @wave AND wave < until_wave;

-- name: TurnFleetRun :one
UPDATE fleet_runs SET state = @state, reason = @reason, message = @message, turn = turn + 1, cancel_requested = @cancel,
    ended_at = CASE WHEN @state::text IN ('running', 'paused') THEN NULL ELSE coalesce(ended_at, now()) END
WHERE fleet = @fleet AND run = @run AND state = @from_state
RETURNING *;

-- name: ReopenFleetRun :one
UPDATE fleet_runs SET state = 'running', reason = '', message = @message, turn = turn + 1, cancel_requested = false, ended_at = NULL,
    wave = @wave, until_wave = @until_wave, retrying = @retrying, deadline_at = now() + make_interval(secs => @seconds::float8)
WHERE fleet = @fleet AND run = @run AND state = @from_state
RETURNING *;

-- What failed waits again, and gives back the first wave that has any; 0 when none has.
-- name: RetryFleetTargets :one
WITH again AS (
    UPDATE fleet_targets SET state = 'waiting', tries = 0, retried = true, reason = '', message = '', updated_at = now()
    WHERE fleet = @fleet AND run = @run AND state = 'failed' AND wave >= @from_wave AND wave <= @to_wave
    RETURNING wave)
SELECT coalesce(min(wave), 0)::integer AS wave FROM again;

-- name: ForgetFleetRetries :exec
UPDATE fleet_targets SET retried = false WHERE fleet = @fleet AND run = @run AND retried;

-- name: FailFleetDeliveries :exec
UPDATE fleet_targets SET state = 'failed', reason = @reason, message = @message, updated_at = now()
WHERE fleet = @fleet AND run = @run AND state = 'delivering';

-- name: AttachFleetRun :exec
UPDATE fleet_runs f SET entity_run = @entity_run
WHERE f.fleet = @fleet AND f.run = (SELECT max(n.run) FROM fleet_runs n WHERE n.fleet = f.fleet) AND f.entity_run <> @entity_run;

-- The instances of the wave under way that nobody has judged yet, those delivered first first. What their site's active
-- node reports of them decides.
-- name: FleetStarts :many
SELECT t.site, t.name, coalesce(d.updated_at, t.updated_at)::timestamptz AS since, clock_timestamp()::timestamptz AS now,
       coalesce(v.run IS NOT NULL AND v.enabled, false)::boolean AS runs,
       coalesce((h.era, h.revision) > (v.era, v.revision), false)::boolean AS replaced,
       coalesce(h.era = v.era AND h.revision = v.revision, false)::boolean AS current,
       coalesce(h.running, false)::boolean AS running, coalesce(h.exits, 0)::integer AS exits,
       coalesce(d.exits, 0)::integer AS exits_before, coalesce(h.last_exit, '')::text AS last_exit,
       coalesce(l.holder, '')::text AS node, n.counted_at AS looked_at
FROM fleet_targets t
LEFT JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = t.site AND x.name = t.name AND x.revision = t.revision OFFSET 0) v ON true
LEFT JOIN site_leases l ON l.site = t.site AND NOT l.dropped
LEFT JOIN LATERAL (SELECT x.* FROM node_held x WHERE x.site = t.site AND x.name = t.name AND x.node = l.holder OFFSET 0) h ON true
LEFT JOIN LATERAL (SELECT x.* FROM delivery_nodes x WHERE x.delivery_id = t.delivery_id AND x.node = l.holder AND x.state = 'applied' OFFSET 0) d ON true
LEFT JOIN nodes n ON n.name = l.holder
WHERE t.fleet = @fleet AND t.run = @run AND t.wave = @wave AND t.state = 'succeeded' AND NOT t.proven
ORDER BY t.updated_at, t.site, t.name LIMIT @max_rows;

-- A verdict is of the delivery that it was made of.
-- name: JudgeFleetTargets :execrows
UPDATE fleet_targets t SET proven = k.state = 'succeeded', state = k.state, reason = k.reason, message = k.message,
       updated_at = CASE WHEN k.state = 'succeeded' THEN t.updated_at ELSE now() END
FROM (SELECT unnest(@sites::text[]) AS site, unnest(@names::text[]) AS name, unnest(@states::text[]) AS state,
             unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) k
WHERE t.fleet = @fleet AND t.run = @run AND t.site = k.site AND t.name = k.name AND t.state = 'succeeded' AND NOT t.proven;

-- name: CountFleetStarts :one
SELECT count(*) FROM fleet_targets t
WHERE t.fleet = @fleet AND t.run = @run AND t.wave = @wave AND t.state = 'succeeded' AND NOT t.proven;

-- A retry leaves alone what waited before it: of the targets it has only those that failed.
-- name: SeeFleet :one
WITH r AS MATERIALIZED (SELECT x.* FROM fleet_runs x WHERE x.fleet = @fleet ORDER BY x.run DESC LIMIT 1),
t AS MATERIALIZED (
    SELECT x.site, x.state, (x.state <> 'waiting' OR x.retried OR NOT r.retrying)::boolean AS asked, count(*) AS n
    FROM r JOIN fleet_targets x ON x.fleet = r.fleet AND x.run = r.run AND x.wave = r.wave
    GROUP BY x.site, x.state, (x.state <> 'waiting' OR x.retried OR NOT r.retrying)::boolean)
SELECT jsonb_strip_nulls(jsonb_build_object(
    'at', clock_timestamp(), 'run', r.run, 'state', r.state, 'reason', r.reason, 'cancel', r.cancel_requested, 'turn', r.turn,
    'deadline', r.deadline_at, 'wave', r.wave, 'waves', r.waves, 'until', r.until_wave,
    'successThreshold', (r.spec ->> 'successThreshold')::float8, 'errorThreshold', (r.spec ->> 'errorThreshold')::float8,
    'sitesAtOnce', (r.spec ->> 'sitesAtOnce')::integer, 'batchSize', (r.spec ->> 'batchSize')::integer,
    'counts', (SELECT jsonb_build_object(
                   'total', coalesce(sum(t.n), 0),
                   'waiting', coalesce(sum(t.n) FILTER (WHERE t.state = 'waiting' AND t.asked), 0),
                   'delivering', coalesce(sum(t.n) FILTER (WHERE t.state = 'delivering'), 0),
                   'staged', coalesce(sum(t.n) FILTER (WHERE t.state = 'staged'), 0),
                   'succeeded', coalesce(sum(t.n) FILTER (WHERE t.state = 'succeeded'), 0),
                   'unchanged', coalesce(sum(t.n) FILTER (WHERE t.state = 'unchanged'), 0),
                   'superseded', coalesce(sum(t.n) FILTER (WHERE t.state = 'superseded'), 0),
                   'failed', coalesce(sum(t.n) FILTER (WHERE t.state = 'failed'), 0))
               FROM t),
    'sites', (SELECT jsonb_agg(jsonb_build_object('site', s.site, 'waiting', s.waiting, 'staged', s.staged)
                               ORDER BY s.waiting = 0, s.site)
              FROM (SELECT u.* FROM (
                        SELECT t.site, coalesce(sum(t.n) FILTER (WHERE t.state = 'waiting'), 0) AS waiting,
                               coalesce(sum(t.n) FILTER (WHERE t.state = 'staged'), 0) AS staged
                        FROM t WHERE t.asked AND t.state IN ('waiting', 'staged') GROUP BY t.site) u
                    ORDER BY u.waiting = 0, u.site LIMIT @max_sites) s),
    'asked', (SELECT count(*) FROM operations p WHERE p.subject = @subject AND p.kind = 'fleet' AND p.state = 'running'),
    'untold', (SELECT count(*) FROM operations p
               WHERE p.subject = @subject AND p.state <> 'running' AND p.door_run <> '' AND NOT p.door_told)
))::jsonb AS seen, coalesce(r.spec -> 'windows', '[]')::jsonb AS windows
FROM (SELECT 1) one
LEFT JOIN r ON true;

-- The next targets of a site, while the run goes on, with all that their change is made from.
-- name: FleetTargetsPage :many
SELECT t.name, t.revision, t.undoes, t.restores, r.project AS fleet_project,
       (o.uid IS NOT NULL)::boolean AS there, (o.deleting_since IS NOT NULL)::boolean AS deleting,
       coalesce(o.project, '')::text AS project, coalesce(o.labels, '{}')::jsonb AS labels,
       coalesce(o.generation, 0)::bigint AS generation, coalesce(o.spec, '{}')::jsonb AS spec,
       coalesce(s.desired_revision, 0)::bigint AS desired,
       coalesce(b.action, '')::text AS action, coalesce(b.content_kind, '')::text AS content_kind, b.body_hash,
       coalesce(b.size, 0)::bigint AS size, b.run, b.run_hash, coalesce(b.spec, '{}')::jsonb AS restored_spec
FROM (SELECT x.* FROM fleet_runs x WHERE x.fleet = @fleet AND x.run = @run AND x.state = 'running' AND NOT x.cancel_requested) r
JOIN LATERAL (
    SELECT y.* FROM fleet_targets y
    WHERE y.fleet = r.fleet AND y.run = r.run AND y.wave = @wave AND y.site = @site
      AND y.state = sqlc.arg(state)
      AND (sqlc.arg(state)::text <> 'waiting' OR y.retried OR NOT r.retrying)
    ORDER BY y.name LIMIT @max_rows) t ON true
LEFT JOIN LATERAL (SELECT z.* FROM objects z WHERE z.kind = 'instance' AND z.scope = t.site AND z.name = t.name OFFSET 0) o ON true
LEFT JOIN LATERAL (SELECT z.desired_revision FROM subjects z WHERE t.undoes > 0 AND z.site = t.site AND z.name = t.name OFFSET 0) s ON true
LEFT JOIN LATERAL (SELECT z.* FROM revisions z WHERE t.restores > 0 AND z.site = t.site AND z.name = t.name AND z.revision = t.restores OFFSET 0) b ON true
ORDER BY t.name;

-- Only what no batch has: those of a batch end with it.
-- name: EndFleetTargets :exec
UPDATE fleet_targets t SET state = e.state, reason = e.reason, message = e.message, updated_at = now()
FROM (SELECT unnest(@names::text[]) AS name, unnest(@states::text[]) AS state,
             unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) e
WHERE t.fleet = @fleet AND t.run = @run AND t.site = @site AND t.name = e.name AND t.state IN ('waiting', 'staged');

-- name: GetFleetRun :one
SELECT * FROM fleet_runs WHERE fleet = @fleet AND run = @run;

-- Where what is fetched waits to be switched to, and when that was looked at.
-- name: StagedFleetSites :one
SELECT clock_timestamp()::timestamptz AS now, coalesce(array_agg(DISTINCT t.site), '{}')::text[] AS sites
FROM fleet_targets t WHERE t.fleet = @fleet AND t.run = @run AND t.wave = @wave AND t.state = 'staged';

-- name: ListFleetRuns :many
SELECT * FROM fleet_runs WHERE fleet = @fleet AND run < @before_run ORDER BY run DESC LIMIT @max_rows;

-- name: NewestFleetRuns :many
SELECT r.* FROM (SELECT unnest(@fleets::text[]) AS fleet) f
JOIN LATERAL (SELECT x.* FROM fleet_runs x WHERE x.fleet = f.fleet ORDER BY x.run DESC LIMIT 1) r ON true;

-- name: CountFleetWaves :many
SELECT w.fleet, w.run, w.wave, w.state, w.targets FROM (SELECT unnest(@fleets::text[]) AS fleet, unnest(@runs::bigint[]) AS run) k
JOIN LATERAL (SELECT v.* FROM fleet_waves v WHERE v.fleet = k.fleet AND v.run = k.run OFFSET 0) w ON true;

-- name: ListFleetTargets :many
SELECT * FROM fleet_targets
WHERE fleet = @fleet AND run = @run AND (site, name) > (@after_site::text, @after_name::text)
ORDER BY site, name LIMIT @max_rows;

-- name: ListFleetTargetsIn :many
SELECT * FROM fleet_targets
WHERE fleet = @fleet AND run = @run AND state = sqlc.arg(state) AND (site, name) > (@after_site::text, @after_name::text)
ORDER BY site, name LIMIT @max_rows;

-- name: LiveFleetRuns :one
SELECT count(*) FROM fleet_runs WHERE fleet = @fleet AND state IN ('running', 'paused');

-- The collection, page by page: first the targets of a run, then the run.
-- Of a fleet change that is deleted no run is kept.
-- name: CollectFleetTargets :execrows
DELETE FROM fleet_targets WHERE ctid = ANY(ARRAY(
    SELECT t.ctid FROM fleet_runs r
    CROSS JOIN LATERAL (
        SELECT x.ctid FROM fleet_targets x WHERE x.fleet = r.fleet AND x.run = r.run
        LIMIT @max_rows FOR UPDATE SKIP LOCKED) t
    WHERE r.ended_at < now() - make_interval(secs => @older_seconds::float8)
      AND (NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'fleet' AND o.scope = '' AND o.name = r.fleet AND o.uid = r.uid)
           OR (SELECT count(*) FROM (SELECT 1 FROM fleet_runs n WHERE n.fleet = r.fleet AND n.run > r.run LIMIT @keep::bigint) n) >= @keep::bigint)
    LIMIT @max_rows));

-- name: CollectFleetRuns :execrows
DELETE FROM fleet_runs WHERE ctid = ANY(ARRAY(
    SELECT r.ctid FROM fleet_runs r
    WHERE r.ended_at < now() - make_interval(secs => @older_seconds::float8)
      AND (NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'fleet' AND o.scope = '' AND o.name = r.fleet AND o.uid = r.uid)
           OR (SELECT count(*) FROM (SELECT 1 FROM fleet_runs n WHERE n.fleet = r.fleet AND n.run > r.run LIMIT @keep::bigint) n) >= @keep::bigint)
      AND NOT EXISTS (SELECT 1 FROM fleet_targets t WHERE t.fleet = r.fleet AND t.run = r.run OFFSET 0)
    ORDER BY r.ended_at LIMIT @max_rows FOR UPDATE SKIP LOCKED));
