-- name: ClaimStream :one
INSERT INTO region_streams (peer, run) VALUES (@peer, @run)
ON CONFLICT (peer) DO UPDATE SET run = excluded.run, claim = region_streams.claim + 1, seen_at = now()
RETURNING claim;

-- name: HoldStream :one
SELECT s.*, EXISTS (SELECT FROM quarantine q WHERE q.peer = s.peer AND q.waiting IS NOT NULL) AS waits
FROM region_streams s WHERE s.peer = @peer AND s.claim = @claim FOR UPDATE OF s;

-- name: MoveStream :exec
UPDATE region_streams
SET position = @position, began = @began, applied = applied + @applied, seen_at = now(), current_at = CASE WHEN @is_current::boolean THEN now() ELSE current_at END,
    lag_ms = CASE WHEN @is_current::boolean THEN @lag_ms ELSE lag_ms END, reports = reports + CASE WHEN @is_current::boolean THEN 1 ELSE 0 END
WHERE peer = @peer;

-- name: StreamLags :many
SELECT s.peer, s.lag_ms, s.reports, extract(epoch FROM now() - s.seen_at)::float8 AS seen_seconds
FROM region_streams s WHERE s.current_at IS NOT NULL ORDER BY s.peer;

-- name: SeeStream :one
UPDATE region_streams s SET seen_at = now(), reports = s.reports + 1, lag_ms = CASE WHEN @lag_ms::bigint < 0 THEN s.lag_ms ELSE @lag_ms END
WHERE s.peer = @peer AND s.claim = @claim
RETURNING s.position, s.began, EXISTS (SELECT FROM quarantine q WHERE q.peer = s.peer AND q.waiting IS NOT NULL) AS waits;

-- name: Streams :many
SELECT s.*, (SELECT count(*) FROM copies c WHERE c.owner = s.peer) AS copies, (SELECT count(*) FROM quarantine q WHERE q.peer = s.peer) AS quarantined,
       (SELECT count(*) FROM copies_waiting w WHERE w.owner = s.peer) AS waiting,
       extract(epoch FROM now() - s.seen_at)::float8 AS seen_seconds
FROM region_streams s ORDER BY s.peer;

-- name: CopiesNow :many
SELECT c.* FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
JOIN copies c ON c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region;

-- What is here of objects of which a peer sent something.
-- name: HeldNow :many
SELECT k.region::text AS region, k.kind::text AS kind, k.scope::text AS scope, k.name::text AS name, to_jsonb(c.*)::jsonb AS copy,
       coalesce(m.owner, '') AS marked_by, coalesce(m.owner_epoch, 0) AS marked_epoch, coalesce(m.number, 0) AS marked_number,
       coalesce(m.reason = 'deleted', false)::boolean AS deleted,
       (q.peer IS NOT NULL)::boolean AS aside, (w.owner IS NOT NULL)::boolean AS waits,
       EXISTS (SELECT FROM lost_writes l WHERE l.peer = @peer AND l.kind = k.kind AND l.scope = k.scope AND l.name = k.name AND l.region = k.region)::boolean AS listed
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
LEFT JOIN copies c ON c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region
LEFT JOIN copy_markers m ON m.kind = k.kind AND m.scope = k.scope AND m.name = k.name AND m.region = k.region
LEFT JOIN quarantine q ON q.peer = @peer AND q.kind = k.kind AND q.scope = k.scope AND q.name = k.name AND q.region = k.region
LEFT JOIN copies_waiting w ON w.owner = @peer AND w.kind = k.kind AND w.scope = k.scope AND w.name = k.name AND w.region = k.region;

-- name: PutCopies :exec
INSERT INTO copies (region, kind, scope, name, owner, owner_epoch, number, uid, project, service, labels, generation, spec, syncing, created_by, created_at,
    updated_at, deleting_since, event)
SELECT c.region, c.kind, c.scope, c.name, c.owner, c.owner_epoch, c.number, c.uid, c.project, c.service, c.labels, c.generation, c.spec, c.syncing, c.created_by,
    c.created_at, c.updated_at, c.deleting_since, c.event
FROM jsonb_populate_recordset(NULL::copies, @rows::jsonb) c
ON CONFLICT (kind, scope, name, region) DO UPDATE SET
    owner = excluded.owner, owner_epoch = excluded.owner_epoch, number = excluded.number, uid = excluded.uid, project = excluded.project,
    service = excluded.service, labels = excluded.labels, generation = excluded.generation, spec = excluded.spec, syncing = excluded.syncing, created_by = excluded.created_by,
    created_at = excluded.created_at, updated_at = excluded.updated_at, deleting_since = excluded.deleting_since, event = excluded.event;

-- Each with its local event, which peers do not receive.
-- name: WriteCopies :exec
WITH appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after, region)
    SELECT r.era, e.type, e.kind, e.project, e.scope, e.name, e.uid, e.generation, @actor, e.before, e.after, e.region
    FROM region r, jsonb_to_recordset(@rows::jsonb) AS e(type text, kind text, project text, scope text, name text, uid uuid, generation bigint, before jsonb, after jsonb, region text)
    RETURNING region, kind, scope, name, seq)
INSERT INTO copies (region, kind, scope, name, owner, owner_epoch, number, uid, project, service, labels, generation, spec, syncing, created_by, created_at,
    updated_at, deleting_since, event)
SELECT c.region, c.kind, c.scope, c.name, c.owner, c.owner_epoch, c.number, c.uid, c.project, c.service, c.labels, c.generation, c.spec, c.syncing, c.created_by,
    c.created_at, c.updated_at, c.deleting_since, a.seq
FROM jsonb_populate_recordset(NULL::copies, @rows::jsonb) c
JOIN appended a ON a.kind = c.kind AND a.scope = c.scope AND a.name = c.name AND a.region = c.region
ON CONFLICT (kind, scope, name, region) DO UPDATE SET
    owner = excluded.owner, owner_epoch = excluded.owner_epoch, number = excluded.number, uid = excluded.uid, project = excluded.project,
    service = excluded.service, labels = excluded.labels, generation = excluded.generation, spec = excluded.spec, syncing = excluded.syncing, created_by = excluded.created_by,
    created_at = excluded.created_at, updated_at = excluded.updated_at, deleting_since = excluded.deleting_since, event = excluded.event;

-- name: DropCopies :exec
DELETE FROM copies c
USING (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
WHERE c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region;

-- name: PutMarkers :exec
INSERT INTO copy_markers (region, kind, scope, name, owner, owner_epoch, number, reason)
SELECT m.region, m.kind, m.scope, m.name, m.owner, m.owner_epoch, m.number, m.reason
FROM jsonb_populate_recordset(NULL::copy_markers, @rows::jsonb) m
ON CONFLICT (kind, scope, name, region) DO UPDATE SET
    owner = excluded.owner, owner_epoch = excluded.owner_epoch, number = excluded.number, reason = excluded.reason, at = now();

-- name: DropMarkers :exec
DELETE FROM copy_markers m
USING (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
WHERE m.kind = k.kind AND m.scope = k.scope AND m.name = k.name AND m.region = k.region;

-- name: PutQuarantine :exec
INSERT INTO quarantine (peer, region, kind, scope, name, reason, owner_epoch, number, waiting)
SELECT DISTINCT ON (k.kind, k.scope, k.name, k.region) @peer, k.region, k.kind, k.scope, k.name, k.reason, k.owner_epoch, k.number, nullif(k.waiting, '')::jsonb
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name,
      unnest(@reasons::text[]) AS reason, unnest(@owner_epochs::bigint[]) AS owner_epoch, unnest(@numbers::bigint[]) AS number, unnest(@waiting::text[]) AS waiting) k
WHERE (SELECT count(*) FROM quarantine c WHERE c.peer = @peer) < @most::bigint
   OR EXISTS (SELECT FROM quarantine c WHERE c.peer = @peer AND c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region)
ORDER BY k.kind, k.scope, k.name, k.region, k.owner_epoch DESC, k.number DESC
ON CONFLICT (peer, kind, scope, name, region) DO UPDATE SET
    reason = excluded.reason, owner_epoch = excluded.owner_epoch, number = excluded.number, waiting = excluded.waiting, at = now()
    WHERE quarantine.waiting IS NULL OR excluded.waiting IS NULL
       OR (excluded.owner_epoch, excluded.number) >= (quarantine.owner_epoch, quarantine.number); -- an older state may arrive after a newer one

-- name: Quarantined :many
SELECT * FROM quarantine WHERE peer = @peer AND (kind, scope, name, region) > (@kind::text, @scope::text, @name::text, @region::text)
ORDER BY kind, scope, name, region LIMIT @max_rows;

-- name: AppendCopyEvents :many
INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after, region)
SELECT r.era, e.type, e.kind, e.project, e.scope, e.name, e.uid, e.generation, @actor, e.before, e.after, e.region
FROM region r, jsonb_to_recordset(@rows::jsonb) AS e(type text, kind text, project text, scope text, name text, uid uuid, generation bigint, before jsonb, after jsonb, region text)
RETURNING region, kind, scope, name, seq;

-- name: ListCopies :many
SELECT * FROM copies
WHERE kind = @kind AND scope = @scope AND name > @after::text AND region = @region AND (@project::text = '' OR project = @project)
ORDER BY name LIMIT @max_rows;

-- name: FindCopies :many
SELECT * FROM copies WHERE kind = @kind AND scope = @scope AND name = @name AND (@region::text = '' OR region = @region) ORDER BY region LIMIT 2;

-- name: WatchCopies :many
SELECT * FROM copies
WHERE (kind, scope, name, region) > (@after_kind::text, @after_scope::text, @after_name::text, @after_region::text)
  AND (@wanted_owner::text = '' OR owner = @wanted_owner) AND (@project::text = '' OR project = @project)
ORDER BY kind, scope, name, region LIMIT @max_rows;

-- name: CountCopies :one
SELECT ((SELECT count(*) FROM copies c WHERE c.owner = @owner)
     + (SELECT count(*) FROM objects o WHERE o.kind IN ('organization', 'project', 'service', 'template') AND o.syncing ->> 'owningRegion' = @owner))::bigint AS kept;

-- name: DropQuarantine :exec
DELETE FROM quarantine q
USING (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
WHERE q.peer = @peer AND q.kind = k.kind AND q.scope = k.scope AND q.name = k.name AND q.region = k.region;

-- name: MemberEnabled :one
SELECT (disabled_at IS NULL AND removed_at IS NULL)::boolean FROM peers WHERE name = @name AND NOT self;

-- name: ForgetPeer :exec
WITH markers AS (DELETE FROM copy_markers WHERE owner = @peer), waits AS (DELETE FROM copies_waiting w WHERE w.owner = @peer), aside AS (DELETE FROM quarantine q WHERE q.peer = @peer),
    syncs AS (DELETE FROM region_syncs s WHERE s.peer = @peer)
UPDATE region_streams f SET claim = claim + 1, position = '', began = '', current_at = NULL WHERE f.peer = @peer;

-- What is known of some copies beside their content: a newer state that was set aside, or that waits ("" and false for none).
-- name: SeeCopies :many
SELECT c.region, c.kind, c.scope, c.name, c.owner, c.updated_at, now()::timestamptz AS now, coalesce(q.reason, '')::text AS aside, coalesce(q.at, c.updated_at)::timestamptz AS aside_at,
       (w.since IS NOT NULL)::boolean AS waits, coalesce(w.since, c.updated_at)::timestamptz AS waits_since, coalesce(w.problem, '')::text AS problem
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
JOIN copies c ON c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region
LEFT JOIN LATERAL (
    SELECT x.reason, x.at FROM region_streams s JOIN quarantine x ON x.peer = s.peer AND x.kind = c.kind AND x.scope = c.scope AND x.name = c.name AND x.region = c.region
    WHERE (x.owner_epoch, x.number) > (c.owner_epoch, c.number) ORDER BY x.at LIMIT 1) q ON true
LEFT JOIN LATERAL (
    SELECT x.since, x.problem FROM copies_waiting x WHERE x.kind = c.kind AND x.scope = c.scope AND x.name = c.name AND x.region = c.region
       AND (x.owner_epoch, x.number) > (c.owner_epoch, c.number) ORDER BY x.since LIMIT 1) w ON true;
