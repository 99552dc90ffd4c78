-- name: ListInstances :many
SELECT * FROM instances ORDER BY name;

-- name: GetInstance :one
SELECT * FROM instances WHERE name = sqlc.arg(name);

-- name: ListSlots :many
SELECT * FROM slots ORDER BY instance, slot;

-- name: GetSlots :many
SELECT * FROM slots WHERE instance = sqlc.arg(instance) ORDER BY slot;

-- name: RaiseHighWater :execrows
-- Never lowers; the same number is taken again only with the same content.
INSERT INTO instances (name, high_era, high_revision, high_action, high_hash, high_run_hash, high_enabled, epoch)
VALUES (sqlc.arg(name), sqlc.arg(era), sqlc.arg(revision), sqlc.arg(action), sqlc.arg(hash),
        sqlc.arg(run_hash), sqlc.arg(enabled), sqlc.arg(epoch))
ON CONFLICT (name) DO UPDATE SET
    high_era = excluded.high_era, high_revision = excluded.high_revision,
    high_action = excluded.high_action, high_hash = excluded.high_hash,
    high_run_hash = excluded.high_run_hash, high_enabled = excluded.high_enabled,
    epoch = max(instances.epoch, excluded.epoch)
WHERE (excluded.high_era, excluded.high_revision) > (instances.high_era, instances.high_revision)
   OR ((excluded.high_era, excluded.high_revision) = (instances.high_era, instances.high_revision)
       AND excluded.high_hash = instances.high_hash AND excluded.high_run_hash = instances.high_run_hash
       AND excluded.high_enabled = instances.high_enabled);

-- name: SetAside :execrows
-- Only what is newer than all that was accepted, and than what was set aside before.
INSERT INTO set_aside (instance, era, revision, hash)
SELECT CAST(sqlc.arg(instance) AS TEXT), CAST(sqlc.arg(era) AS INTEGER), CAST(sqlc.arg(revision) AS INTEGER), CAST(sqlc.arg(hash) AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.name = sqlc.arg(instance)
    AND (i.high_era, i.high_revision) > (CAST(sqlc.arg(era) AS INTEGER), CAST(sqlc.arg(revision) AS INTEGER)))
ON CONFLICT (instance) DO UPDATE SET era = excluded.era, revision = excluded.revision, hash = excluded.hash
WHERE (excluded.era, excluded.revision) >= (set_aside.era, set_aside.revision);

-- name: PutSlot :execrows
-- Only the newest accepted revision may take a slot.
INSERT OR REPLACE INTO slots (instance, slot, era, revision, action, kind, hash, size, run_hash, run, enabled, epoch, content_id)
SELECT i.name, CAST(sqlc.arg(slot) AS TEXT), CAST(sqlc.arg(era) AS INTEGER), CAST(sqlc.arg(revision) AS INTEGER),
       CAST(sqlc.arg(action) AS TEXT), CAST(sqlc.arg(kind) AS TEXT), CAST(sqlc.arg(hash) AS TEXT),
       CAST(sqlc.arg(size) AS INTEGER), CAST(sqlc.arg(run_hash) AS TEXT), CAST(sqlc.arg(run) AS BLOB),
       CAST(sqlc.arg(enabled) AS INTEGER), CAST(sqlc.arg(epoch) AS INTEGER), sqlc.narg(content_id)
FROM instances i
WHERE i.name = sqlc.arg(instance)
  AND i.high_era = CAST(sqlc.arg(era) AS INTEGER) AND i.high_revision = CAST(sqlc.arg(revision) AS INTEGER);

-- name: AddSlot :exec
-- PutSlot for who has raised the high-water mark in the same transaction, of a free slot:
-- where nothing can be replaced, SQLite need not keep what it would take back. The columns
-- are in the order of PutSlot's parameters.
INSERT INTO slots (slot, era, revision, action, kind, hash, size, run_hash, run, enabled, epoch, content_id, instance)
VALUES (sqlc.arg(slot), sqlc.arg(era), sqlc.arg(revision), sqlc.arg(action), sqlc.arg(kind), sqlc.arg(hash),
        sqlc.arg(size), sqlc.arg(run_hash), sqlc.arg(run), sqlc.arg(enabled), sqlc.arg(epoch), sqlc.narg(content_id),
        sqlc.arg(instance));

-- name: RenumberCurrent :execrows
-- Same content under a higher number: nothing but the number changes.
UPDATE slots SET era = sqlc.arg(era), revision = sqlc.arg(revision), action = sqlc.arg(action),
    enabled = sqlc.arg(enabled), epoch = sqlc.arg(epoch)
WHERE instance = sqlc.arg(instance) AND slot = 'current'
  AND hash = sqlc.arg(hash) AND run_hash = sqlc.arg(run_hash)
  AND (era, revision) < (CAST(sqlc.arg(era) AS INTEGER), CAST(sqlc.arg(revision) AS INTEGER));

-- name: DropSlot :exec
DELETE FROM slots WHERE instance = sqlc.arg(instance) AND slot = sqlc.arg(slot);

-- name: MoveSlot :execrows
UPDATE slots SET slot = sqlc.arg(into_slot) WHERE instance = sqlc.arg(instance) AND slot = sqlc.arg(from_slot);

-- name: GetLogOffset :one
SELECT position FROM log_offsets WHERE instance = sqlc.arg(instance);

-- name: SetLogOffset :exec
INSERT INTO log_offsets (instance, position) VALUES (sqlc.arg(instance), sqlc.arg(position))
ON CONFLICT (instance) DO UPDATE SET position = excluded.position;

-- name: InstancesOf :many
-- Those of a JSON array of names that there are.
SELECT * FROM instances WHERE name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)));

-- name: SlotsOf :many
SELECT * FROM slots WHERE instance IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT))) ORDER BY instance, slot;

-- name: ListUneasy :many
-- Names with a slot that a crash may have left half switched, or that needs a process, and
-- those of a JSON array of names that there are.
SELECT instance FROM slots WHERE slot = 'staged' OR (slot = 'current' AND enabled = 1 AND run_hash <> '')
UNION SELECT name FROM instances WHERE name IN (SELECT value FROM json_each(CAST(sqlc.arg(names) AS TEXT)))
ORDER BY 1;

-- name: ListHighWaters :many
SELECT name, high_era, high_revision FROM instances ORDER BY name;

-- name: ListCurrents :many
SELECT instance, era, revision, action, kind, hash, size, run_hash, enabled FROM slots WHERE slot = 'current' ORDER BY instance;

-- name: HoldBack :exec
-- Never lowers.
INSERT INTO held_back (instance, era, revision) VALUES (sqlc.arg(instance), sqlc.arg(era), sqlc.arg(revision))
ON CONFLICT (instance) DO UPDATE SET era = excluded.era, revision = excluded.revision
WHERE (excluded.era, excluded.revision) > (held_back.era, held_back.revision);

-- name: LetGo :exec
DELETE FROM held_back WHERE instance = sqlc.arg(instance);

-- name: ForgetHeldBack :exec
-- What has come by now, or is not held any more.
DELETE FROM held_back WHERE NOT EXISTS (SELECT 1 FROM slots s WHERE s.instance = held_back.instance AND s.slot = 'current'
    AND (s.era, s.revision) < (held_back.era, held_back.revision));

-- name: ListHeldBack :many
SELECT b.* FROM held_back b JOIN slots s ON s.instance = b.instance AND s.slot = 'current' AND (s.era, s.revision) < (b.era, b.revision);
