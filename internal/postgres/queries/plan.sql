-- Objects by their keys, each with what it released last.
-- name: StandingObjects :many
SELECT o.kind, o.scope, o.name, o.uid, o.project, o.service, o.labels, o.generation, o.resource_version, o.spec, o.syncing, o.deleting_since,
       coalesce(d.revision, 0)::bigint AS revision, coalesce(d.action, '')::text AS action, coalesce(d.generation, 0)::bigint AS revision_generation,
       d.body_hash, d.run_hash, coalesce(d.enabled, false)::boolean AS enabled, coalesce(d.durability, '')::text AS durability
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
JOIN objects o ON o.kind = k.kind AND o.scope = k.scope AND o.name = k.name
LEFT JOIN subjects s ON o.kind = 'instance' AND s.site = o.scope AND s.name = o.name
LEFT JOIN LATERAL (
    SELECT r.* FROM revisions r WHERE r.site = s.site AND r.name = s.name AND r.revision = s.desired_revision LIMIT 1) d ON true;

-- name: CopiesPlanned :many
SELECT c.* FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@names::text[]) AS name) k
JOIN LATERAL (SELECT x.* FROM copies x WHERE x.kind = k.kind AND x.scope = '' AND x.name = k.name OFFSET 0) c ON true
ORDER BY c.kind, c.name, c.region;

-- What the nodes of some instances hold, with the spec that it was released from.
-- name: HeldRevisions :many
SELECT k.site::text AS site, k.name::text AS name, n.name AS node, n.role, h.revision, h.hash, h.enabled, h.deleted, h.running,
       coalesce(r.content_kind, '')::text AS content_kind, coalesce(r.size, 0)::bigint AS size, r.spec
FROM (SELECT unnest(@sites::text[]) AS site, unnest(@names::text[]) AS name) k
JOIN nodes n ON n.site = k.site AND n.removed_at IS NULL AND n.role <> 'worker'
LEFT JOIN node_held h ON h.site = k.site AND h.name = k.name AND h.node = n.name
LEFT JOIN LATERAL (
    SELECT v.* FROM revisions v WHERE v.site = h.site AND v.name = h.name AND v.revision = h.revision AND v.era = h.era LIMIT 1) r ON true
ORDER BY k.site, k.name, n.role, n.name;

-- With those of its kind and scope that refer to each.
-- name: ObjectsOfApplySet :many
SELECT o.kind, o.scope, o.name, o.project, o.service, o.labels, o.generation, o.resource_version, o.syncing,
       (CASE WHEN o.kind IN ('organization', 'project', 'service') THEN o.spec ELSE '{}' END)::jsonb AS spec,
       ARRAY(SELECT r.name FROM object_references r
             WHERE r.to_kind = o.kind AND r.to_scope = o.scope AND r.to_name = o.name AND r.kind = o.kind AND r.scope = o.scope)::text[] AS referrers
FROM objects o
WHERE o.labels ->> 'holdfast.dev/apply-set' = @apply_set::text AND o.deleting_since IS NULL
ORDER BY o.kind, o.scope, o.name;

-- name: BodiesInOneChunk :many
SELECT b.hash, c.data FROM unnest(@hashes::bytea[]) AS k(hash)
JOIN LATERAL (SELECT x.id, x.hash, x.size FROM bodies x WHERE x.hash = k.hash OFFSET 0) b ON b.size <= 1048576
JOIN LATERAL (SELECT x.data FROM body_chunks x WHERE x.body_id = b.id AND x.idx = 0 OFFSET 0) c ON true;

-- name: BodiesAllowed :many
SELECT p.project, b.hash, b.size
FROM (SELECT unnest(@projects::text[]) AS project, unnest(@hashes::bytea[]) AS hash) k
JOIN body_projects p ON p.project = k.project AND p.hash = k.hash
JOIN bodies b ON b.hash = k.hash;

-- name: LastTemplateGenerations :many
SELECT name, max(generation)::bigint AS generation FROM template_generations WHERE name = ANY(@names::text[]) GROUP BY name;

-- name: SitesOfNodes :many
SELECT name, site FROM nodes WHERE name = ANY(@names::text[]) AND removed_at IS NULL;

-- name: SeenKeys :many
SELECT key FROM idempotency WHERE actor = @actor AND key = ANY(@keys::text[]);
