-- The secret that is there already stays.
-- name: ProposeSecret :exec
INSERT INTO region_secrets (name, secret) VALUES (@name, @secret) ON CONFLICT (name) DO NOTHING;

-- name: GetSecret :one
SELECT secret FROM region_secrets WHERE name = @name;
