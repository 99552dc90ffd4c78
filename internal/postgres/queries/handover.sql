-- Holders of these names, in whatever region they were created ('' for this one), and whether a region has them.
-- name: HoldersNamed :many
SELECT o.kind, o.name, o.project, o.spec, ''::text AS region, coalesce(o.syncing ->> 'owningRegion', '')::text AS owner, o.owner_epoch,
    (o.syncing -> 'regions' ? @has_region::text)::boolean AS has
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@names::text[]) AS name) k
CROSS JOIN LATERAL (SELECT x.* FROM objects x WHERE x.kind = k.kind AND x.scope = '' AND x.name = k.name OFFSET 0) o
UNION ALL
SELECT c.kind, c.name, c.project, c.spec, c.region, c.owner, c.owner_epoch, (c.syncing -> 'regions' ? @has_region::text)::boolean AS has
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@names::text[]) AS name) k
CROSS JOIN LATERAL (SELECT x.* FROM copies x WHERE x.kind = k.kind AND x.scope = '' AND x.name = k.name OFFSET 0) c;

-- Who owned holders when they went from this region.
-- name: HoldersGone :many
SELECT m.kind, m.name, m.region, m.owner, m.owner_epoch FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@names::text[]) AS name) k
JOIN LATERAL (SELECT x.* FROM copy_markers x WHERE x.kind = k.kind AND x.scope = '' AND x.name = k.name AND x.reason <> 'moved' OFFSET 0) m ON true;

-- Objects that this region created, as their owner, this region or another one, has them.
-- name: PutOwned :exec
INSERT INTO objects AS o (uid, kind, project, scope, name, service, labels, generation, resource_version, spec, syncing, owner_epoch, owner_number,
    created_by, created_at, updated_at, deleting_since)
SELECT k.uid, k.kind, k.project, k.scope, k.name, k.service, k.labels, k.generation, k.resource_version, k.spec, k.syncing, k.owner_epoch, k.owner_number,
    k.created_by, k.created_at, k.updated_at, k.deleting_since
FROM jsonb_populate_recordset(NULL::objects, @rows::jsonb) k
ON CONFLICT (kind, scope, name) DO UPDATE SET
    uid = excluded.uid, project = excluded.project, service = excluded.service, labels = excluded.labels, generation = excluded.generation,
    resource_version = excluded.resource_version, spec = excluded.spec, syncing = excluded.syncing, owner_epoch = excluded.owner_epoch,
    owner_number = excluded.owner_number, created_by = excluded.created_by, created_at = excluded.created_at, updated_at = excluded.updated_at,
    deleting_since = excluded.deleting_since;

-- name: TxPlace :one
SELECT r.era, pg_current_xact_id()::text::bigint AS xid FROM region r;

-- "" while something that the peer sent waits: for a newer policy, or for what it is composed of.
-- name: StreamPosition :one
SELECT (CASE WHEN EXISTS (SELECT FROM quarantine q WHERE q.peer = s.peer AND q.waiting IS NOT NULL)
      OR EXISTS (SELECT FROM copies_waiting w WHERE w.owner = s.peer) THEN '' ELSE s.position END)::text AS position
FROM region_streams s WHERE s.peer = @peer;

-- Whether the comparison that a claim waits for has ended; no row while none is wanted.
-- name: ClaimCompared :one
SELECT (s.pass > c.wanted OR s.pass >= c.wanted AND s.ended_at IS NOT NULL)::boolean AS compared
FROM claim_comparisons c JOIN region_syncs s ON s.peer = c.peer AND s.wanted >= c.wanted
WHERE c.region = @region AND c.kind = @kind AND c.name = @name AND c.epoch = @epoch AND c.peer = @peer;

-- name: WantClaimCompared :exec
INSERT INTO claim_comparisons AS c (region, kind, name, epoch, peer, wanted) VALUES (@region, @kind, @name, @epoch, @peer, @wanted)
ON CONFLICT (kind, name, region) DO UPDATE SET epoch = excluded.epoch, peer = excluded.peer, wanted = excluded.wanted;

-- name: TakeClaimsCompared :many
SELECT kind, name FROM claim_comparisons WHERE peer = @peer;

-- name: DropClaimCompared :exec
DELETE FROM claim_comparisons WHERE region = @region AND kind = @kind AND name = @name;

-- name: PeerAllowed :many
SELECT p.name, p.problem, p.seen_at FROM peers p WHERE NOT p.self AND p.disabled_at IS NULL AND p.removed_at IS NULL ORDER BY p.name;

-- name: RenouncedEpoch :one
SELECT epoch FROM renounced WHERE region = @region AND kind = @kind AND name = @name;

-- name: Renounce :exec
INSERT INTO renounced AS r (region, kind, name, epoch) VALUES (@region, @kind, @name, @epoch)
ON CONFLICT (kind, name, region) DO UPDATE SET epoch = greatest(r.epoch, excluded.epoch), at = now();

-- name: WaitingChanges :many
SELECT waiting FROM quarantine WHERE peer = @peer AND waiting IS NOT NULL ORDER BY at LIMIT @max_rows;

-- name: PeersWaiting :many
SELECT peer FROM quarantine WHERE waiting IS NOT NULL GROUP BY peer HAVING count(*) >= @least::bigint ORDER BY peer;

-- name: HandOverAsked :one
SELECT count(*) FILTER (WHERE NOT cancel_requested) AS asked, count(*) FILTER (WHERE cancel_requested) AS cancelled
FROM operations WHERE subject = @subject AND kind = 'hand-over' AND state = 'running';

-- name: PutMarker :exec
INSERT INTO copy_markers (region, kind, scope, name, owner, owner_epoch, number, reason)
VALUES (@region, @kind, @scope, @name, @owner, @owner_epoch, @number, @reason)
ON CONFLICT (kind, scope, name, region) DO UPDATE SET
    owner = excluded.owner, owner_epoch = excluded.owner_epoch, number = excluded.number, reason = excluded.reason, at = now();

-- name: AppendDeletion :one
INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, region)
SELECT r.era, 'deleted', @kind, @project, @scope, @name, @uid, @generation, @actor, @before, @region FROM region r
RETURNING seq;

-- name: CopiesNamed :many
SELECT * FROM copies WHERE kind = @kind AND scope = @scope AND name = @name ORDER BY region;

-- What belongs to a holder that another region created, in any region, by kind. What other regions created belongs to it only
-- if no other holder has its name.
-- name: UsesOfCopiedHolder :many
WITH alone AS (SELECT (SELECT count(*) FROM objects h WHERE h.kind = @of_kind::text AND h.scope = '' AND h.name = @of_name::text)
    + (SELECT count(*) FROM copies h WHERE h.kind = @of_kind::text AND h.scope = '' AND h.name = @of_name::text) = 1 AS is)
SELECT c.kind, count(*) AS uses FROM copies c, alone
WHERE NOT (c.kind = @of_kind::text AND c.name = @of_name::text) AND (alone.is OR c.region = @of_region::text) AND CASE @of_kind::text
    WHEN 'project' THEN c.project = @of_name::text
    WHEN 'service' THEN c.project = @project AND c.service = @of_name::text
    ELSE c.kind = 'project' AND c.spec ->> 'organization' = @of_name::text END
GROUP BY c.kind
UNION ALL
SELECT o.kind, count(*) AS uses FROM objects o, alone
WHERE NOT (o.kind = @of_kind::text AND o.name = @of_name::text) AND alone.is AND CASE @of_kind::text
    WHEN 'project' THEN o.project = @of_name::text
    WHEN 'service' THEN o.project = @project AND o.service = @of_name::text
    ELSE o.kind = 'project' AND o.spec ->> 'organization' = @of_name::text END
GROUP BY o.kind
UNION ALL
SELECT 'token', count(*) FROM api_tokens t, alone
WHERE @of_kind::text = 'project' AND t.project = @of_name::text AND alone.is AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
HAVING count(*) > 0;

-- What other regions created under a holder of this region, by kind: it belongs to that if no copy of a holder has its name.
-- name: UsesElsewhere :many
SELECT c.kind, count(*) AS uses FROM copies c
WHERE NOT EXISTS (SELECT FROM copies h WHERE h.kind = @of_kind::text AND h.scope = '' AND h.name = @of_name::text) AND CASE @of_kind::text
    WHEN 'project' THEN c.project = @of_name::text
    WHEN 'service' THEN c.project = @project AND c.service = @of_name::text
    ELSE c.kind = 'project' AND c.spec ->> 'organization' = @of_name::text END
GROUP BY c.kind ORDER BY c.kind;

-- name: NoteWaiting :exec
UPDATE operations SET reason = @reason, message = @message
WHERE subject = @subject AND kind = @kind AND state = 'running' AND (reason, message) <> (@reason, @message);

-- name: TurnUnderWay :one
SELECT EXISTS (SELECT FROM policy_turns WHERE kind = @kind AND name = @name AND ended_at IS NULL);
