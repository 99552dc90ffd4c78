-- name: GetContent :one
SELECT * FROM contents WHERE hash = sqlc.arg(hash);

-- name: CreateContent :one
INSERT INTO contents (hash, size, sha_state) VALUES (sqlc.arg(hash), sqlc.arg(size), sqlc.arg(sha_state))
ON CONFLICT (hash) DO NOTHING
RETURNING id;

-- name: PutContent :one
-- A body that is complete from the first.
INSERT INTO contents (hash, size, received, complete, sha_state)
VALUES (sqlc.arg(hash), sqlc.arg(size), sqlc.arg(size), 1, sqlc.arg(sha_state))
RETURNING id;

-- name: AddChunk :exec
INSERT INTO chunks (content_id, position, data) VALUES (sqlc.arg(content_id), sqlc.arg(position), sqlc.arg(data));

-- name: Advance :execrows
-- The conditional position makes two writers of one body impossible.
UPDATE contents SET received = sqlc.arg(received), sha_state = sqlc.arg(sha_state)
WHERE id = sqlc.arg(id) AND hash IS NOT NULL AND received = sqlc.arg(position) AND complete = 0;

-- name: Complete :execrows
UPDATE contents SET complete = 1 WHERE id = sqlc.arg(id) AND hash IS NOT NULL AND received = size;

-- name: Discard :exec
UPDATE contents SET hash = NULL, complete = 0 WHERE hash = sqlc.arg(hash) AND complete = 0;

-- name: NextChunk :one
SELECT ch.position, ch.data FROM chunks ch JOIN contents c ON c.id = ch.content_id
WHERE c.hash = sqlc.arg(hash) AND c.complete = 1 AND ch.position >= sqlc.arg(position)
ORDER BY ch.position LIMIT 1;

-- name: ForgetSetAside :exec
-- What was accepted since, or is older than that, waits for no switch.
DELETE FROM set_aside WHERE EXISTS (
    SELECT 1 FROM instances i WHERE i.name = set_aside.instance
    AND (i.high_era, i.high_revision) >= (set_aside.era, set_aside.revision));

-- name: CondemnUnreferenced :exec
-- A name's high-water hash keeps what was begun for it, which is how a download resumes.
UPDATE contents SET hash = NULL, complete = 0
WHERE hash IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM slots s WHERE s.content_id = contents.id)
  AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.high_hash = contents.hash)
  AND NOT EXISTS (SELECT 1 FROM set_aside w WHERE w.hash = contents.hash);

-- name: DeleteCondemnedChunks :exec
-- The first is taken whatever its size, so that each step comes further.
DELETE FROM chunks WHERE rowid IN (
    SELECT some.id FROM (
        SELECT few.id, sum(few.size) OVER (ORDER BY few.id) - few.size AS ahead FROM (
            SELECT ch.rowid AS id, length(ch.data) AS size FROM contents c JOIN chunks ch ON ch.content_id = c.id
            WHERE c.hash IS NULL LIMIT sqlc.arg(most)) few) some
    WHERE some.ahead < CAST(sqlc.arg(bytes) AS INTEGER));

-- name: CountCondemned :one
SELECT count(*) FROM contents WHERE hash IS NULL;

-- name: DeleteCondemned :exec
DELETE FROM contents WHERE hash IS NULL
  AND NOT EXISTS (SELECT 1 FROM chunks ch WHERE ch.content_id = contents.id);

-- name: PutNewContent :execlastid
-- PutContent of a body that the file is known to lack: RETURNING costs as much again.
INSERT INTO contents (hash, size, received, complete, sha_state)
VALUES (sqlc.arg(hash), sqlc.arg(size), sqlc.arg(size), 1, sqlc.arg(sha_state));

-- name: ContentsOf :many
-- Those of a JSON array of hashes that there are, complete or not.
SELECT id, hash, size, complete FROM contents
WHERE hash IN (SELECT value FROM json_each(CAST(sqlc.arg(hashes) AS TEXT)));

-- name: ReuseContent :execrows
-- CondemnUnreferenced of one small body and PutNewContent in its place, where nothing of the
-- trees has to move; UpdateChunk follows.
UPDATE contents SET hash = sqlc.arg(hash), size = sqlc.arg(size), received = sqlc.arg(size), sha_state = sqlc.arg(sha_state)
WHERE contents.id = sqlc.arg(id) AND contents.hash = sqlc.arg(was) AND contents.complete = 1
  AND NOT EXISTS (SELECT 1 FROM chunks ch WHERE ch.content_id = contents.id AND ch.position > 0)
  AND NOT EXISTS (SELECT 1 FROM slots s WHERE s.content_id = contents.id)
  AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.high_hash = contents.hash)
  AND NOT EXISTS (SELECT 1 FROM set_aside w WHERE w.hash = contents.hash);

-- name: UpdateChunk :execrows
UPDATE chunks SET data = sqlc.arg(data) WHERE content_id = sqlc.arg(content_id) AND position = 0;
