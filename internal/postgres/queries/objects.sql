-- name: LockExclusive :exec
SELECT pg_advisory_xact_lock(@key::bigint);

-- name: LockShared :exec
SELECT pg_advisory_xact_lock_shared(@key::bigint);

-- name: GetObject :one
SELECT * FROM objects WHERE kind = sqlc.arg(kind) AND scope = sqlc.arg(scope) AND name = sqlc.arg(name);

-- name: ListObjects :many
SELECT * FROM objects
WHERE kind = sqlc.arg(kind) AND scope = sqlc.arg(scope) AND name > sqlc.arg(after)::text AND (sqlc.arg(project)::text = '' OR project = sqlc.arg(project))
ORDER BY name LIMIT sqlc.arg(max_rows);

-- name: CountObjectsIn :one
SELECT count(*) FROM objects WHERE kind = @kind AND scope = @scope;

-- An object is written with its event, whose number is its resource version. What is shared is newer than one of its name that went,
-- whoever owned that. A region that was restored does not know in which epochs others had what it creates again: it leaves a thousand of
-- them out for each era.
-- name: InsertObject :one
WITH born AS (
    SELECT r.era, gen_random_uuid() AS uid,
        greatest(1, m.owner_epoch + 1, CASE WHEN @kind::text IN ('organization', 'project', 'service', 'template') THEN 1000 * (r.era - 1) + 1 END) AS owner_epoch
    FROM region r LEFT JOIN copy_markers m ON m.kind = @kind AND m.scope = @scope AND m.name = @name AND m.region = r.name),
appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, after)
    SELECT b.era, 'created', @kind, @project, @scope, @name, b.uid, @generation, @created_by, @after::jsonb || jsonb_build_object('ownerEpoch', b.owner_epoch)
    FROM born b
    RETURNING seq)
INSERT INTO objects (kind, scope, name, uid, project, service, labels, generation, resource_version, spec, syncing, created_by, owner_epoch)
SELECT @kind, @scope, @name, b.uid, @project, @service, @labels, @generation, a.seq, @spec, @syncing, @created_by, b.owner_epoch FROM born b, appended a
RETURNING *;

-- name: UpdateObject :one
WITH appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
    SELECT r.era, @type, @kind, @project, @scope, @name, @uid, @generation, @actor, @before::jsonb, @after::jsonb FROM region r
    RETURNING seq)
UPDATE objects o
SET uid = @uid, labels = @labels, generation = @generation, resource_version = a.seq, spec = @spec, syncing = @syncing,
    deleting_since = CASE WHEN @deletes::boolean THEN now() ELSE sqlc.narg(deleting_since) END, updated_at = now()
FROM appended a
WHERE o.kind = @kind AND o.scope = @scope AND o.name = @name
RETURNING o.*;

-- What was handed over leaves a marker: without one, another object of the name would begin in an epoch that is over.
-- name: DeleteObject :exec
WITH gone AS (DELETE FROM objects o WHERE o.kind = @kind AND o.scope = @scope AND o.name = @name RETURNING o.*)
INSERT INTO copy_markers (region, kind, scope, name, owner, owner_epoch, number, reason)
SELECT r.name, g.kind, g.scope, g.name, r.name, g.owner_epoch, greatest(g.resource_version, g.refreshed), 'deleted' FROM gone g, region r WHERE g.owner_epoch > 1
ON CONFLICT (kind, scope, name, region) DO UPDATE SET
    owner = excluded.owner, owner_epoch = excluded.owner_epoch, number = excluded.number, reason = excluded.reason, at = now();

-- name: ForgetReferences :exec
DELETE FROM object_references WHERE kind = @kind AND scope = @scope AND name = @name;

-- name: KeepReferences :exec
INSERT INTO object_references (kind, scope, name, to_kind, to_scope, to_name)
SELECT @kind, @scope, @name, unnest(@to_kinds::text[]), unnest(@to_scopes::text[]), unnest(@to_names::text[])
ON CONFLICT DO NOTHING;

-- name: ReferrersOf :many
SELECT kind, scope, name, count(*) OVER () AS total FROM object_references
WHERE to_kind = @to_kind AND to_scope = @to_scope AND to_name = @to_name
ORDER BY kind, scope, name LIMIT 1;

-- What belongs to a project, by kind, and the tokens that are bound to it and still good.
-- name: UsesOfProject :many
SELECT o.kind, count(*) AS uses FROM objects o WHERE o.project = @project AND o.kind <> 'project' GROUP BY o.kind
UNION ALL
SELECT 'token', count(*) FROM api_tokens t
WHERE t.project = @project AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now()) HAVING count(*) > 0
ORDER BY 1;

-- name: NewUID :one
SELECT gen_random_uuid()::uuid AS uid;

-- name: AppendEvent :exec
INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
SELECT r.era, @type, @kind, @project, @scope, @name, @uid, @generation, @actor, sqlc.narg(before), sqlc.narg(after)
FROM region r;

-- Each event with its object as it is now. Nothing at all when some of what follows the cursor has been collected.
-- name: ReadFeed :many
SELECT e.seq, e.era, e.xid::text::bigint AS xid, e.at, e.type, e.kind, e.project, e.scope, e.name, e.uid, e.generation, e.actor, e.before, e.after, e.region,
       o.object::jsonb AS object
FROM region r, events e
LEFT JOIN LATERAL (
    SELECT to_jsonb(x.*) AS object FROM objects x
    WHERE e.region = '' AND e.type <> 'status' AND x.kind = e.kind AND x.scope = e.scope AND x.name = e.name OFFSET 0) o ON true
WHERE (e.era, e.xid, e.seq) > (@era::bigint, @xid::xid8, @seq::bigint)
  AND (SELECT (h.era, h.xid, h.seq) <= (@era::bigint, @xid::xid8, @seq::bigint) FROM feed_horizon h)
  AND (e.era < r.era OR e.xid < pg_snapshot_xmin(pg_current_snapshot()))
ORDER BY e.era, e.xid, e.seq LIMIT @max_rows;

-- name: FeedEnd :one
SELECT r.era, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xid FROM region r;

-- name: ListEventsNewestFirst :many
SELECT e.seq, e.era, e.xid::text::bigint AS xid, e.at, e.type, e.kind, e.project, e.scope, e.name, e.uid, e.generation, e.actor, e.before, e.after, e.region
FROM events e, region r
WHERE (e.era, e.xid, e.seq) < (@era::bigint, @xid::xid8, @seq::bigint)
  AND (e.era < r.era OR e.xid < pg_snapshot_xmin(pg_current_snapshot()))
ORDER BY e.era DESC, e.xid DESC, e.seq DESC LIMIT @max_rows;

-- What a watch begins with: objects of this region in the order of their keys.
-- name: WatchObjects :many
SELECT * FROM objects
WHERE (kind, scope, name) > (@after_kind::text, @after_scope::text, @after_name::text)
  AND (@region::text = '' OR syncing -> 'regions' ? @region) AND (@project::text = '' OR project = @project)
ORDER BY kind, scope, name LIMIT @max_rows;

-- name: ObjectsNow :many
SELECT o.* FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
JOIN objects o ON o.kind = k.kind AND o.scope = k.scope AND o.name = k.name;

-- name: PutOutbox :exec
INSERT INTO outbox (subject, trace) SELECT unnest(@subjects::text[]), @trace;

-- name: TakeOutbox :exec
DELETE FROM outbox o
USING (SELECT unnest(ARRAY(SELECT x.ctid FROM outbox x WHERE x.subject = k.subject)) AS place
       FROM (SELECT unnest(@subjects::text[]) AS subject) k OFFSET 0) k
WHERE o.ctid = k.place;

-- name: WaitingOutbox :many
SELECT DISTINCT subject FROM outbox
WHERE created_at < now() - make_interval(secs => @older_seconds::float8) LIMIT @max_rows;

-- name: OutboxTrace :one
SELECT trace FROM outbox WHERE subject = @subject AND trace <> '' ORDER BY id LIMIT 1;

-- name: InsertTemplateGeneration :exec
INSERT INTO template_generations (name, generation, spec) VALUES (@name, @generation, @spec)
ON CONFLICT (name, generation) DO NOTHING;

-- name: GetTemplateGeneration :one
SELECT spec FROM template_generations WHERE name = @name AND generation = @generation;

-- name: InstancesOfTemplate :one
SELECT count(*) FROM objects WHERE kind = 'instance' AND spec ->> 'template' = @name::text;

-- name: LastTemplateGeneration :one
SELECT coalesce(max(generation), 0)::bigint FROM template_generations WHERE name = @name;

-- name: GetIdempotency :one
SELECT * FROM idempotency WHERE actor = @actor AND key = @key;

-- A key that another request used at the same moment fails the transaction, which then runs again and finds it.
-- name: InsertIdempotency :exec
INSERT INTO idempotency (actor, key, request_hash, operation_id) VALUES (@actor, @key, @request_hash, @operation_id);

-- name: PurgeIdempotency :execrows
DELETE FROM idempotency WHERE ctid IN (SELECT ctid FROM idempotency i WHERE i.created_at < now() - interval '1 day' LIMIT @max_rows);
