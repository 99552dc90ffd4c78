-- name: GetRegion :one
SELECT * FROM region;

-- name: FoundRegion :one
INSERT INTO region (name, era, system_identifier, timeline)
VALUES (@name, 1, @system_identifier, @timeline)
ON CONFLICT (only_row) DO UPDATE SET name = region.name
RETURNING *;

-- name: StopEvents :exec
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;

-- name: RaiseEra :one
UPDATE region SET era = era + 1, system_identifier = @system_identifier, timeline = @timeline, raised_at = now()
WHERE name = @name
RETURNING *;

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

-- name: Now :one
SELECT clock_timestamp()::timestamptz AS now;
