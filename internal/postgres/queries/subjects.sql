-- name: EnsureSubject :exec
INSERT INTO subjects (site, name) VALUES (@site, @name) ON CONFLICT DO NOTHING;

-- name: LockSubject :one
SELECT * FROM subjects WHERE site = @site AND name = @name FOR UPDATE;

-- name: GetSubject :one
SELECT * FROM subjects WHERE site = @site AND name = @name;

-- name: NextRevision :one
UPDATE subjects SET last_revision = last_revision + 1, desired_revision = last_revision + 1, deleted = false
WHERE site = @site AND name = @name
RETURNING last_revision;

-- name: AttachRun :exec
UPDATE subjects SET entity_run = @run WHERE site = @site AND name = @name AND entity_run <> @run;

-- name: NextAttempt :one
UPDATE subjects SET attempts = attempts + 1 WHERE site = @site AND name = @name RETURNING attempts;

-- name: SetTombstone :exec
UPDATE subjects SET deleted = true WHERE site = @site AND name = @name AND desired_revision = @revision;

-- name: InsertRevision :exec
INSERT INTO revisions (site, name, revision, era, action, content_kind, body_hash, size, run, run_hash, enabled,
                       durability, generation, spec, created_by, reason)
SELECT @site, @name, @revision, r.era, @action, @content_kind, sqlc.narg(body_hash), @size, sqlc.narg(run), sqlc.narg(run_hash),
       @enabled, @durability, @generation, @spec, @created_by, @reason
FROM region r;

-- name: GetRevision :one
SELECT * FROM revisions WHERE site = @site AND name = @name AND revision = @revision;

-- name: DeployedBefore :one
SELECT r.* FROM revisions r
JOIN revisions c ON c.site = r.site AND c.name = r.name AND c.revision = @revision
WHERE r.site = @site AND r.name = @name AND r.revision < @revision AND r.action <> 'delete'
  AND EXISTS (SELECT 1 FROM deliveries d WHERE d.site = r.site AND d.name = r.name AND d.revision = r.revision
              AND (d.state = 'succeeded' OR d.settled_as = 'applied' OR d.phase = 'recorded'))
  AND (r.body_hash, r.run_hash, r.enabled) IS DISTINCT FROM (c.body_hash, c.run_hash, c.enabled)
ORDER BY r.revision DESC LIMIT 1;

-- name: GetSnapshot :one
SELECT s.revision AS at_revision, s.delivery_id, s.epoch AS at_epoch, s.recorded_at, r.*
FROM snapshots s JOIN revisions r ON r.site = s.site AND r.name = s.name AND r.revision = s.revision
WHERE s.site = @site AND s.name = @name;

-- name: RecordSnapshot :execrows
INSERT INTO snapshots (site, name, revision, delivery_id, epoch) VALUES (@site, @name, @revision, @delivery_id, @epoch)
ON CONFLICT (site, name) DO UPDATE SET revision = excluded.revision, delivery_id = excluded.delivery_id,
    epoch = excluded.epoch, recorded_at = now()
WHERE snapshots.revision < excluded.revision;

-- name: SnapshotsOfSite :many
SELECT s.name, s.revision, r.era, r.action, r.body_hash, r.run_hash, r.enabled
FROM snapshots s JOIN revisions r ON r.site = s.site AND r.name = s.name AND r.revision = s.revision
WHERE s.site = @site AND s.name > @after::text ORDER BY s.name LIMIT @max_rows;
