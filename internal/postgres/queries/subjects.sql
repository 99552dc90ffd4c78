-- Apart from LockSubjects, because every step of a single delivery begins with it.
-- name: LockSubject :one
SELECT * FROM subjects WHERE site = @site AND name = @name FOR UPDATE;

-- name: LockSubjects :many
SELECT s.* FROM (SELECT unnest(@names::text[]) AS name ORDER BY 1) k
JOIN LATERAL (SELECT x.* FROM subjects x WHERE x.site = @site AND x.name = k.name OFFSET 0 FOR UPDATE) s ON true;

-- name: GetSubject :one
SELECT * FROM subjects WHERE site = @site AND name = @name;

-- Numbers a revision where one is released (raise 1, else 0), and counts an attempt where one is
-- claimed (tries 1, else 0).
-- name: NumberSubjects :many
INSERT INTO subjects (site, name, project, last_revision, desired_revision, attempts)
SELECT @site, k.name, k.project, k.raise, k.raise, k.tries
FROM (SELECT unnest(@names::text[]) AS name, unnest(@projects::text[]) AS project, unnest(@raises::bigint[]) AS raise,
             unnest(@tries::bigint[]) AS tries) k
ON CONFLICT (site, name) DO UPDATE SET
    attempts = subjects.attempts + excluded.attempts,
    last_revision = subjects.last_revision + excluded.last_revision,
    desired_revision = CASE WHEN excluded.last_revision > 0 THEN subjects.last_revision + 1 ELSE subjects.desired_revision END,
    deleted = subjects.deleted AND excluded.last_revision = 0,
    project = CASE WHEN excluded.last_revision > 0 THEN excluded.project ELSE subjects.project END
RETURNING name, desired_revision, attempts;

-- name: DesiredRevision :one
SELECT r.* FROM revisions r WHERE r.site = @site AND r.name = @name
AND r.revision = (SELECT s.desired_revision FROM subjects s WHERE s.site = @site AND s.name = @name);

-- Apart from SnapshotsOf, which gives a batch the numbers and not the revisions.
-- name: SnapshotRevision :one
SELECT r.* FROM revisions r WHERE r.site = @site AND r.name = @name
AND r.revision = (SELECT s.revision FROM snapshots s WHERE s.site = @site AND s.name = @name);

-- name: AttachRuns :exec
UPDATE subjects s SET entity_run = @run
FROM (SELECT unnest(ARRAY(SELECT x.ctid FROM subjects x WHERE x.site = @site AND x.name = k.name)) AS place
      FROM (SELECT unnest(@names::text[]) AS name) k OFFSET 0) k
WHERE s.ctid = k.place AND s.entity_run <> @run;

-- name: SetTombstone :exec
UPDATE subjects SET deleted = true WHERE site = @site AND name = @name AND desired_revision = @revision;

-- name: InsertRevisions :exec
INSERT INTO revisions (site, name, revision, era, action, content_kind, body_hash, size, run, run_hash, enabled,
                       durability, generation, spec, created_by, reason)
SELECT @site, k.name, k.revision, g.era, k.action, k.content_kind, k.body_hash, k.size, nullif(k.run, '')::jsonb, k.run_hash, k.enabled,
       k.durability, k.generation, k.spec::jsonb, @created_by, @reason
FROM region g CROSS JOIN (
    SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision, unnest(@actions::text[]) AS action,
           unnest(@content_kinds::text[]) AS content_kind, unnest(@body_hashes::bytea[]) AS body_hash, unnest(@sizes::bigint[]) AS size,
           unnest(@runs::text[]) AS run, unnest(@run_hashes::bytea[]) AS run_hash, unnest(@enabled::boolean[]) AS enabled,
           unnest(@durabilities::text[]) AS durability, unnest(@generations::bigint[]) AS generation, unnest(@specs::text[]) AS spec) k;

-- name: GetRevisions :many
SELECT r.* FROM (SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision) k
JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = @site AND x.name = k.name AND x.revision = k.revision OFFSET 0) r ON true;

-- name: DeployedBefore :one
SELECT r.* FROM revisions r
JOIN revisions c ON c.site = r.site AND c.name = r.name AND c.revision = @revision
WHERE r.site = @site AND r.name = @name AND r.revision < @revision AND r.action <> 'delete'
  AND EXISTS (SELECT 1 FROM deliveries d WHERE d.site = r.site AND d.name = r.name AND d.revision = r.revision
              AND (d.state = 'succeeded' OR d.settled_as = 'applied' OR d.phase = 'recorded'))
  AND (r.body_hash, r.run_hash, r.enabled) IS DISTINCT FROM (c.body_hash, c.run_hash, c.enabled)
ORDER BY r.revision DESC LIMIT 1;

-- With what the trigger would look up for each. It gives of each delivery whether its revision is
-- the deployed one by this, and its durability: an asynchronous one needs no standby.
-- name: RecordSnapshots :many
WITH r AS MATERIALIZED (
    SELECT k.delivery_id, x.name, x.revision, x.era, x.action, x.body_hash, x.run_hash, x.enabled, x.durability
    FROM (SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision, unnest(@delivery_ids::text[]) AS delivery_id) k
    JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = @site AND x.name = k.name AND x.revision = k.revision OFFSET 0) x ON true),
recorded AS (
INSERT INTO snapshots (site, name, revision, delivery_id, epoch, era, action, body_hash, run_hash, enabled)
SELECT @site, r.name, r.revision, r.delivery_id, @epoch, r.era, r.action, r.body_hash, r.run_hash, r.enabled FROM r
ON CONFLICT (site, name) DO UPDATE SET revision = excluded.revision, delivery_id = excluded.delivery_id,
    epoch = excluded.epoch, recorded_at = now(), era = excluded.era, action = excluded.action, body_hash = excluded.body_hash,
    run_hash = excluded.run_hash, enabled = excluded.enabled
WHERE snapshots.revision < excluded.revision
RETURNING snapshots.name)
SELECT r.delivery_id::text AS delivery_id, r.durability, (r.name IN (SELECT recorded.name FROM recorded))::boolean AS risen FROM r;

-- What was never deployed has a snapshot of number 0.
-- name: RevisionsOfNames :many
SELECT s.name, coalesce(r.revision, 0)::bigint AS revision, coalesce(r.era, 0)::bigint AS era, coalesce(r.action, '')::text AS action,
       r.body_hash, r.run_hash, coalesce(r.enabled, false)::boolean AS enabled,
       d.revision AS desired_revision, d.era AS desired_era, d.action AS desired_action, d.body_hash AS desired_hash
FROM subjects s
JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = s.site AND x.name = s.name AND x.revision = s.desired_revision OFFSET 0) d ON true
LEFT JOIN LATERAL (SELECT y.revision FROM snapshots y WHERE y.site = s.site AND y.name = s.name OFFSET 0) p ON true
LEFT JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = s.site AND x.name = s.name AND x.revision = p.revision OFFSET 0) r ON true
WHERE s.site = @site AND s.name = ANY(@names::text[]) ORDER BY s.name;

-- A join would look at every revision of the instance, because the planner knows how many
-- there are of a name only on the average: revisions are looked up by their whole key.
-- name: SeeInstance :one
SELECT jsonb_strip_nulls(jsonb_build_object(
    'at', clock_timestamp(),
    'desired', (SELECT seen_revision(r) FROM revisions r
                WHERE r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision),
    'durability', (SELECT r.durability FROM revisions r
                   WHERE r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision),
    'snapshot', (SELECT seen_revision(r) FROM revisions r WHERE r.site = s.site AND r.name = s.name
                 AND r.revision = (SELECT p.revision FROM snapshots p WHERE p.site = s.site AND p.name = s.name)),
    'holder', (SELECT l.holder FROM site_leases l WHERE l.site = s.site AND NOT l.dropped),
    'epoch', coalesce((SELECT l.epoch FROM site_leases l WHERE l.site = s.site AND NOT l.dropped), 0),
    'open', (SELECT jsonb_build_object('id', d.id, 'revision', r.seen, 'node', d.node, 'epoch', d.epoch,
                    'since', d.created_at, 'deadline', d.deadline_at,
                    'batch', (SELECT b.id FROM batches b WHERE b.id = d.batch_id AND b.state = 'open'),
                    'targets', (SELECT jsonb_agg(jsonb_build_object('node', t.node, 'role', t.role, 'state', t.state,
                                       'tries', t.tries, 'reason', t.reason,
                                       'ahead', CASE WHEN t.reason = 'stale' THEN EXISTS (
                                           SELECT 1 FROM node_held h WHERE h.site = d.site AND h.name = d.name AND h.node = t.node
                                           AND refuses(h.high_era, h.high_revision, r.era, d.revision)) END) ORDER BY t.role, t.node)
                                FROM delivery_nodes t WHERE t.delivery_id = d.id))
             FROM deliveries d CROSS JOIN LATERAL (
                 SELECT seen_revision(x) AS seen, x.era FROM revisions x
                 WHERE x.site = d.site AND x.name = d.name AND x.revision = d.revision OFFSET 0) r
             WHERE d.site = s.site AND d.name = s.name AND d.state = 'open'),
    'unsettled', (SELECT jsonb_agg(jsonb_build_object('era', u.era, 'revision', u.revision) ORDER BY u.attempt DESC)
                  FROM (SELECT (SELECT r.era FROM revisions r WHERE r.site = d.site AND r.name = d.name AND r.revision = d.revision) AS era,
                               d.revision, d.attempt FROM deliveries d
                        WHERE d.site = s.site AND d.name = s.name AND d.state NOT IN ('open', 'succeeded', 'staged') AND d.settled_as IS NULL
                        ORDER BY d.attempt DESC LIMIT 20) u),
    'owed', (SELECT jsonb_agg(jsonb_build_object('node', o.node, 'role', o.role,
                    'revision', jsonb_build_object('era', o.era, 'revision', o.revision)) ORDER BY o.role, o.node)
             FROM owed_now o WHERE o.site = s.site AND o.name = s.name),
    'asked', (SELECT count(*) FROM operations p WHERE p.subject = @subject AND p.state = 'running' AND NOT p.cancel_requested),
    'cancelled', (SELECT count(*) FROM operations p WHERE p.subject = @subject AND p.state = 'running' AND p.cancel_requested),
    'untold', (SELECT count(*) FROM operations p
               WHERE p.subject = @subject AND p.state <> 'running' AND p.door_run <> '' AND NOT p.door_told)
))::jsonb AS seen
FROM subjects s WHERE s.site = @site AND s.name = @name;
