-- name: GetBody :one
SELECT id, hash, size FROM bodies WHERE hash = @hash;

-- Holds a body against the collection until the transaction ends, and says that it is used;
-- not each time, so that many writers of the same bytes do not wait for one another.
-- name: UseBody :one
WITH known AS (SELECT b.id, b.used_at FROM bodies b WHERE b.hash = @hash FOR KEY SHARE),
     used AS (UPDATE bodies b SET used_at = now() FROM known k WHERE b.id = k.id AND k.used_at < now() - interval '1 hour')
SELECT known.id FROM known;

-- name: HoldBodies :exec
SELECT hold_bodies(@hashes::bytea[]);

-- name: InsertBody :one
INSERT INTO bodies (size) VALUES (0) RETURNING id;

-- name: InsertWholeBody :one
INSERT INTO bodies (hash, size) VALUES (@hash, @size) RETURNING id;

-- name: InsertChunk :exec
INSERT INTO body_chunks (body_id, idx, data) VALUES (@body_id, @idx, @data);

-- name: FinishBody :execrows
UPDATE bodies SET hash = @hash, size = @size, used_at = now()
WHERE bodies.id = @id AND NOT EXISTS (SELECT 1 FROM bodies b WHERE b.hash = @hash);

-- name: DropBody :exec
DELETE FROM bodies WHERE id = @id;

-- name: LockBodyHash :exec
SELECT pg_advisory_xact_lock(@key::bigint);

-- name: ReadChunk :one
SELECT data FROM body_chunks WHERE body_id = @body_id AND idx = @idx;

-- name: AllowBody :exec
INSERT INTO body_projects (project, hash) VALUES (@project, @hash) ON CONFLICT DO NOTHING;

-- name: BodyAllowed :one
SELECT b.size FROM bodies b JOIN body_projects p ON p.hash = b.hash
WHERE b.hash = @hash AND p.project = @project;

-- name: InsertUpload :exec
INSERT INTO uploads (id, project, body_id, hash_state) VALUES (@id, @project, @body_id, @hash_state);

-- name: GetUpload :one
SELECT * FROM uploads WHERE id = @id;

-- name: LockUpload :one
SELECT * FROM uploads WHERE id = @id FOR UPDATE;

-- name: AdvanceUpload :exec
UPDATE uploads SET received = @received, hash_state = @hash_state, updated_at = now() WHERE id = @id;

-- name: DropUpload :exec
DELETE FROM uploads WHERE id = @id;

-- An upload of which the region is the only reader: a body on its way from a peer.
-- name: InsertOwnUpload :execrows
INSERT INTO uploads (id, project, body_id, hash_state) VALUES (@id, '', @body_id, @hash_state) ON CONFLICT DO NOTHING;
