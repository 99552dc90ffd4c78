-- name: GetRegion :one
SELECT * FROM region;

-- name: FoundRegion :one
INSERT INTO region (name, era, system_identifier, timeline)
VALUES (@name, 1, @system_identifier, @timeline)
ON CONFLICT (only_row) DO UPDATE SET name = region.name
RETURNING *;

-- name: StopEvents :exec
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;

-- Where the era ends: its last event that is kept, or the last that was collected.
-- name: EndEra :exec
INSERT INTO eras (era, id, xid, seq)
SELECT r.era, r.era_id, coalesce(e.xid, h.xid), coalesce(e.seq, h.seq)
FROM region r CROSS JOIN feed_horizon h
LEFT JOIN LATERAL (SELECT x.xid, x.seq FROM events x WHERE x.era = r.era ORDER BY x.era DESC, x.xid DESC, x.seq DESC LIMIT 1) e ON true;

-- name: RaiseEra :one
UPDATE region AS r SET era = era + 1, era_id = gen_random_uuid(), system_identifier = @system_identifier, timeline = @timeline, raised_at = now(),
    recovering = EXISTS (SELECT FROM peers p WHERE NOT p.self AND p.disabled_at IS NULL AND p.removed_at IS NULL)
WHERE r.name = @name
RETURNING *;

-- What was compared before a restore is to be compared again.
-- name: ForgetSyncs :exec
DELETE FROM region_syncs;

-- Numbers of events rise over eras too: what was undone by a restore is below all that follows.
-- name: RaiseEventNumbers :exec
SELECT setval(pg_get_serial_sequence('events', 'seq'), greatest((SELECT max(seq) FROM events), @least::bigint));

-- name: EndedEra :one
SELECT id, xid::text::bigint AS xid, seq FROM eras WHERE era = @era;

-- name: ServerSeen :exec
INSERT INTO servers (id, build_id) VALUES (@id, @build_id)
ON CONFLICT (id) DO UPDATE SET seen_at = now();

-- name: ServerGone :exec
DELETE FROM servers WHERE id = @id;

-- name: ForgetServer :exec
DELETE FROM servers WHERE id = @id AND seen_at = @seen_at;

-- name: Servers :many
SELECT id, build_id, seen_at FROM servers;

-- name: CommitLater :exec
SELECT set_config('synchronous_commit', 'off', true);

-- name: TellCommit :exec
SELECT pg_notify('holdfast_commit', @server::text);

-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;

-- The enabled peers that this region did not compare with since its database was restored.
-- name: NotCompared :many
SELECT p.name FROM region r CROSS JOIN peers p
WHERE r.recovering AND NOT p.self AND p.disabled_at IS NULL AND p.removed_at IS NULL
  AND NOT EXISTS (SELECT FROM region_syncs s WHERE s.peer = p.name AND s.completed_at IS NOT NULL)
ORDER BY p.name;

-- name: EndRecovery :exec
UPDATE region SET recovering = false WHERE recovering;
