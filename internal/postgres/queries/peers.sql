-- name: ListMembers :many
SELECT p.*, (p.problem = '' AND coalesce(p.seen_at > now() - interval '30 seconds', false))::boolean AS reachable
FROM peers p ORDER BY name;

-- A name that is admitted again is no longer removed; its key may be another one then.
-- name: SaveMember :exec
INSERT INTO peers (name, self, public_key, number, admitted_by, admission, address, address_number, address_signature)
VALUES (@name, @self, @public_key, @number, @admitted_by, @admission, @address, @address_number, @address_signature)
ON CONFLICT (name) DO UPDATE SET
    public_key = excluded.public_key, number = excluded.number, admitted_by = excluded.admitted_by, admission = excluded.admission,
    address = excluded.address, address_number = excluded.address_number, address_signature = excluded.address_signature,
    disabled_at = CASE WHEN peers.removed_at IS NULL THEN peers.disabled_at END,
    added_at = CASE WHEN peers.removed_at IS NULL THEN peers.added_at ELSE now() END,
    era = CASE WHEN peers.removed_at IS NULL THEN peers.era ELSE 0 END,
    era_id = CASE WHEN peers.removed_at IS NULL THEN peers.era_id ELSE '' END,
    removed_at = NULL;

-- name: DisableMember :execrows
UPDATE peers SET disabled_at = coalesce(disabled_at, now()) WHERE name = @name AND NOT self AND removed_at IS NULL;

-- name: EnableMember :execrows
UPDATE peers SET disabled_at = NULL WHERE name = @name AND NOT self AND removed_at IS NULL;

-- name: RemoveMember :execrows
UPDATE peers SET removed_at = now(), seen_at = NULL, problem = '' WHERE name = @name AND NOT self AND removed_at IS NULL;


-- name: EraOfMember :one
SELECT era, era_id FROM peers WHERE name = @name;

-- name: RaiseEraOfMember :execrows
UPDATE peers SET era = @era, era_id = @era_id WHERE name = @name AND era < @era;

-- name: SawMember :exec
UPDATE peers SET problem = @problem, seen_at = CASE WHEN @problem::text = '' THEN now() ELSE seen_at END
WHERE name = @name AND NOT self AND removed_at IS NULL;

-- name: InsertInvitation :one
INSERT INTO region_invitations (id, hash, region, created_by, expires_at)
VALUES (@id, @hash, @region, @created_by, now() + make_interval(secs => @seconds::float8)) RETURNING *;

-- name: ValidInvitation :one
SELECT * FROM region_invitations WHERE hash = @hash AND expires_at > now() FOR UPDATE;

-- name: UseInvitation :exec
UPDATE region_invitations SET used_at = coalesce(used_at, now()), used_by = @used_by WHERE id = @id;

-- name: ListInvitations :many
SELECT * FROM region_invitations WHERE (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @max_rows;

-- name: DeleteInvitation :execrows
DELETE FROM region_invitations WHERE id = @id;
