-- What was never released or never deployed has a number 0.
-- name: RevisionsOfInstances :many
SELECT s.name, coalesce(d.era, 0)::bigint AS era, coalesce(d.revision, 0)::bigint AS revision, coalesce(d.action, '')::text AS action,
       coalesce(d.content_kind, '')::text AS content_kind, d.body_hash, coalesce(d.size, 0)::bigint AS size, d.run_hash,
       coalesce(d.enabled, false)::boolean AS enabled, coalesce(d.generation, 0)::bigint AS generation,
       coalesce(r.era, 0)::bigint AS snap_era, coalesce(r.revision, 0)::bigint AS snap_revision,
       coalesce(r.action, '')::text AS snap_action, coalesce(r.content_kind, '')::text AS snap_kind, r.body_hash AS snap_hash,
       coalesce(r.size, 0)::bigint AS snap_size, r.run_hash AS snap_run_hash, coalesce(r.enabled, false)::boolean AS snap_enabled,
       coalesce(r.generation, 0)::bigint AS snap_generation, p.recorded_at
FROM subjects s
LEFT JOIN revisions d ON d.site = s.site AND d.name = s.name AND d.revision = s.desired_revision
LEFT JOIN snapshots p ON p.site = s.site AND p.name = s.name
LEFT JOIN revisions r ON r.site = p.site AND r.name = p.name AND r.revision = p.revision
WHERE s.site = @site AND s.name = ANY(@names::text[]);

-- name: HeldOfInstances :many
SELECT i.name::text AS name, n.name AS node, n.role, h.revision, h.era, h.hash, h.enabled, h.deleted, h.running, h.reason,
       h.reported_at, o.revision AS owed, o.reason AS owed_reason
FROM nodes n CROSS JOIN unnest(@names::text[]) AS i(name)
LEFT JOIN node_held h ON h.node = n.name AND h.site = n.site AND h.name = i.name
LEFT JOIN owed o ON o.node = n.name AND o.site = n.site AND o.name = i.name
WHERE n.site = @site AND n.removed_at IS NULL AND n.role <> 'worker'
ORDER BY n.role, n.name;

-- The newest attempt is the one that its subject counted last.
-- name: LastDeliveries :many
SELECT d.*, r.era, r.generation, r.action, r.body_hash, r.reason AS why
FROM subjects s
JOIN deliveries d ON d.site = s.site AND d.name = s.name AND d.attempt = s.attempts
JOIN revisions r ON r.site = d.site AND r.name = d.name AND r.revision = d.revision
WHERE s.site = @site AND s.name = ANY(@names::text[]);

-- What the nodes of some deliveries hold now, which may be a newer revision.
-- name: HeldByTargets :many
SELECT t.delivery_id, t.node, h.revision, h.hash, r.generation
FROM delivery_nodes t
JOIN deliveries d ON d.id = t.delivery_id
JOIN node_held h ON h.site = d.site AND h.name = d.name AND h.node = t.node
JOIN revisions r ON r.site = h.site AND r.name = h.name AND r.revision = h.revision AND r.era = h.era
WHERE t.delivery_id = ANY(@ids::text[]);
