-- The key that is there already stays.
-- name: FirstSigningKey :exec
INSERT INTO signing_keys (number, seed, public)
SELECT 1, @seed, @public WHERE NOT EXISTS (SELECT FROM signing_keys)
ON CONFLICT DO NOTHING;

-- name: SigningKey :one
SELECT seed FROM signing_keys WHERE use_at <= now() ORDER BY number DESC LIMIT 1;

-- name: VerifyingKeys :many
SELECT public FROM signing_keys WHERE retired_at IS NULL OR retired_at > now() ORDER BY number DESC;

-- name: LockSigningKeys :many
SELECT number, (use_at > now())::bool AS waiting FROM signing_keys ORDER BY number DESC FOR UPDATE;

-- name: NextSigningKey :one
INSERT INTO signing_keys (number, seed, public, use_at)
VALUES (@number, @seed, @public, now() + make_interval(secs => @seconds::float8))
RETURNING use_at;

-- name: RetireSigningKeys :exec
UPDATE signing_keys SET retired_at = now() + make_interval(secs => @seconds::float8)
WHERE number < @number AND (retired_at IS NULL OR retired_at > now() + make_interval(secs => @seconds::float8));

-- name: ForgetSigningKeys :exec
DELETE FROM signing_keys WHERE retired_at < now();
