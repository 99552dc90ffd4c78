-- Rows of many connections are locked in the order of their ids before they are changed, so that
-- two statements that change some of the same never wait for each other in a circle.

-- What the same providers had before.
-- name: LiveOfProviders :many
SELECT c.id, c.identity, c.provider
FROM (SELECT unnest(@identities::text[]) AS identity, unnest(@providers::text[]) AS provider) u
JOIN LATERAL (SELECT x.id, x.identity, x.provider FROM connections x
              WHERE x.identity = u.identity AND x.provider = u.provider AND x.ended_at IS NULL OFFSET 0) c ON true;

-- Of those who share a module namespace a few are enough: more than a caller may set aside.
-- name: LiveOfNamespaces :many
SELECT c.id, c.identity, c.provider, c.module_namespace, c.group_id
FROM (SELECT unnest(@namespaces::text[]) AS namespace) u
JOIN LATERAL (SELECT x.* FROM connections x
              WHERE x.module_namespace = u.namespace AND x.module_namespace <> '' AND x.ended_at IS NULL LIMIT @most::integer) c ON true;

-- name: ReplaceConnections :many
WITH held AS (
    SELECT c.id FROM connections c WHERE c.id = ANY(@ids::text[]) AND c.ended_at IS NULL AND c.state = ANY(@states::text[])
    ORDER BY c.id FOR NO KEY UPDATE)
UPDATE connections c SET state = 'Disconnected', reason = @reason, ended_at = now()
FROM held WHERE c.id = held.id
RETURNING c.id, c.identity, c.provider, c.server;

-- name: InsertConnections :exec
INSERT INTO connections (id, state, identity, node, provider, module_namespace, group_id, executor, executor_tls, executor_server_name, protocol, server, signed_by, caller)
SELECT u.id, 'Registered', u.identity, nullif(u.node, ''), u.provider, u.module_namespace, u.group_id, u.executor, u.executor_tls,
       u.executor_server_name, u.protocol, @server, decode(nullif(u.signed_by, ''), 'base64'), nullif(u.caller, '')::inet
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@identities::text[]) AS identity, unnest(@nodes::text[]) AS node,
             unnest(@providers::text[]) AS provider, unnest(@namespaces::text[]) AS module_namespace,
             unnest(@groups::text[]) AS group_id, unnest(@executors::text[]) AS executor, unnest(@executor_tls::boolean[]) AS executor_tls,
             unnest(@executor_server_names::text[]) AS executor_server_name, unnest(@protocols::integer[]) AS protocol, unnest(@signed_by::text[]) AS signed_by,
             unnest(@callers::text[]) AS caller) u;

-- name: InsertModules :exec
INSERT INTO modules (connection, module_namespace, name, description, input_schema, output_schema)
SELECT unnest(@connections::text[]), unnest(@namespaces::text[]), unnest(@names::text[]), unnest(@descriptions::text[]),
       unnest(@input_schemas::text[]), unnest(@output_schemas::text[]);

-- name: ModulesOfConnection :many
SELECT * FROM modules WHERE connection = @connection ORDER BY name;

-- name: OpenConnections :many
WITH held AS (
    SELECT c.id FROM (SELECT unnest(@ids::text[]) AS id, unnest(@identities::text[]) AS identity) u
    JOIN connections c ON c.id = u.id
    WHERE c.identity = u.identity AND c.ended_at IS NULL AND c.state = ANY(@states::text[])
    ORDER BY c.id FOR NO KEY UPDATE OF c)
UPDATE connections c SET state = 'Active', active_at = now(), heartbeat_at = now(), server = @server
FROM held WHERE c.id = held.id
RETURNING c.*;

-- name: GetConnection :one
SELECT * FROM connections WHERE id = @id;

-- Only the server that holds a connection moves it by what it sees.
-- name: EndConnections :many
WITH held AS (
    SELECT c.id FROM connections c
    WHERE c.id = ANY(@ids::text[]) AND c.server = @server AND c.ended_at IS NULL AND c.state = ANY(@states::text[])
    ORDER BY c.id FOR NO KEY UPDATE)
UPDATE connections c SET state = 'Disconnected', reason = @reason, ended_at = now()
FROM held WHERE c.id = held.id
RETURNING c.id;

-- name: AckDrains :exec
WITH held AS (
    SELECT c.id, u.in_flight FROM (SELECT unnest(@ids::text[]) AS id, unnest(@in_flight::integer[]) AS in_flight) u
    JOIN connections c ON c.id = u.id
    WHERE c.server = @server AND c.ended_at IS NULL AND c.state = ANY(@states::text[])
    ORDER BY c.id FOR NO KEY UPDATE OF c)
UPDATE connections c SET state = 'Draining', drain_acked_at = now(), in_flight = held.in_flight
FROM held WHERE c.id = held.id;

-- name: DeregisterConnection :one
UPDATE connections SET state = 'Disconnected', reason = @reason, ended_at = now()
WHERE id = @id AND identity = @identity AND ended_at IS NULL AND state = ANY(@states::text[])
RETURNING node;

-- Heartbeats wait for nobody: a row that somebody changes just now is written the next time.
-- name: RecordHeartbeats :exec
WITH heard AS (
    SELECT c.id, u.age, u.in_flight
    FROM (SELECT unnest(@ids::text[]) AS id, unnest(@ages::float8[]) AS age, unnest(@in_flight::integer[]) AS in_flight) u
    JOIN LATERAL (SELECT x.id FROM connections x WHERE x.id = u.id AND x.server = @server AND x.ended_at IS NULL
                  FOR NO KEY UPDATE SKIP LOCKED) c ON true)
UPDATE connections c SET heartbeat_at = now() - make_interval(secs => heard.age), in_flight = heard.in_flight
FROM heard WHERE c.id = heard.id;

-- What a server holds, and what others want of it. A key or token that was taken back, or a
-- node that has another key since, ends what it opened.
-- name: HeldConnections :many
SELECT c.id, c.state, c.drain_reason, (c.drain_asked_at IS NOT NULL)::boolean AS drain_asked,
       coalesce(extract(epoch FROM c.drain_deadline - now()), 0)::float8 AS drain_left,
       extract(epoch FROM now() - c.registered_at)::float8 AS age,
       CASE WHEN c.node IS NOT NULL
            THEN NOT EXISTS (SELECT 1 FROM nodes n WHERE n.name = c.node AND n.revoked_at IS NULL AND n.removed_at IS NULL
                             AND n.signing_key = c.signed_by OFFSET 0)
            ELSE NOT EXISTS (SELECT 1 FROM api_tokens t WHERE t.id = substr(c.identity, 7) AND t.revoked_at IS NULL
                             AND (t.expires_at IS NULL OR t.expires_at > now()) OFFSET 0)
       END::boolean AS revoked
FROM connections c WHERE c.server = @server AND c.ended_at IS NULL;

-- name: AskDrain :one
UPDATE connections SET
    drain_reason = CASE WHEN drain_asked_at IS NULL THEN @reason ELSE drain_reason END,
    drain_asked_at = coalesce(drain_asked_at, now()),
    drain_deadline = least(drain_deadline, now() + make_interval(secs => @seconds::float8))
WHERE id = @id AND ended_at IS NULL AND state IN ('Active', 'Draining')
RETURNING *;

-- name: TellLink :exec
SELECT pg_notify('holdfast_link', @payload::text);

-- name: ListConnections :many
SELECT * FROM connections
WHERE ended_at IS NULL AND id > @after::text AND (@id::text = '' OR id = @id)
ORDER BY id LIMIT @max_rows;

-- name: ModulesOf :many
SELECT connection, name FROM modules WHERE connection = ANY(@connections::text[]) ORDER BY connection, name;

-- One that was silent for too long begins anew: meanwhile nodes had nobody to speak to.
-- name: LinkServerSeen :exec
INSERT INTO link_servers AS l (id, silence_seconds) VALUES (@id, @silence_seconds)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), silence_seconds = excluded.silence_seconds,
    since = CASE WHEN l.seen_at > now() - make_interval(secs => excluded.silence_seconds) THEN least(l.since, now()) ELSE now() END;

-- name: ForgetLinkServer :exec
DELETE FROM link_servers WHERE id = @id;

-- name: ForgetLapsedServer :execrows
DELETE FROM link_servers WHERE id = @id AND seen_at = @seen_at;

-- name: LinkServerIsKnown :one
SELECT EXISTS (SELECT 1 FROM link_servers WHERE id = @id);

-- Those that said so, and those of which there are only connections left.
-- name: LinkServers :many
SELECT s.id, s.seen_at::timestamptz AS seen_at, true AS known FROM link_servers s
UNION ALL
SELECT DISTINCT c.server, 'epoch'::timestamptz, false FROM connections c
WHERE c.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM link_servers s WHERE s.id = c.server OFFSET 0);

-- name: EndServer :many
WITH mine AS MATERIALIZED (SELECT c.id FROM connections c WHERE c.server = @server AND c.ended_at IS NULL),
held AS (
    SELECT c.id FROM (SELECT id FROM mine ORDER BY id) m
    JOIN LATERAL (SELECT x.id FROM connections x
                  WHERE x.id = m.id AND x.server = @server AND x.ended_at IS NULL AND x.state = ANY(@states::text[])
                  FOR NO KEY UPDATE) c ON true)
UPDATE connections c SET state = 'Disconnected', reason = @reason, ended_at = now()
FROM held WHERE c.id = held.id
RETURNING c.id, coalesce(c.node, '')::text AS node;

-- name: NodeKeys :many
SELECT name, signing_key, next_signing_key FROM nodes
WHERE name = ANY(@names::text[]) AND revoked_at IS NULL AND removed_at IS NULL AND signing_key IS NOT NULL;

-- name: InsertRefusals :exec
INSERT INTO refusals (door, identity, reason, what, refused_by, times, at)
SELECT unnest(@doors::text[]), unnest(@identities::text[]), unnest(@reasons::text[]), unnest(@whats::text[]), unnest(@refused_bys::text[]),
    unnest(@times::bigint[]), now() - make_interval(secs => unnest(@ages::float8[]));

-- name: ListRefusals :many
SELECT id, at, door, identity, reason, what, times, refused_by FROM refusals
WHERE id < @before AND (@identity::text = '' OR identity = @identity OR refused_by <> '' AND 'node:' || refused_by = @identity) ORDER BY id DESC LIMIT @max_rows;

-- name: CollectRefusals :execrows
DELETE FROM refusals WHERE id = ANY(ARRAY(
    SELECT r.id FROM refusals r WHERE r.at < now() - make_interval(secs => @older_seconds::float8)
    ORDER BY r.at LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: CollectConnections :execrows
DELETE FROM connections WHERE id = ANY(ARRAY(
    SELECT c.id FROM connections c WHERE c.ended_at IS NOT NULL AND c.ended_at < now() - make_interval(secs => @older_seconds::float8)
    ORDER BY c.ended_at LIMIT @max_rows FOR UPDATE SKIP LOCKED));

-- name: CountConnections :many
SELECT state, count(*) AS count FROM connections WHERE ended_at IS NULL GROUP BY state;

-- What nodes are told of their sites, for each node that a server holds: only a mark, which is
-- another whenever that is.
-- name: MarksOfNodes :many
SELECT c.id, m.mark FROM connections c JOIN nodes n ON n.name = c.node
CROSS JOIN LATERAL (SELECT s.mark FROM site_marks s WHERE s.site = n.site OFFSET 0) m
WHERE c.server = @server AND c.ended_at IS NULL AND c.node IS NOT NULL;

-- name: SitesByNode :many
SELECT n.name, n.site, m.mark::text AS mark, coalesce(o.generation, 0)::bigint AS generation, coalesce(o.project, '')::text AS project, o.spec,
       coalesce(l.resets, 0)::bigint AS resets, coalesce(l.reset_epoch, 0)::bigint AS reset_epoch
FROM nodes n
LEFT JOIN site_leases l ON l.site = n.site
CROSS JOIN LATERAL (SELECT s.mark FROM site_marks s WHERE s.site = n.site OFFSET 0) m
LEFT JOIN LATERAL (SELECT x.generation, x.project, x.spec FROM objects x WHERE x.kind = 'site' AND x.scope = '' AND x.name = n.site OFFSET 0) o ON true
WHERE n.name = ANY(@names::text[]);

-- Those that may be active. A node that never told counts: it is of before there was a way to.
-- name: UnseparatedNodes :many
SELECT n.name FROM nodes n
WHERE n.site = @site AND n.role <> 'worker' AND n.enrolled_at IS NOT NULL AND n.removed_at IS NULL AND n.revoked_at IS NULL
  AND coalesce(n.facts ->> 'isolation', '') <> @uid::text
ORDER BY n.name LIMIT 1;

-- name: MembersOfSites :many
SELECT site, name, role, peer_address, coalesce(CASE WHEN revoked_at IS NULL THEN signing_key END, ''::bytea)::bytea AS signing_key,
       coalesce(CASE WHEN revoked_at IS NULL THEN next_signing_key END, ''::bytea)::bytea AS next_signing_key,
       (cordoned_at IS NOT NULL)::boolean AS cordoned
FROM nodes WHERE site = ANY(@sites::text[]) AND removed_at IS NULL ORDER BY name;

-- name: SetNodeFacts :exec
UPDATE nodes n SET facts = u.facts
FROM (SELECT unnest(@names::text[]) AS name, unnest(@facts::jsonb[]) AS facts) u
WHERE n.name = u.name AND n.facts <> u.facts;

-- name: DeploymentsOnNodes :many
SELECT DISTINCT deployment FROM replicas WHERE node = ANY(@nodes::text[]) AND ended_at IS NULL ORDER BY deployment;

-- name: SetPeerAddresses :many
UPDATE nodes n SET peer_address = u.peer_address
FROM (SELECT unnest(@names::text[]) AS name, unnest(@peer_addresses::text[]) AS peer_address) u
WHERE n.name = u.name AND n.peer_address <> u.peer_address
RETURNING n.site;
