-- name: GetMeta :one
SELECT region, role, epoch, holder, start_id, resets FROM meta WHERE id = 1;

-- name: AdoptEpoch :execrows
-- An epoch only rises.
UPDATE meta SET role = sqlc.arg(role), epoch = sqlc.arg(epoch), holder = sqlc.arg(holder)
WHERE id = 1 AND (epoch < sqlc.arg(epoch) OR (role = '' AND epoch = sqlc.arg(epoch)));

-- name: ResetMeta :execrows
-- Once per number. Only far epochs are lowered.
UPDATE meta SET reset_from = epoch,
    epoch = CASE WHEN epoch > CAST(sqlc.arg(far) AS INTEGER) THEN CAST(sqlc.arg(epoch) AS INTEGER) ELSE epoch END,
    resets = sqlc.arg(number)
WHERE id = 1 AND resets < sqlc.arg(number);

-- name: ResetInstances :exec
UPDATE instances SET epoch = sqlc.arg(epoch) WHERE epoch > CAST(sqlc.arg(far) AS INTEGER);

-- name: ResetSlots :exec
UPDATE slots SET epoch = sqlc.arg(epoch) WHERE epoch > CAST(sqlc.arg(far) AS INTEGER);

-- name: GetResetFrom :one
SELECT reset_from FROM meta WHERE id = 1;

-- name: SetRegion :exec
UPDATE meta SET region = sqlc.arg(region) WHERE id = 1;

-- name: SetStartID :exec
UPDATE meta SET start_id = sqlc.arg(start_id) WHERE id = 1;

-- name: CountHolding :one
-- One when the node still has this epoch and role, else none.
SELECT COUNT(*) FROM meta WHERE id = 1 AND epoch = sqlc.arg(epoch) AND role = sqlc.arg(role);

-- name: GetExpectedSet :one
SELECT * FROM expected_set WHERE id = 1;

-- name: SeeExpectedSet :exec
UPDATE expected_set SET seen_era = @era, seen_number = @number
WHERE id = 1 AND (seen_era < @era OR seen_era = @era AND seen_number < @number);

-- name: CleanExpectedSet :exec
UPDATE expected_set SET clean_era = @era, clean_number = @number WHERE id = 1;

-- name: GetUsableFrom :one
SELECT from_schema FROM usable;

-- name: ForgetUsedCommands :exec
DELETE FROM used_commands WHERE expires_at <= sqlc.arg(now);

-- name: UseCommand :execrows
INSERT INTO used_commands (signature, expires_at) VALUES (sqlc.arg(signature), sqlc.arg(expires_at))
ON CONFLICT (signature) DO NOTHING;
