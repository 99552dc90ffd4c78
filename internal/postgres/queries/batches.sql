-- Rows of a set are named by their site and names, or by the ids of its deliveries; a single
-- delivery is a set of one (docs/adr/0009). The arrays of a statement are as long as the set, and
-- each row is looked up by its whole key, also in a plan that was made while the tables were empty:
-- LATERAL with OFFSET 0, or for what is changed a look at its place (ctid). An update by place skips
-- a row that another transaction changes meanwhile: nobody else writes these rows without the lock, or
-- they are held first. A state that is
-- only looked at in such rows is a parameter: written out, it would offer a partial index, which
-- a planner that knows of no rows in that state takes instead of the key.

-- name: LockKeys :exec
SELECT count(CASE WHEN k.shared THEN pg_advisory_xact_lock_shared(k.key) ELSE pg_advisory_xact_lock(k.key) END)
FROM (SELECT unnest(@keys::bigint[]) AS key, unnest(@shared::boolean[]) AS shared) k;

-- name: GetBatch :one
SELECT * FROM batches WHERE id = @id;

-- name: LockBatch :one
SELECT * FROM batches WHERE id = @id FOR UPDATE;

-- name: InsertBatch :exec
INSERT INTO batches (id, site, fleet, fleet_run, stage, node, epoch, state, workflow_id, run_id, actor, claimed, nodes, deadline_at, ended_at)
VALUES (@id, @site, @fleet, @fleet_run, @stage, @node, @epoch, @state, @workflow_id, @run_id, @actor, @claimed, @nodes::text[],
        now() + make_interval(secs => @seconds::float8), CASE WHEN @state = 'open' THEN NULL ELSE now() END);

-- name: EndBatchRow :exec
UPDATE batches SET state = @state, reason = @reason, ended_at = now() WHERE id = @id AND state = 'open';

-- name: OpenBatches :many
SELECT id, site, fleet, workflow_id, run_id, created_at, (deadline_at < now())::boolean AS overdue FROM batches
WHERE state = 'open' AND (created_at, id) > (@after_at::timestamptz, @after_id::text)
  AND created_at < now() - make_interval(secs => @older_seconds::float8)
ORDER BY created_at, id LIMIT @max_rows;

-- name: ObjectsOfSite :many
SELECT o.* FROM unnest(@names::text[]) AS k(name)
JOIN LATERAL (SELECT x.* FROM objects x WHERE x.kind = 'instance' AND x.scope = @site AND x.name = k.name OFFSET 0) o ON true;

-- name: SnapshotsOf :many
SELECT p.name, p.revision, p.action FROM unnest(@names::text[]) AS k(name)
JOIN LATERAL (SELECT x.* FROM snapshots x WHERE x.site = @site AND x.name = k.name OFFSET 0) p ON true;

-- name: OwedNames :many
SELECT DISTINCT name FROM owed WHERE site = @site AND name = ANY(@names::text[]);

-- name: HoldFleetRun :one
SELECT state, cancel_requested FROM fleet_runs WHERE fleet = @fleet AND run = @run FOR SHARE;

-- name: LockFleetTargets :many
SELECT t.* FROM (SELECT unnest(@names::text[]) AS name ORDER BY 1) k
JOIN LATERAL (SELECT x.* FROM fleet_targets x WHERE x.fleet = @fleet AND x.run = @run AND x.site = @site AND x.name = k.name
              OFFSET 0 FOR UPDATE) t ON true;

-- What a run released first is what it can take back to the revision before.
-- name: MoveFleetTargets :exec
UPDATE fleet_targets t
SET state = k.state, tries = t.tries + k.tries, delivery_id = coalesce(nullif(k.delivery_id, ''), t.delivery_id),
    before_revision = CASE WHEN t.revision = 0 THEN k.before ELSE t.before_revision END,
    revision = greatest(t.revision, k.revision), reason = k.reason, message = k.message, updated_at = now()
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM fleet_targets x WHERE x.fleet = @fleet AND x.run = @run AND x.site = @site AND x.name = k.name)) AS place
      FROM (SELECT unnest(@names::text[]) AS name, unnest(@states::text[]) AS state, unnest(@tries::int[]) AS tries,
             unnest(@delivery_ids::text[]) AS delivery_id, unnest(@befores::bigint[]) AS before,
             unnest(@revisions::bigint[]) AS revision, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) k OFFSET 0) k
WHERE t.ctid = k.place;

-- name: ChangeSpecs :exec
WITH k AS MATERIALIZED (
    SELECT unnest(@names::text[]) AS name, unnest(@generations::bigint[]) AS generation, unnest(@specs::text[])::jsonb AS spec,
           unnest(@befores::text[])::jsonb AS before, unnest(@afters::text[])::jsonb AS after,
           unnest(@syncings::text[])::jsonb AS syncing),
appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
    SELECT r.era, 'updated', o.kind, o.project, o.scope, o.name, o.uid, k.generation, @actor, k.before, k.after
    FROM region r CROSS JOIN k
    JOIN LATERAL (SELECT x.* FROM objects x WHERE x.kind = 'instance' AND x.scope = @site AND x.name = k.name OFFSET 0) o ON true
    RETURNING seq, name)
UPDATE objects o
SET spec = k.spec, generation = k.generation, syncing = k.syncing,
    resource_version = CASE WHEN k.generation > o.generation THEN k.seq ELSE o.resource_version END,
    updated_at = CASE WHEN k.generation > o.generation THEN now() ELSE o.updated_at END
FROM (SELECT k.*, a.seq, unnest(ARRAY(SELECT x.ctid FROM objects x WHERE x.kind = 'instance' AND x.scope = @site AND x.name = k.name)) AS place
      FROM appended a JOIN k ON k.name = a.name OFFSET 0) k
WHERE o.ctid = k.place;

-- A cancel writes an operation without the lock of its subject: who updates by place holds the rows first.
-- name: HoldOperations :exec
SELECT 1 FROM operations WHERE subject = ANY(@subjects::text[]) AND state = 'running' ORDER BY id FOR UPDATE;

-- name: EndOperationsMany :exec
WITH ended AS (
UPDATE operations o SET state = k.state, reason = k.reason, message = k.message, ended_at = now(),
       delivery_id = coalesce(nullif(k.delivery_id, ''), o.delivery_id)
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM operations x WHERE x.subject = k.subject AND x.state = 'running')) AS place
      FROM (SELECT unnest(@subjects::text[]) AS subject, unnest(@to_revisions::bigint[]) AS to_revision, unnest(@states::text[]) AS state,
             unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message, unnest(@delivery_ids::text[]) AS delivery_id) k OFFSET 0) k
WHERE o.ctid = k.place AND o.state = @running::text AND o.revision <= k.to_revision
RETURNING o.id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- name: AttachDeliveries :exec
UPDATE operations o SET delivery_id = k.delivery_id
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM operations x WHERE x.subject = k.subject AND x.state = 'running')) AS place
      FROM (SELECT unnest(@subjects::text[]) AS subject, unnest(@revisions::bigint[]) AS revision, unnest(@delivery_ids::text[]) AS delivery_id) k OFFSET 0) k
WHERE o.ctid = k.place AND o.state = @running::text AND o.revision <= k.revision;

-- The holder of the lease is the active, whatever its configured role.
-- name: NodesOfBatch :many
SELECT n.name FROM nodes n
WHERE n.site = @site AND n.removed_at IS NULL AND (n.name = @holder::text OR n.role <> 'worker')
ORDER BY n.name <> @holder::text, n.name;

-- name: NamesOfBatch :many
SELECT name FROM deliveries WHERE batch_id = @batch_id AND batch_id <> '' ORDER BY name;

-- name: DeliveriesOfBatch :many
SELECT * FROM deliveries WHERE batch_id = @batch_id AND batch_id <> '' ORDER BY name;

-- What a batch has for a node, by which decide.MayNotify says whether the node is notified of it: how the node answered
-- so far, whether it refuses the revision for ever, and whether the active has it. Beside each, the notify that named it
-- last, and what the node will be handed.
-- name: ItemsToTell :many
SELECT d.id, d.name, t.notice, (d.phase = 'persisted')::boolean AS first,
       (d.state = 'open')::boolean AS open, t.state, t.tries, t.reason,
       (t.reason = 'stale' AND EXISTS (
           SELECT 1 FROM node_held h WHERE h.site = d.site AND h.name = d.name AND h.node = t.node
           AND refuses(h.high_era, h.high_revision, r.era, d.revision) OFFSET 0))::boolean AS ahead,
       (d.node = @node OR EXISTS (
           SELECT 1 FROM delivery_nodes a WHERE a.delivery_id = d.id AND a.node = d.node AND a.state IN ('applied', 'staged') OFFSET 0))::boolean AS turn,
       r.era, r.revision, r.action, r.body_hash, r.run_hash, r.enabled
FROM deliveries d
JOIN LATERAL (SELECT t.* FROM delivery_nodes t WHERE t.delivery_id = d.id AND t.node = @node OFFSET 0) t ON true
JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = d.site AND x.name = d.name AND x.revision = d.revision OFFSET 0) r ON true
WHERE d.batch_id = @batch_id AND d.batch_id <> '';

-- By a little more than asked, so that the next notify of the same items finds nothing to do.
-- name: ExtendPendingMany :exec
UPDATE pending p SET expires_at = least(@deadline::timestamptz, now() + make_interval(secs => @spare_seconds::float8))
WHERE p.deployment_id = ANY(@ids::text[])
  AND extract(epoch FROM least(@deadline::timestamptz, now() + make_interval(secs => @seconds::float8)) - p.expires_at) > 0;

-- Apart from InsertFetchTokens: the notify of a batch is repeated with its token, others are not.
-- name: PutFetchToken :exec
INSERT INTO fetch_tokens (deployment_id, node, hash, expires_at)
VALUES (@deployment_id, @node, @hash, now() + make_interval(secs => @seconds::float8)) ON CONFLICT DO NOTHING;

-- What a node was told of, whatever became of it since; only the newest notify counts.
-- name: ItemsTold :many
SELECT t.notice, d.id, d.name, r.era, r.revision, r.action, r.content_kind, r.body_hash, r.size, r.run, r.run_hash, r.enabled,
       (d.state <> 'open' OR t.state IN ('applied', 'staged')
        OR coalesce((SELECT p.expires_at FROM pending p WHERE p.deployment_id = d.id) <= now(), true))::boolean AS gone
FROM deliveries d
JOIN LATERAL (SELECT t.* FROM delivery_nodes t WHERE t.delivery_id = d.id AND t.node = @node OFFSET 0) t ON true
JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = d.site AND x.name = d.name AND x.revision = d.revision OFFSET 0) r ON true
WHERE d.batch_id = @batch_id AND d.batch_id <> '' AND t.notice > 0
ORDER BY d.name;

-- name: TokensOf :many
SELECT node, hash FROM fetch_tokens WHERE deployment_id = @id AND expires_at > now() ORDER BY hash;

-- The hash is that of the revision, and what its target has in all is its size.
-- name: BodiesOfBatch :many
SELECT p.revision_hash AS body_hash, t.total AS size FROM deliveries d
JOIN LATERAL (SELECT t.* FROM delivery_nodes t WHERE t.delivery_id = d.id AND t.node = @node OFFSET 0) t ON true
JOIN LATERAL (SELECT w.* FROM pending w WHERE w.deployment_id = d.id OFFSET 0) p ON p.expires_at > now()
WHERE d.batch_id = @batch_id AND d.batch_id <> '' AND d.state = @open::text AND t.tries > 0 AND p.revision_hash IS NOT NULL;

-- name: BodiesOfTickets :many
SELECT DISTINCT r.body_hash, r.size FROM snapshot_tickets t
JOIN LATERAL (SELECT x.body_hash, x.size FROM revisions x WHERE x.site = t.site AND x.name = t.name AND x.revision = t.revision OFFSET 0) r ON true
WHERE t.site = @site AND t.node = @node AND t.expires_at > now() AND r.body_hash = ANY(@hashes::bytea[]);

-- Progress writes a target without the lock of its subject: who updates by place holds the rows first.
-- name: HoldTargets :exec
SELECT 1 FROM delivery_nodes WHERE delivery_id = ANY(@ids::text[]) AND node = @node ORDER BY delivery_id FOR UPDATE;

-- name: RecordTargets :many
UPDATE delivery_nodes t SET state = k.state, already = k.already, reason = k.reason, message = k.message,
       fetched = greatest(t.fetched, k.fetched), exits = coalesce(k.exits, 0), updated_at = now()
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM delivery_nodes x WHERE x.delivery_id = k.id AND x.node = @node)) AS place
      FROM (SELECT unnest(@ids::text[]) AS id, unnest(@states::text[]) AS state, unnest(@already::boolean[]) AS already,
             unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message, unnest(@fetched::bigint[]) AS fetched,
             unnest(@exits::integer[]) AS exits) k OFFSET 0) k
WHERE t.ctid = k.place AND t.state NOT IN ('applied', 'staged')
RETURNING t.delivery_id;

-- name: MissTargets :exec
UPDATE delivery_nodes t SET state = @state, already = false, reason = @reason, message = @message, updated_at = now()
WHERE t.delivery_id = ANY(ARRAY(SELECT d.id FROM deliveries d WHERE d.batch_id = @batch_id AND d.batch_id <> '' AND d.state = @open::text))
  AND t.node = @node AND t.state = 'notified';

-- name: ConfirmOwedMany :exec
DELETE FROM owed o USING (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM owed x WHERE x.site = @site AND x.name = k.name AND x.node = @node)) AS place
      FROM (SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision) k OFFSET 0) k
WHERE o.ctid = k.place AND o.revision <= k.revision;

-- name: UnsettledNames :many
SELECT DISTINCT name FROM deliveries
WHERE site = @site AND name = ANY(@names::text[]) AND state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL ORDER BY name;

-- name: TargetsOfBatch :many
SELECT t.delivery_id, t.node, t.role, t.state, t.tries, t.reason,
       (t.reason = 'stale' AND EXISTS (
           SELECT 1 FROM node_held h JOIN revisions r ON r.site = h.site AND r.name = h.name AND r.revision = d.revision
           WHERE h.site = d.site AND h.name = d.name AND h.node = t.node
             AND refuses(h.high_era, h.high_revision, r.era, d.revision) OFFSET 0))::boolean AS ahead
FROM deliveries d
JOIN LATERAL (SELECT x.* FROM delivery_nodes x WHERE x.delivery_id = d.id OFFSET 0) t ON true
WHERE d.batch_id = @batch_id AND d.batch_id <> ''
ORDER BY d.name, t.role, t.node;

-- name: DeletedNames :many
SELECT p.name FROM unnest(@names::text[]) AS k(name)
JOIN LATERAL (SELECT x.name, x.action FROM snapshots x WHERE x.site = @site AND x.name = k.name OFFSET 0) p ON p.action = 'delete'
ORDER BY p.name;

-- Apart from AppendEvent, which is for objects of all kinds and was given the object.
-- name: AppendStatusEvents :exec
INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
SELECT r.era, 'status', o.kind, o.project, o.scope, o.name, o.uid, k.generation, 'region', k.before, k.after
FROM region r CROSS JOIN (SELECT unnest(@names::text[]) AS name, unnest(@generations::bigint[]) AS generation,
                                 unnest(@befores::text[])::jsonb AS before, unnest(@afters::text[])::jsonb AS after) k
JOIN LATERAL (SELECT x.* FROM objects x WHERE x.kind = 'instance' AND x.scope = @site AND x.name = k.name OFFSET 0) o ON true;

-- name: RunningSubjects :many
SELECT DISTINCT subject FROM operations WHERE subject = ANY(@subjects::text[]) AND state = 'running';

-- name: CountBatch :many
SELECT state, count(*) AS deliveries FROM deliveries WHERE batch_id = @batch_id AND batch_id <> '' GROUP BY state;

-- name: UseBodies :many
WITH known AS MATERIALIZED (SELECT b.id, b.hash, b.used_at FROM bodies b WHERE b.hash = ANY(@hashes::bytea[]) ORDER BY b.hash FOR KEY SHARE),
     old AS MATERIALIZED (SELECT known.id FROM known WHERE known.used_at < now() - interval '1 hour'),
     used AS (UPDATE bodies b SET used_at = now() WHERE b.id = ANY(ARRAY(SELECT old.id FROM old)))
SELECT known.hash FROM known;

-- Nobody else can refer to a body before it is there: what ON CONFLICT takes twice as long for
-- is to be expected by nobody but who finds the row of one that was dropped.
-- name: InsertWholeBodies :exec
WITH k AS MATERIALIZED (SELECT unnest(@hashes::bytea[]) AS hash, unnest(@bodies::bytea[]) AS data),
made AS (INSERT INTO bodies (hash, size) SELECT k.hash, octet_length(k.data) FROM k RETURNING id, hash),
allowed AS (INSERT INTO body_projects (project, hash) SELECT @project, m.hash FROM made m
            WHERE NOT EXISTS (SELECT 1 FROM body_projects p WHERE p.hash = m.hash AND p.project = @project OFFSET 0))
INSERT INTO body_chunks (body_id, idx, data)
SELECT m.id, 0, k.data FROM made m JOIN k ON k.hash = m.hash WHERE octet_length(k.data) > 0;

-- name: AllowBodies :exec
INSERT INTO body_projects (project, hash) SELECT @project, unnest(@hashes::bytea[]) ON CONFLICT DO NOTHING;

-- What was asked for at a site and nobody has taken yet. No range: the order of a database's
-- texts may be any.
-- name: WaitingNames :many
SELECT DISTINCT substr(o.subject, length(@prefix::text) + 1)::text AS name FROM outbox o
WHERE starts_with(o.subject, @prefix::text)
ORDER BY 1 LIMIT @max_rows;

-- An instance that starts something, or did, answers when that is done, and not before; one
-- whose desired revision is under way is served by whoever brings it.
-- name: WaitingItems :many
SELECT s.name,
       EXISTS (SELECT 1 FROM operations p WHERE p.subject = @prefix::text || s.name AND p.state = 'running'
               AND p.revision = s.desired_revision OFFSET 0)::boolean AS asked,
       EXISTS (SELECT 1 FROM operations p WHERE p.subject = @prefix::text || s.name AND p.state = 'running'
               AND p.cancel_requested OFFSET 0)::boolean AS cancelled,
       EXISTS (SELECT 1 FROM deliveries d WHERE d.site = s.site AND d.name = s.name AND d.state = 'open'
               AND d.revision = s.desired_revision OFFSET 0)::boolean AS under_way,
       (EXISTS (SELECT 1 FROM revisions r WHERE r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision
                AND r.run IS NOT NULL OFFSET 0)
        OR EXISTS (SELECT 1 FROM snapshots p WHERE p.site = s.site AND p.name = s.name AND p.run_hash IS NOT NULL OFFSET 0))::boolean AS starts
FROM unnest(@names::text[]) AS k(name)
JOIN LATERAL (SELECT x.* FROM subjects x WHERE x.site = @site AND x.name = k.name OFFSET 0) s ON true ORDER BY s.name;

-- name: CountWaiting :one
SELECT count(*) FROM (SELECT 1 FROM operations o WHERE o.state = 'running' AND o.site = @site AND starts_with(o.subject, 'instance.')
                      LIMIT @most) w;

-- name: InOpenBatch :one
SELECT EXISTS (SELECT 1 FROM deliveries d JOIN batches b ON b.id = d.batch_id
               WHERE d.site = @site AND d.name = @name AND d.state = 'open' AND d.batch_id <> '' AND b.state = 'open');
