-- name: ModulesAfter :many
SELECT DISTINCT m.module_namespace, m.name FROM modules m JOIN connections c ON c.id = m.connection
WHERE c.ended_at IS NULL AND (@namespace::text = '' OR m.module_namespace = @namespace)
  AND (m.module_namespace, m.name) > (@after_namespace::text, @after_name::text)
ORDER BY m.module_namespace, m.name LIMIT @max_rows;

-- Those that live, whether they can be called or not, of all modules between two. Schemas that
-- are those of the row before are left out.
-- name: MembersOfModules :many
SELECT o.module_namespace, o.name, o.description, o.same,
       (CASE WHEN o.same THEN '' ELSE o.input_schema END)::text AS input_schema,
       (CASE WHEN o.same THEN '' ELSE o.output_schema END)::text AS output_schema,
       o.id, o.provider, o.node, o.group_id, o.executor, o.executor_tls, o.executor_server_name, o.caller, o.state, o.drain_asked_at, o.registered_at, o.cordoned
FROM (
    SELECT m.module_namespace, m.name, m.description, m.input_schema, m.output_schema,
           c.id, c.provider, c.node, c.group_id, c.executor, c.executor_tls, c.executor_server_name, coalesce(host(c.caller), '')::text AS caller, c.state, c.drain_asked_at, c.registered_at,
           EXISTS (SELECT 1 FROM nodes n WHERE n.name = c.node AND n.cordoned_at IS NOT NULL OFFSET 0) AS cordoned,
           coalesce(m.input_schema = lag(m.input_schema) OVER newest AND m.output_schema = lag(m.output_schema) OVER newest, false)::boolean AS same
    FROM modules m JOIN connections c ON c.id = m.connection
    WHERE c.ended_at IS NULL
      AND (m.module_namespace, m.name) >= (@from_namespace::text, @from_name::text)
      AND (m.module_namespace, m.name) <= (@to_namespace::text, @to_name::text)
    WINDOW newest AS (PARTITION BY m.module_namespace, m.name ORDER BY c.registered_at DESC, c.id)) o
ORDER BY o.module_namespace, o.name, o.registered_at DESC, o.id;

-- name: LastOffer :one
SELECT c.provider, c.state, c.reason, c.ended_at, c.drain_asked_at,
       EXISTS (SELECT 1 FROM nodes n WHERE n.name = c.node AND n.cordoned_at IS NOT NULL) AS cordoned
FROM modules m JOIN connections c ON c.id = m.connection
WHERE m.module_namespace = @namespace AND m.name = @name
ORDER BY c.ended_at DESC NULLS FIRST, c.registered_at DESC LIMIT 1;

-- name: InsertExecution :exec
INSERT INTO executions (id, module_namespace, module, input, input_hash, expires_at)
VALUES (@id, @namespace, @module, @input, @input_hash, now() + make_interval(secs => @seconds::float8));

-- name: GetExecution :one
SELECT * FROM executions WHERE id = @id AND expires_at > now();

-- name: EndExecution :exec
UPDATE executions SET output = @output, output_hash = @output_hash, failure = @failure, connection = @connection,
       expires_at = now() + make_interval(secs => @seconds::float8)
WHERE id = @id;

-- name: KeepExecution :exec
INSERT INTO executions (id, module_namespace, module, input_hash, output, output_hash, connection, expires_at)
VALUES (@id, @namespace, @module, @input_hash, @output, @output_hash, @connection, now() + make_interval(secs => @seconds::float8))
ON CONFLICT DO NOTHING;

-- The rows of a key stay as long as the key.
-- name: ClaimExecutionKey :one
INSERT INTO idempotency (actor, key, request_hash, operation_id) VALUES (@actor, @key, @request_hash, @id)
ON CONFLICT (actor, key) DO UPDATE SET key = excluded.key
RETURNING request_hash, operation_id;

-- name: NoteExecution :execrows
UPDATE operations SET reason = @reason, message = @message
WHERE id = @id AND kind = 'execute' AND state = 'running';

-- name: ServeExecution :one
UPDATE operations SET entity_run = @run, entity_build = @build
WHERE id = @id AND kind = 'execute' AND state = 'running'
RETURNING *;

-- name: PurgeExecutions :execrows
DELETE FROM executions WHERE ctid IN (SELECT e.ctid FROM executions e WHERE e.expires_at < now() ORDER BY e.expires_at LIMIT @max_rows);
