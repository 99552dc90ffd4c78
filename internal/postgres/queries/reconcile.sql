-- name: InsertReconcile :exec
INSERT INTO reconciles (id, node, site, reason, token_hash, run, expires_at)
VALUES (@id, @node, @site, @reason, @token_hash, @run, now() + make_interval(secs => @seconds::float8))
ON CONFLICT (id) DO UPDATE SET token_hash = excluded.token_hash, expires_at = excluded.expires_at
WHERE reconciles.state = 'running';

-- One comparison at a time speaks for a node; the newest.
-- name: EndOtherReconciles :exec
UPDATE reconciles SET state = 'failed', message = 'another one began', ended_at = now()
WHERE node = @node AND state = 'running' AND id <> @id;

-- name: ForgetReconciles :exec
DELETE FROM reconciles WHERE id IN (
    SELECT r.id FROM reconciles r WHERE r.node = @node AND r.state <> 'running' ORDER BY r.created_at DESC OFFSET @keep);

-- A token lives on while it is used, for an hour at most.
-- name: UseReconcileToken :one
UPDATE reconciles SET expires_at = least(greatest(expires_at, now() + make_interval(secs => @seconds::float8)), created_at + interval '1 hour')
WHERE token_hash = @token_hash AND state = 'running' AND expires_at > now()
RETURNING *;

-- name: LockReconcile :one
SELECT * FROM reconciles WHERE id = @id FOR UPDATE;

-- name: ReportReconcile :execrows
UPDATE reconciles SET report = @report WHERE id = @id AND state = 'running';

-- name: CountDrop :exec
UPDATE reconciles SET drops = drops + 1 WHERE id = @id;

-- name: EndReconcile :execrows
UPDATE reconciles SET state = @state, message = @message, ended_at = now() WHERE id = @id AND state = 'running';

-- name: ListReconciles :many
SELECT * FROM reconciles WHERE node = @node ORDER BY created_at DESC LIMIT @max_rows;

-- name: SetVersionOf :one
SELECT r.era, coalesce((SELECT s.version FROM site_sets s WHERE s.site = @site), 0)::bigint AS version FROM region r;

-- Everything that is deployed at a site or on its way there, but not what is deleted there.
-- name: ExpectedSet :many
SELECT coalesce(p.name, u.name)::text AS name, coalesce(p.era, 0)::bigint AS era, coalesce(p.revision, 0)::bigint AS revision,
       p.body_hash, p.run_hash, coalesce(p.enabled, false)::boolean AS enabled, (u.name IS NOT NULL)::boolean AS in_flight
FROM (SELECT y.* FROM snapshots y WHERE y.site = @site) p
FULL JOIN (SELECT DISTINCT w.name FROM under_way w WHERE w.site = @site) u ON u.name = p.name
WHERE u.name IS NOT NULL OR p.action <> 'delete'
ORDER BY 1;

-- name: CountDeployed :one
SELECT count(*) FROM snapshots WHERE site = @site AND action <> 'delete';

-- What a node of the pair does not hold as it is deployed, by name: the whole comparison in
-- one statement that returns only what drifted.
-- name: DriftOfNode :many
SELECT coalesce(p.name, h.name)::text AS name
FROM (SELECT y.* FROM snapshots y WHERE y.site = @site AND y.name > @after::text) p
FULL JOIN (SELECT z.* FROM node_held z WHERE z.site = @site AND z.node = @node AND z.name > @after::text) h ON h.name = p.name
WHERE h.name IS NULL AND p.action <> 'delete'
   OR h.name IS NOT NULL AND NOT holds(h.era, h.revision, h.hash, p.era, p.revision, p.body_hash)
ORDER BY 1 LIMIT @max_rows;

-- What the nodes of one shard hold is set against what is deployed; given back are those
-- that drifted while nothing is under way that explains it, and those not compared for long.
-- name: NodesToReconcile :many
SELECT n.name FROM nodes n
WHERE n.removed_at IS NULL AND n.role <> 'worker' AND n.enrolled_at IS NOT NULL AND n.revoked_at IS NULL AND n.started_at IS NOT NULL
  AND n.name > @after::text AND mod(hashtext(n.name)::bigint + 2147483648, @shards::bigint) = @shard::bigint
  AND n.seen_at > now() - make_interval(secs => @lost_seconds::float8)
  AND (NOT EXISTS (SELECT 1 FROM reconciles c WHERE c.node = n.name AND c.state = 'succeeded'
                   AND c.created_at > now() - make_interval(secs => @full_seconds::float8))
       OR EXISTS (
           SELECT 1 FROM snapshots p
           LEFT JOIN LATERAL (SELECT z.* FROM node_held z WHERE z.site = p.site AND z.name = p.name AND z.node = n.name OFFSET 0) h ON true
           WHERE p.site = n.site AND p.recorded_at < now() - make_interval(secs => @settle_seconds::float8)
             AND (h.name IS NULL AND p.action <> 'delete'
                  OR h.name IS NOT NULL AND NOT holds(h.era, h.revision, h.hash, p.era, p.revision, p.body_hash))
             AND NOT EXISTS (SELECT 1 FROM under_way w WHERE w.site = p.site AND w.name = p.name)
             AND NOT EXISTS (SELECT 1 FROM owed o WHERE o.site = p.site AND o.name = p.name AND o.node = n.name)))
ORDER BY n.name LIMIT @max_rows;

-- name: CountPairNodes :one
SELECT count(*) FROM nodes WHERE removed_at IS NULL AND role <> 'worker';

-- name: PeersOf :many
SELECT p.name FROM nodes n JOIN nodes p ON p.site = n.site AND p.name <> n.name
WHERE n.name = @node AND p.removed_at IS NULL AND p.role <> 'worker' AND p.revoked_at IS NULL AND p.started_at IS NOT NULL
ORDER BY p.name;

-- Tickets for what is deployed now of some names, except what is on its way.
-- name: InsertTickets :many
INSERT INTO snapshot_tickets (id, site, name, node, revision, expires_at)
SELECT t.id, p.site, p.name, @node, p.revision, now() + make_interval(secs => @seconds::float8)
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@names::text[]) AS name) t
JOIN LATERAL (SELECT y.* FROM snapshots y WHERE y.site = @site AND y.name = t.name OFFSET 0) p ON true
WHERE NOT EXISTS (SELECT 1 FROM under_way w WHERE w.site = p.site AND w.name = p.name)
RETURNING id, name, revision;

-- A name that was only buried was never released.
-- name: SeeAbsence :one
SELECT EXISTS (SELECT 1 FROM subjects s WHERE s.site = @site AND s.name = @name AND s.desired_revision > 0) AS known,
       coalesce(r.action, '')::text AS action, coalesce(r.era, 0)::bigint AS era, coalesce(r.revision, 0)::bigint AS revision,
       (EXISTS (SELECT 1 FROM under_way w WHERE w.site = @site AND w.name = @name))::boolean AS under_way,
       (EXISTS (SELECT 1 FROM owed o WHERE o.site = @site AND o.name = @name AND o.node = @node))::boolean AS owed,
       coalesce(a.era, 0)::bigint AS approved_era, coalesce(a.revision, 0)::bigint AS approved_revision,
       (a.reason IS NOT NULL)::boolean AS listed, (a.approved_at IS NOT NULL)::boolean AS approved
FROM region
LEFT JOIN snapshots p ON p.site = @site AND p.name = @name
LEFT JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = p.site AND x.name = p.name AND x.revision = p.revision OFFSET 0) r ON true
LEFT JOIN orphans a ON a.node = @node AND a.name = @name;

-- A name that the region gives up for good has its numbers go on above what a node held.
-- name: BuryUnknown :one
INSERT INTO subjects (site, name, last_revision, desired_revision, deleted) VALUES (@site, @name, @revision, 0, true)
ON CONFLICT (site, name) DO UPDATE SET last_revision = greatest(subjects.last_revision + 1, excluded.last_revision)
RETURNING last_revision;

-- name: ListOrphan :exec
INSERT INTO orphans (node, name, site, era, revision, hash, reason, reconcile)
VALUES (@node, @name, @site, @era, @revision, sqlc.narg(hash), @reason, @reconcile)
ON CONFLICT (node, name) DO UPDATE SET
    approved_by = CASE WHEN (orphans.era, orphans.revision) = (excluded.era, excluded.revision) THEN orphans.approved_by END,
    approved_at = CASE WHEN (orphans.era, orphans.revision) = (excluded.era, excluded.revision) THEN orphans.approved_at END,
    era = excluded.era, revision = excluded.revision, hash = excluded.hash, reason = excluded.reason, reconcile = excluded.reconcile;

-- name: KeepOrphan :exec
UPDATE orphans SET reconcile = @reconcile WHERE node = @node AND name = @name;

-- name: ForgetOrphans :exec
DELETE FROM orphans WHERE node = @node AND reconcile <> @reconcile;

-- name: DropOrphan :exec
DELETE FROM orphans WHERE node = @node AND name = @name;

-- Of both kinds, instances first. A project sees the replicas of its own deployments only, also on nodes
-- that are for all.
-- name: ListOrphans :many
SELECT u.kind::text AS kind, u.name::text AS name, u.deployment::text AS deployment, u.phase::text AS phase, u.site::text AS site, u.era::bigint AS era,
       u.revision::bigint AS revision, u.hash, u.reason::text AS reason, u.since::timestamptz AS since, u.approved_by, u.approved_at
FROM (
    SELECT 'instance' AS kind, o.name, '' AS deployment, '' AS phase, o.site, o.era, o.revision, o.hash, o.reason, o.since, o.approved_by, o.approved_at
    FROM orphans o WHERE o.node = @node
    UNION ALL
    SELECT 'replica', r.replica, r.deployment, r.phase, '', 0, r.revision, NULL, r.reason, r.since, r.approved_by, r.approved_at
    FROM orphan_replicas r WHERE r.node = @node
      AND (@project::text = '' OR replica_project(r.deployment, r.revision) = @project)) u
WHERE (u.kind, u.name) > (@after_kind::text, @after::text)
ORDER BY u.kind, u.name LIMIT @max_rows;

-- Held against a comparison that lists or forgets them meanwhile.
-- name: LockOrphans :many
SELECT name FROM orphans WHERE node = @node AND (@every::boolean OR name = ANY(@names::text[])) ORDER BY name FOR UPDATE;

-- name: ApproveOrphans :many
UPDATE orphans SET approved_by = @actor, approved_at = now()
WHERE node = @node AND approved_at IS NULL AND name = ANY(@names::text[])
RETURNING *;

-- What a node says it holds just as it is deployed, it is not owed any more.
-- name: ConfirmReported :exec
DELETE FROM owed o
WHERE o.node = @node AND o.site = @site AND o.name = ANY(@names::text[])
  AND EXISTS (SELECT 1 FROM snapshots p JOIN node_held h ON h.site = p.site AND h.name = p.name AND h.node = o.node
              WHERE p.site = o.site AND p.name = o.name AND o.revision <= p.revision
                AND holds(h.era, h.revision, h.hash, p.era, p.revision, p.body_hash));

-- name: EndNodeOperations :exec
WITH ended AS (
UPDATE operations SET state = @state, reason = @reason, message = @message, ended_at = now()
WHERE subject = @subject AND kind = 'reconcile' AND state = 'running' AND created_at <= @asked_by
RETURNING id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- Of what has no subject's row of its own, by the prefix of its kind. Also a run of a fleet
-- change that nobody waits for: its entity may have gone after its operation had ended.
-- name: OpenEntities :many
SELECT DISTINCT e.subject, e.entity_run FROM (
    SELECT o.subject, o.entity_run FROM operations o
    WHERE o.state = 'running' AND o.created_at < now() - make_interval(secs => @older_seconds::float8)
    UNION ALL
    SELECT 'fleet.' || r.fleet, r.entity_run FROM fleet_runs r
    WHERE r.state IN ('running', 'paused') AND r.created_at < now() - make_interval(secs => @older_seconds::float8)
      AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'fleet.' || r.fleet AND o.state = 'running')) e
WHERE starts_with(e.subject, @prefix::text) AND e.subject > @after::text
ORDER BY e.subject, e.entity_run LIMIT @max_rows;

-- name: CloseEntityOperations :many
WITH ended AS (
UPDATE operations SET state = @state, reason = @reason, message = @message, ended_at = now()
WHERE subject = @subject AND state = 'running' AND entity_run = @run
RETURNING id, kind)
SELECT e.kind, pg_notify('holdfast_operation', e.id)::text AS told FROM ended e;

-- name: BeingReconciled :one
SELECT EXISTS (SELECT 1 FROM reconciles WHERE node = @node AND state = 'running' AND expires_at > now());

-- Of some names, the delete or disable that is deployed and the one that is desired, and what
-- tells whether it is in force.
-- name: SeeStops :many
SELECT sqlc.embed(r), COALESCE(r.revision = p.revision, false)::boolean AS deployed,
    EXISTS (SELECT 1 FROM deliveries d WHERE d.site = @site AND d.name = k.name AND d.revision = r.revision
            AND d.state = 'staged' AND d.settled_as IS NULL) AS staged,
    (EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'instance.' || @site::text || '.' || k.name AND o.state = 'running')
     OR EXISTS (SELECT 1 FROM deliveries d WHERE d.site = @site AND d.name = k.name AND d.revision = r.revision AND d.state = 'open'))::boolean AS awaited,
    EXISTS (SELECT 1 FROM owed o WHERE o.site = @site AND o.name = k.name AND o.revision >= r.revision) AS owed
FROM (SELECT unnest(@names::text[]) AS name) k
JOIN LATERAL (SELECT y.* FROM subjects y WHERE y.site = @site AND y.name = k.name OFFSET 0) s ON true
LEFT JOIN LATERAL (SELECT y.revision FROM snapshots y WHERE y.site = @site AND y.name = k.name OFFSET 0) p ON true
JOIN LATERAL (
    SELECT x.revision FROM revisions x
    WHERE x.site = @site AND x.name = k.name AND x.revision IN (p.revision, s.desired_revision) AND NOT x.enabled OFFSET 0) n ON true
JOIN revisions r ON r.site = @site AND r.name = k.name AND r.revision = n.revision;
