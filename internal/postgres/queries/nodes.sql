-- name: UpsertNode :execrows
INSERT INTO nodes (name, site, role) VALUES (@name, @site, @role)
ON CONFLICT (name) DO UPDATE SET role = excluded.role, removed_at = NULL, site = excluded.site
WHERE nodes.site = excluded.site OR nodes.removed_at IS NOT NULL;

-- name: RemoveNodesExcept :exec
UPDATE nodes SET removed_at = now(), role = 'worker'
WHERE site = @site AND removed_at IS NULL AND NOT (name = ANY(@keep::text[]));

-- name: GetNode :one
SELECT * FROM nodes WHERE name = @name;

-- name: ListNodes :many
SELECT n.*, coalesce(l.epoch, 0)::bigint AS epoch,
       (SELECT count(*) FROM node_held h WHERE h.node = n.name AND NOT h.deleted) AS instances,
       (SELECT count(*) FROM owed o WHERE o.node = n.name) AS owed,
       (SELECT count(*) FROM waiting_orphans x WHERE x.node = n.name) AS orphans,
       c.id AS connection, c.state AS connection_state, c.in_flight, c.registered_at, c.active_at
FROM nodes n LEFT JOIN site_leases l ON l.site = n.site
    -- At most one lives: a node registers under its own name only.
    LEFT JOIN connections c ON c.node = n.name AND c.provider = n.name AND c.ended_at IS NULL
WHERE n.removed_at IS NULL AND n.name > @after::text AND (@site::text = '' OR n.site = @site)
  AND (@name::text = '' OR n.name = @name)
  AND (@project::text = '' OR EXISTS (SELECT FROM objects s WHERE s.kind = 'site' AND s.scope = '' AND s.name = n.site AND s.project = @project))
ORDER BY n.name LIMIT @max_rows;

-- The nodes of a site that hold instances.
-- name: PairNodes :many
SELECT * FROM nodes WHERE site = @site AND removed_at IS NULL AND role <> 'worker' ORDER BY name;

-- Whether no other key was ever enrolled under the name, which has not voted then.
-- name: FirstEnrolment :one
SELECT (enrolled_at IS NULL OR coalesce(signing_key = @signing_key AND first_signing_key = @signing_key, false))::boolean AS first
FROM nodes WHERE name = @name FOR UPDATE;

-- name: EnrolNode :execrows
UPDATE nodes SET signing_key = @signing_key, sealing_key = @sealing_key, enrolled_at = now(), revoked_at = NULL,
    first_signing_key = CASE WHEN enrolled_at IS NULL THEN @signing_key ELSE first_signing_key END,
    rotation_asked_at = NULL, next_signing_key = NULL, next_sealing_key = NULL, rotated_at = NULL
WHERE name = @name AND site = @site AND removed_at IS NULL;

-- name: NodeSeen :exec
UPDATE nodes SET seen_at = now() WHERE name = @name;

-- name: NodeStarting :exec
UPDATE nodes SET start_id = @start_id, starting_at = now()
WHERE name = @name AND start_id IS DISTINCT FROM @start_id;

-- name: NodeStarted :exec
UPDATE nodes SET started_at = now(), start_id = @start_id, seen_at = now() WHERE name = @name;

-- name: GetLease :one
SELECT * FROM site_leases WHERE site = @site AND NOT dropped;

-- name: LockLease :one
SELECT * FROM site_leases WHERE site = @site AND NOT dropped FOR SHARE;

-- name: GrantLease :execrows
INSERT INTO site_leases (site, holder, epoch, promised) VALUES (@site, @holder, 1, 1)
ON CONFLICT (site) DO UPDATE SET holder = excluded.holder, epoch = greatest(site_leases.promised, site_leases.epoch) + 1,
    promised = greatest(site_leases.promised, site_leases.epoch) + 1, promised_to = '', counter = 0, ttl = '0',
    released = false, target = '', dropped = false, granted_at = now()
WHERE site_leases.holder <> excluded.holder OR site_leases.dropped;

-- name: DropLease :exec
UPDATE site_leases SET dropped = true WHERE site = @site;

-- name: UpsertHeld :exec
INSERT INTO node_held (site, name, node, era, revision, hash, enabled, deleted, running, high_era, high_revision, reason, exits, last_exit)
SELECT @site, k.name, @node, k.era, k.revision, k.hash, k.enabled, k.deleted, k.running, k.high_era, k.high_revision, k.reason,
       k.exits, k.last_exit
FROM (SELECT unnest(@names::text[]) AS name, unnest(@eras::bigint[]) AS era, unnest(@revisions::bigint[]) AS revision,
             unnest(@hashes::bytea[]) AS hash, unnest(@enabled::boolean[]) AS enabled, unnest(@deleted::boolean[]) AS deleted,
             unnest(@running::boolean[]) AS running, unnest(@high_eras::bigint[]) AS high_era,
             unnest(@high_revisions::bigint[]) AS high_revision, unnest(@reasons::text[]) AS reason,
             unnest(@exits::integer[]) AS exits, unnest(@last_exits::text[]) AS last_exit) k
ON CONFLICT (site, name, node) DO UPDATE SET
    era = excluded.era, revision = excluded.revision, hash = excluded.hash, enabled = excluded.enabled,
    deleted = excluded.deleted, running = excluded.running, high_era = excluded.high_era,
    high_revision = excluded.high_revision, reason = excluded.reason, exits = excluded.exits, last_exit = excluded.last_exit,
    reported_at = now()
WHERE (node_held.era, node_held.revision) <= (excluded.era, excluded.revision)
   OR node_held.reported_at < sqlc.narg(starting_at)::timestamptz;

-- name: ForgetHeldBeforeStart :exec
DELETE FROM node_held h USING nodes n
WHERE h.node = @node AND n.name = h.node AND n.start_id = @start_id AND h.reported_at < n.starting_at;

-- name: InsertJoinToken :one
INSERT INTO join_tokens (id, hash, site, node, created_by, expires_at)
VALUES (@id, @hash, @site, @node, @created_by, now() + make_interval(secs => @seconds::float8)) RETURNING *;

-- name: UseJoinToken :one
UPDATE join_tokens SET used_at = now()
WHERE hash = @hash AND used_at IS NULL AND expires_at > now()
RETURNING *;

-- What an enrolment said whose answer was lost: the node comes once more, with the same token and keys. Nothing
-- else is as it was then: not another key since, nor a revoked one.
-- name: EnrolledBy :one
SELECT coalesce(n.first_signing_key = n.signing_key, false)::boolean AS first
FROM join_tokens t JOIN nodes n ON n.name = t.node AND n.site = t.site AND n.enrolled_at = t.used_at
WHERE t.hash = @hash AND t.expires_at > now() AND t.node = @node AND t.site = @site
  AND n.signing_key = @signing_key AND n.sealing_key = @sealing_key AND n.revoked_at IS NULL AND n.removed_at IS NULL;

-- name: ListJoinTokens :many
SELECT * FROM join_tokens WHERE (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC LIMIT @max_rows;

-- name: DeleteJoinToken :execrows
DELETE FROM join_tokens WHERE id = @id;

-- name: InsertAPIToken :one
INSERT INTO api_tokens (id, hash, role, project, note, created_by, expires_at, module_namespaces)
VALUES (@id, @hash, @role, @project, @note, @created_by, sqlc.narg(expires_at), @module_namespaces::text[])
ON CONFLICT (hash) DO UPDATE SET note = excluded.note RETURNING *;

-- name: APITokensByHash :many
SELECT * FROM api_tokens WHERE hash = ANY(@hashes::bytea[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: ListAPITokens :many
SELECT * FROM api_tokens
WHERE (created_at, id) < (@before_at::timestamptz, @before_id::text) AND (@project::text = '' OR project = @project)
ORDER BY created_at DESC, id DESC LIMIT @max_rows;

-- name: RevokeAPIToken :execrows
UPDATE api_tokens SET revoked_at = now() WHERE id = @id AND revoked_at IS NULL;

-- Says whether a node holds an instance, or is being given it.
-- name: HoldsInstance :one
SELECT (EXISTS (SELECT 1 FROM node_held h JOIN subjects s ON s.site = h.site AND s.name = h.name
                WHERE h.site = @site AND h.name = @name AND h.node = @node AND h.high_revision > 0 AND s.last_revision > 0)
     OR EXISTS (SELECT 1 FROM delivery_nodes t JOIN deliveries d ON d.id = t.delivery_id
                WHERE d.site = @site AND d.name = @name AND t.node = @node AND d.state = 'open'))::boolean AS holds;

-- name: LastLog :one
SELECT log_offset, length(data)::bigint AS size FROM instance_logs
WHERE site = @site AND name = @name AND node = @node ORDER BY log_offset DESC LIMIT 1;

-- The newest piece that has what a node counts as this offset.
-- name: LogWith :one
SELECT log_offset, node_offset, data FROM instance_logs
WHERE site = @site AND name = @name AND node = @node
  AND node_offset <= @at_offset::bigint AND node_offset + length(data) > @at_offset::bigint
ORDER BY log_offset DESC LIMIT 1;

-- name: InsertLog :exec
INSERT INTO instance_logs (site, name, node, log_offset, node_offset, data) VALUES (@site, @name, @node, @log_offset, @node_offset, @data);

-- name: TrimLogs :exec
DELETE FROM instance_logs l
USING (SELECT m.log_offset, sum(length(m.data)) OVER (ORDER BY m.log_offset DESC) AS newer
       FROM instance_logs m WHERE m.site = @site AND m.name = @name AND m.node = @node) k
WHERE l.site = @site AND l.name = @name AND l.node = @node AND l.log_offset = k.log_offset AND k.newer > @keep_bytes::bigint;

-- name: ReadLogs :many
SELECT node, log_offset, data FROM instance_logs
WHERE site = @site AND name = @name AND (@node::text = '' OR node = @node) AND log_offset >= @from_offset
ORDER BY node, log_offset LIMIT @max_rows;

-- name: HeldByNode :many
SELECT * FROM node_held WHERE node = @node AND name = ANY(@names::text[]);

-- name: ExpectedOfNode :many
SELECT w.name FROM under_way w WHERE w.site = @site AND w.name = ANY(@names::text[])
UNION SELECT o.name FROM owed o WHERE o.node = @node AND o.name = ANY(@names::text[]);

-- Revoking twice changes nothing more.
-- name: RevokeNode :execrows
UPDATE nodes SET revoked_at = coalesce(revoked_at, now()), signing_key = NULL, sealing_key = NULL,
    rotation_asked_at = NULL, next_signing_key = NULL, next_sealing_key = NULL
WHERE name = @name AND removed_at IS NULL AND enrolled_at IS NOT NULL;

-- What was sealed to a node, and what would let it enrol once more.
-- name: VoidFetchTokensOfNode :exec
DELETE FROM fetch_tokens WHERE node = @node::text;

-- name: VoidReconcilesOfNode :exec
UPDATE reconciles SET expires_at = now() WHERE node = @node AND state = 'running';

-- name: VoidJoinTokensOfNode :exec
DELETE FROM join_tokens WHERE node = @node AND used_at IS NULL;

-- name: LiveConnectionsOfNode :many
SELECT id FROM connections WHERE node = @node::text AND ended_at IS NULL;

-- Asking again takes back a new key that was offered and never used: its node offers once more.
-- name: AskRotation :execrows
UPDATE nodes SET rotation_asked_at = now(), next_signing_key = NULL, next_sealing_key = NULL
WHERE name = @name AND removed_at IS NULL AND revoked_at IS NULL AND signing_key IS NOT NULL;

-- The first offer stays; the same one again is the same.
-- name: OfferKey :execrows
UPDATE nodes SET next_signing_key = @next_signing_key, next_sealing_key = @next_sealing_key
WHERE name = @name AND removed_at IS NULL AND revoked_at IS NULL AND signing_key = @signer
  AND rotation_asked_at IS NOT NULL AND signing_key <> @next_signing_key AND sealing_key <> @next_sealing_key
  AND (next_signing_key IS NULL OR next_signing_key = @next_signing_key AND next_sealing_key = @next_sealing_key);

-- name: UseNextKey :execrows
UPDATE nodes SET signing_key = next_signing_key, sealing_key = next_sealing_key, rotated_at = now(),
    next_signing_key = NULL, next_sealing_key = NULL, rotation_asked_at = NULL
WHERE name = @name AND removed_at IS NULL AND revoked_at IS NULL AND next_signing_key = @key;
