-- The collection. Each page locks what it may remove, and looks who refers to it in a later
-- statement: what was committed before the lock is seen by that one, what comes after waits.
-- OFFSET 0 and ARRAY keep the lookups row by row and by index, also in a plan that was made
-- while the tables were empty.

-- name: LockUnusedBodies :many
SELECT id, hash, size FROM bodies
WHERE hash IS NOT NULL AND used_at < now() - make_interval(secs => @older_seconds::float8)
ORDER BY used_at LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- Bodies are few in a page, and each is looked up by index.
-- name: BodiesReferred :many
SELECT b.id FROM bodies b WHERE b.id = ANY(@ids::bigint[]) AND (
    EXISTS (SELECT 1 FROM revisions r WHERE r.body_hash = b.hash)
    OR EXISTS (SELECT 1 FROM revisions r WHERE r.spec #>> '{overrides,hash}' = encode(b.hash, 'hex'))
    OR EXISTS (SELECT 1 FROM template_generations t
               WHERE jsonb_path_query_array(t.spec, '$.**.hash'::jsonpath) @> to_jsonb(encode(b.hash, 'hex')))
    OR EXISTS (SELECT 1 FROM deployment_revisions v WHERE v.definition = b.hash)
    OR EXISTS (SELECT 1 FROM deployment_revisions v
               WHERE jsonb_path_query_array(v.spec, '$.**.hash'::jsonpath) @> to_jsonb(encode(b.hash, 'hex')))
    OR EXISTS (SELECT 1 FROM fleet_runs f WHERE f.spec #>> '{change,patch,hash}' = encode(b.hash, 'hex')));

-- All specs are read for the bodies of a page that no revision refers to: an index of what is
-- in a spec would have to be written again by each change of it.
-- name: BodiesDeclared :many
SELECT b.id FROM bodies b
WHERE b.id = ANY(@ids::bigint[]) AND encode(b.hash, 'hex') IN (
    SELECT h #>> '{}' FROM objects o CROSS JOIN LATERAL jsonb_path_query(o.spec, '$.**.hash'::jsonpath) AS h
    UNION ALL
    SELECT h #>> '{}' FROM copies_waiting w CROSS JOIN LATERAL jsonb_path_query(w.change, '$.**.hash'::jsonpath) AS h);

-- name: BodiesUsed :exec
UPDATE bodies SET used_at = now() WHERE id = ANY(@ids::bigint[]);

-- name: DropBodies :exec
DELETE FROM bodies WHERE id = ANY(@ids::bigint[]);

-- name: DropBodyProjects :exec
DELETE FROM body_projects WHERE hash = ANY(@hashes::bytea[]);

-- name: UnnameBodies :exec
UPDATE bodies SET hash = NULL WHERE id = ANY(@ids::bigint[]);

-- name: LockNamelessBodies :many
SELECT b.id FROM bodies b
WHERE b.hash IS NULL AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.body_id = b.id OFFSET 0)
ORDER BY b.id LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- name: DropChunks :execrows
DELETE FROM body_chunks WHERE ctid = ANY(ARRAY(
    SELECT c.ctid FROM body_chunks c WHERE c.body_id = ANY(@ids::bigint[]) ORDER BY c.body_id, c.idx LIMIT @max_rows));

-- name: DropEmptyBodies :exec
DELETE FROM bodies b WHERE b.id = ANY(@ids::bigint[]) AND NOT EXISTS (SELECT 1 FROM body_chunks c WHERE c.body_id = b.id OFFSET 0);

-- name: CollectUploads :execrows
DELETE FROM uploads WHERE id = ANY(ARRAY(
    SELECT u.id FROM uploads u WHERE u.updated_at < now() - make_interval(secs => @older_seconds::float8)
    ORDER BY u.updated_at LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: LockCollectionPlace :one
SELECT site, name FROM collection_places WHERE kind = @kind FOR UPDATE;

-- name: MoveCollectionPlace :exec
UPDATE collection_places SET site = @site, name = @name WHERE kind = @kind;

-- name: SubjectsAfter :many
SELECT site, name FROM subjects WHERE (site, name) > (@site::text, @name::text) ORDER BY site, name LIMIT @max_rows;

-- What is kept beside the newest: the delivery that the snapshot names, one that can still
-- be fetched, one whose batch is open, and that of the revision that a rollback goes to (as DeployedBefore finds it,
-- which looks back no further here). Of a deleted instance nothing is kept for a rollback.
-- name: CollectDeliveries :execrows
DELETE FROM deliveries WHERE id = ANY(ARRAY(
    SELECT c.id FROM subjects s
    LEFT JOIN LATERAL (
        SELECT c.revision, c.body_hash, c.run_hash, c.enabled FROM snapshots p
        JOIN revisions c ON c.site = p.site AND c.name = p.name AND c.revision = p.revision
        WHERE p.site = s.site AND p.name = s.name AND NOT s.deleted OFFSET 0) now ON true
    LEFT JOIN LATERAL (
        SELECT r.revision FROM (
            SELECT x.* FROM revisions x WHERE x.site = s.site AND x.name = s.name AND x.revision < now.revision
            ORDER BY x.revision DESC LIMIT 1000) r
        WHERE r.action <> 'delete' AND (r.body_hash, r.run_hash, r.enabled) IS DISTINCT FROM (now.body_hash, now.run_hash, now.enabled)
          AND EXISTS (SELECT 1 FROM deliveries d WHERE d.site = r.site AND d.name = r.name AND d.revision = r.revision
                      AND (d.state = 'succeeded' OR d.settled_as = 'applied' OR d.phase = 'recorded') OFFSET 0)
        ORDER BY r.revision DESC LIMIT 1) back ON true
    CROSS JOIN LATERAL (
        SELECT d.id FROM deliveries d
        WHERE d.site = s.site AND d.name = s.name
          AND d.attempt <= s.attempts - CASE WHEN s.deleted THEN 0 ELSE @keep::bigint END
          AND d.state <> 'open' AND (d.state = 'succeeded' OR d.settled_as IS NOT NULL)
          AND d.ended_at < now() - make_interval(secs => @older_seconds::float8)
          AND NOT EXISTS (SELECT 1 FROM snapshots p WHERE p.site = d.site AND p.name = d.name AND p.delivery_id = d.id OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM pending w WHERE w.deployment_id = d.id OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.id = d.batch_id AND b.state = 'open' OFFSET 0)
          AND NOT (d.revision = coalesce(back.revision, 0) AND (d.state = 'succeeded' OR d.settled_as = 'applied' OR d.phase = 'recorded'))
        ORDER BY d.attempt LIMIT @max_rows FOR UPDATE SKIP LOCKED) c
    WHERE (s.site, s.name) > (@after_site::text, @after_name::text) AND (s.site, s.name) <= (@to_site::text, @to_name::text)
    LIMIT @max_rows));

-- A revision that a node holds is kept too, for what its progress says of it; and one that a kept
-- delivery came from, but for the delete that a tombstone is known by: it says the generation.
-- name: CollectRevisions :execrows
DELETE FROM revisions WHERE ctid = ANY(ARRAY(
    SELECT c.ctid FROM subjects s
    CROSS JOIN LATERAL (
        SELECT r.ctid FROM revisions r
        WHERE r.site = s.site AND r.name = s.name AND r.revision <> s.desired_revision
          AND r.revision <= s.last_revision - CASE WHEN s.deleted THEN 0 ELSE @keep::bigint END
          AND r.created_at < now() - make_interval(secs => @older_seconds::float8)
          AND NOT EXISTS (SELECT 1 FROM snapshots p WHERE p.site = r.site AND p.name = r.name AND p.revision = r.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM owed w WHERE w.site = r.site AND w.name = r.name AND w.revision = r.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM node_held h WHERE h.site = r.site AND h.name = r.name AND h.revision = r.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM snapshot_tickets t WHERE t.site = r.site AND t.name = r.name AND t.revision = r.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.site = r.site AND d.name = r.name AND d.revision = r.revision OFFSET 0)
          AND (r.site, r.name, r.revision) NOT IN (
              SELECT d.site, d.name, d.from_revision FROM subjects x JOIN deliveries d ON d.site = x.site AND d.name = x.name
              WHERE (x.site, x.name) > (@after_site::text, @after_name::text) AND (x.site, x.name) <= (@to_site::text, @to_name::text)
                AND NOT (x.deleted AND d.ended_at < now() - make_interval(secs => @deliveries_seconds::float8)))
          AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'instance.' || r.site || '.' || r.name
                          AND o.revision = r.revision AND o.state = 'running' OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'instance.' || r.site || '.' || r.name
                          AND o.revision = r.revision AND o.state <> 'running' AND o.door_run <> '' AND NOT o.door_told OFFSET 0)
        ORDER BY r.revision LIMIT @max_rows FOR UPDATE SKIP LOCKED) c
    WHERE (s.site, s.name) > (@after_site::text, @after_name::text) AND (s.site, s.name) <= (@to_site::text, @to_name::text)
    LIMIT @max_rows));

-- name: CollectOperations :execrows
DELETE FROM operations WHERE id = ANY(ARRAY(
    SELECT o.id FROM operations o
    WHERE o.state <> 'running' AND (o.door_run = '' OR o.door_told)
      AND o.ended_at < now() - make_interval(secs => @older_seconds::float8)
    ORDER BY o.ended_at LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: CollectBatches :execrows
DELETE FROM batches WHERE id = ANY(ARRAY(
    SELECT b.id FROM batches b
    WHERE b.state <> 'open' AND b.ended_at < now() - make_interval(secs => @older_seconds::float8)
      AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.batch_id = b.id AND d.batch_id <> '' OFFSET 0)
    ORDER BY b.ended_at LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: LockFeedHorizon :one
SELECT era, xid::text::bigint AS xid, seq FROM feed_horizon FOR UPDATE;

-- name: FeedHorizon :one
SELECT era, xid::text::bigint AS xid, seq FROM feed_horizon;

-- In the order of the feed, and only what no transaction under way can precede.
-- name: EventsToCollect :many
SELECT e.era, e.xid::text::bigint AS xid, e.seq, (e.at < now() - make_interval(secs => @older_seconds::float8))::boolean AS old
FROM events e, region r
WHERE (e.era, e.xid, e.seq) > (@era::bigint, @xid::xid8, @seq::bigint)
  AND (e.era < r.era OR e.xid < pg_snapshot_xmin(pg_current_snapshot()))
ORDER BY e.era, e.xid, e.seq LIMIT @max_rows;

-- name: DropEvents :exec
DELETE FROM events WHERE seq = ANY(@seqs::bigint[]);

-- name: RaiseFeedHorizon :exec
UPDATE feed_horizon SET era = @era, xid = @xid::xid8, seq = @seq;

-- Of ended replicas the newest of each deployment stay, for their output; of one that ended itself
-- none.
-- name: CollectReplicas :execrows
DELETE FROM replicas WHERE id = ANY(ARRAY(
    SELECT c.id FROM deployments d
    CROSS JOIN LATERAL (
        SELECT e.id FROM (
            SELECT r.id, r.ended_at FROM replicas r WHERE r.deployment = d.name AND r.ended_at IS NOT NULL
            ORDER BY r.ended_at DESC
            OFFSET CASE WHEN d.state = 'TERMINATED' AND d.since < now() - make_interval(secs => @record_seconds::float8) THEN 0 ELSE @keep::bigint END) e
        WHERE e.ended_at < now() - make_interval(secs => @older_seconds::float8)
        ORDER BY e.ended_at LIMIT @max_rows) c
    LIMIT @max_rows));

-- Samples of what has ended, for which no row keeps them.
-- name: CollectReplicaSamples :execrows
DELETE FROM replica_samples WHERE replica = ANY(ARRAY(
    SELECT s.replica FROM replica_samples s
    WHERE NOT EXISTS (SELECT 1 FROM replicas r WHERE r.id = s.replica AND r.ended_at IS NULL OFFSET 0) LIMIT @max_rows));

-- A replica that waits for an operator is shown to those whose revision it runs.
-- name: CollectDeploymentRevisions :execrows
DELETE FROM deployment_revisions WHERE ctid = ANY(ARRAY(
    SELECT c.ctid FROM deployments d
    CROSS JOIN LATERAL (
        SELECT v.ctid FROM deployment_revisions v
        WHERE v.deployment = d.name AND v.revision NOT IN (d.revision, coalesce(d.stable, d.revision)) AND v.revision <= d.last_revision - @keep::bigint
          AND v.created_at < now() - make_interval(secs => @older_seconds::float8)
          AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.deployment = v.deployment AND r.ended_at IS NULL
                          AND v.revision IN (r.revision, r.terms_revision) OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM orphan_replicas x WHERE x.deployment = v.deployment AND x.revision = v.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM rollouts o WHERE o.deployment = v.deployment AND o.ended_at IS NULL AND o.to_revision = v.revision OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'deployment.' || v.deployment AND o.revision = v.revision
                          AND o.state = 'running' OFFSET 0)
        ORDER BY v.revision LIMIT @max_rows) c
    LIMIT @max_rows));

-- name: CollectDeploymentHistory :execrows
DELETE FROM deployment_history WHERE id = ANY(ARRAY(
    SELECT c.id FROM deployments d
    CROSS JOIN LATERAL (
        SELECT h.id FROM deployment_history h
        WHERE h.deployment = d.name AND (h.last_at < now() - make_interval(secs => @older_seconds::float8)
            OR h.id < (SELECT min(n.id) FROM (SELECT x.id FROM deployment_history x WHERE x.deployment = d.name
                                             ORDER BY x.id DESC LIMIT @most::bigint) n))
        ORDER BY h.id LIMIT @max_rows) c
    LIMIT @max_rows));

-- The record of a deployment that ended goes when its replicas have gone, and nobody waits for it. Its
-- numbers stay.
-- name: CollectDeployments :execrows
WITH gone AS (DELETE FROM deployments WHERE name = ANY(ARRAY(
    SELECT d.name FROM deployments d
    WHERE d.state = 'TERMINATED' AND d.next_uid IS NULL AND d.since < now() - make_interval(secs => @older_seconds::float8)
      AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.deployment = d.name OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'deployment.' || d.name AND o.state = 'running' OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = d.name OFFSET 0)
    ORDER BY d.since LIMIT @max_rows FOR UPDATE SKIP LOCKED)) RETURNING name, last_revision, greatest(last_version, process_version) AS last_version)
INSERT INTO deployment_numbers SELECT name, last_revision, last_version FROM gone
ON CONFLICT (name) DO UPDATE SET last_revision = excluded.last_revision, process_version = excluded.process_version;

-- What nodes were to end that have not come back for long: what they have then is looked at anew.
-- name: CollectTombstones :execrows
DELETE FROM replica_tombstones WHERE (node, replica) IN (
    SELECT t.node, t.replica FROM replica_tombstones t JOIN nodes n ON n.name = t.node
    WHERE (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL) AND t.since < now() - make_interval(secs => @older_seconds::float8) LIMIT @max_rows FOR UPDATE OF t SKIP LOCKED);

-- name: CollectOrphanReplicas :execrows
DELETE FROM orphan_replicas WHERE (node, replica) IN (
    SELECT o.node, o.replica FROM orphan_replicas o JOIN nodes n ON n.name = o.node
    WHERE (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL) AND o.since < now() - make_interval(secs => @older_seconds::float8) LIMIT @max_rows FOR UPDATE OF o SKIP LOCKED);

-- Sets of nodes that do not come back as they were. Another set of theirs has a higher number.
-- name: CollectNodeSets :execrows
DELETE FROM node_sets WHERE node = ANY(ARRAY(
    SELECT s.node FROM node_sets s JOIN nodes n ON n.name = s.node
    WHERE (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.node = s.node AND r.ended_at IS NULL OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM replica_tombstones t WHERE t.node = s.node OFFSET 0)
    LIMIT @max_rows FOR UPDATE OF s SKIP LOCKED));
