-- Rows of many replicas are locked in the order of their ids, and sets of nodes after them in the
-- order of their names, so that no two statements wait for each other in a circle.

-- What is there of a deployment, with how its nodes are. A drain that was given up, or whose node
-- was let in again, moves nothing any more.
-- name: SeeReplicas :many
SELECT r.*, coalesce(v.object, r.definition)::bytea AS object, n.heard, n.unheard, n.leaves, n.gone, n.heard_since, n.leave_by
FROM (SELECT DISTINCT x.node FROM replicas x WHERE x.deployment = @deployment AND x.ended_at IS NULL) d
JOIN LATERAL (SELECT s.* FROM replica_nodes s WHERE s.name = d.node OFFSET 0) n ON true
JOIN replicas r ON r.deployment = @deployment AND r.ended_at IS NULL AND r.node = d.node
LEFT JOIN deployment_revisions v ON v.deployment = r.deployment AND v.revision = r.revision
ORDER BY r.created_at, r.id;

-- name: LockReplicas :many
SELECT id, node, state, health FROM replicas WHERE id = ANY(@ids::text[]) AND deployment = @deployment AND ended_at IS NULL
ORDER BY id FOR NO KEY UPDATE;

-- What has become of some of them since, once their rows are locked.
-- name: SeeReplicasAgain :many
SELECT r.*, coalesce(v.object, r.definition)::bytea AS object, n.heard, n.unheard, n.leaves, n.gone, n.heard_since, n.leave_by
FROM replicas r JOIN LATERAL (SELECT s.* FROM replica_nodes s WHERE s.name = r.node OFFSET 0) n ON true
LEFT JOIN deployment_revisions v ON v.deployment = r.deployment AND v.revision = r.revision
WHERE r.id = ANY(@ids::text[]) AND r.deployment = @deployment AND r.ended_at IS NULL;

-- The number of a set that is new, or comes back, lies above all that were ever given: it begins
-- with the time.
-- name: RaiseNodeSets :many
INSERT INTO node_sets AS s (node, version)
SELECT u.node, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM (SELECT unnest(@nodes::text[]) AS node) u ORDER BY u.node
ON CONFLICT (node) DO UPDATE SET version = s.version + 1, changed_at = now()
RETURNING s.node, s.version;

-- name: TellNodeSets :exec
SELECT pg_notify('holdfast_link', 'replicas ' || u.node || ' ' || u.version)
FROM (SELECT unnest(@nodes::text[]) AS node, unnest(@versions::bigint[]) AS version) u;

-- They are of the time of the visit: what it decides by that time is compared with theirs.
-- name: InsertReplicas :exec
INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, cpu, memory, gpus, fixed_ports,
                      stop_seconds, state, listed, created_at, since, terms_revision)
SELECT u.id, @deployment, @uid, u.node, n.site, @revision, @process_version, @definition, @cpu, @memory, @gpus, @fixed_ports::integer[],
       @stop_seconds, 'STARTING', s.version, @at, @at, CASE WHEN @amended::boolean THEN @revision::bigint END
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@nodes::text[]) AS node) u
JOIN nodes n ON n.name = u.node JOIN node_sets s ON s.node = u.node;

-- What runs the same object as a release obeys it from now on.
-- name: AmendReplicas :many
WITH held AS (
    SELECT r.id FROM replicas r
    WHERE r.deployment = @deployment AND r.uid = @uid AND r.ended_at IS NULL AND r.state <> 'TERMINATING'
      AND EXISTS (SELECT FROM deployment_revisions v WHERE v.deployment = r.deployment AND v.revision = r.revision AND coalesce(v.object, v.definition) = @object::bytea OFFSET 0)
    ORDER BY r.id FOR NO KEY UPDATE)
UPDATE replicas r SET terms_revision = @revision, stop_seconds = @stop_seconds FROM held WHERE r.id = held.id
RETURNING r.node;

-- name: TerminateReplicas :exec
UPDATE replicas r SET state = 'TERMINATING', since = now(), reason = u.reason, message = u.message, listed = s.version,
    stop_by = now() + make_interval(secs => r.stop_seconds + @slack_seconds::float8)
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) u, node_sets s
WHERE r.id = u.id AND s.node = r.node;

-- name: FailReplicas :exec
UPDATE replicas r SET state = 'UNHEALTHY', health = 'UNHEALTHY', since = now(), failed_at = now(), reason = u.reason, message = u.message
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) u
WHERE r.id = u.id;

-- name: EndReplicas :exec
UPDATE replicas r SET state = 'TERMINATED', since = now(), ended_at = now(), stop_by = NULL,
    reason = CASE WHEN u.reason <> '' THEN u.reason ELSE r.reason END, message = CASE WHEN u.reason <> '' THEN u.message ELSE r.message END
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message) u
WHERE r.id = u.id;

-- name: NodeSet :one
SELECT g.era, coalesce(s.version, 0)::bigint AS version FROM region g LEFT JOIN node_sets s ON s.node = @node;

-- The number comes first: what changes meanwhile has a higher one, and is fetched again. What has ended
-- and is still named comes last: what a set has no room for is named once the node has ended others.
-- name: NodeReplicas :many
SELECT u.id, u.deployment, u.revision, u.process_version, u.definition, u.live, u.stop_seconds, u.project,
       coalesce(v.terms -> 'replica', '{}')::jsonb AS terms FROM (
    SELECT r.id, r.deployment, r.revision, r.process_version, r.definition, (r.state <> 'TERMINATING')::boolean AS live, r.stop_seconds,
           coalesce(d.project, '')::text AS project, 0 AS last, r.created_at AS at, r.terms_revision
    FROM replicas r LEFT JOIN deployments d ON d.name = r.deployment WHERE r.node = @node AND r.ended_at IS NULL
    UNION ALL
    SELECT t.replica, t.deployment, 0, 0, ''::bytea, false, t.stop_seconds, '', 1, t.since, NULL
    FROM replica_tombstones t WHERE t.node = @node) u
LEFT JOIN LATERAL (SELECT x.terms FROM deployment_revisions x WHERE x.deployment = u.deployment AND x.revision = u.terms_revision OFFSET 0) v ON true
ORDER BY u.last, u.at, u.id LIMIT @max_rows;

-- name: NodeSetVersions :many
SELECT c.id, g.era, s.version FROM connections c JOIN node_sets s ON s.node = c.node, region g
WHERE c.server = @server AND c.ended_at IS NULL AND c.node IS NOT NULL;

-- name: NodeHasDefinition :one
SELECT EXISTS (SELECT 1 FROM replicas WHERE node = @node AND definition = @definition AND ended_at IS NULL);

-- name: LockReplicasOfNode :many
SELECT * FROM replicas WHERE node = @node AND ended_at IS NULL AND (@every::boolean OR id = ANY(@ids::text[]))
ORDER BY id FOR NO KEY UPDATE;

-- name: HoldNodeSet :exec
UPDATE node_sets SET held = @held WHERE node = @node AND held < @held;

-- A replica that is to end keeps the reason why. Each start is a state of its own, though of the
-- same name.
-- name: ReportReplicas :exec
UPDATE replicas r SET state = u.state, health = u.health, phase = u.phase, exact_phase = u.exact_phase, restarts = u.restarts, endpoint = u.endpoint, ports = u.ports,
    pid = u.pid, lost = false, unready = u.unready, ready_since = CASE WHEN r.unready AND NOT u.unready THEN now() ELSE r.ready_since END,
    running_since = CASE WHEN u.phase <> 'running' AND u.exact_phase <> 'pre_start' THEN NULL
        WHEN r.restarts >= u.restarts AND r.running_since IS NOT NULL THEN r.running_since ELSE now() - make_interval(secs => u.age) END,
    reason = CASE WHEN r.state = 'TERMINATING' THEN r.reason ELSE u.reason END,
    message = CASE WHEN r.state = 'TERMINATING' THEN r.message ELSE u.message END,
    since = CASE WHEN r.state = u.state AND r.restarts >= u.restarts THEN r.since ELSE now() END,
    worked = CASE WHEN u.state = 'HEALTHY' AND r.restarts < u.restarts THEN now()
                  WHEN u.state = 'HEALTHY' AND r.state = 'STARTING' THEN r.since
                  WHEN 'HEALTHY' IN (u.state, r.state) THEN coalesce(r.worked, r.since) ELSE r.worked END,
    failed_at = CASE WHEN u.failed THEN now() ELSE r.failed_at END,
    failing = CASE WHEN r.state = 'TERMINATING' THEN r.failing ELSE u.failing END,
    ended_at = CASE WHEN u.state = 'TERMINATED' THEN now() END, stop_by = CASE WHEN u.state = 'TERMINATED' THEN NULL ELSE r.stop_by END
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@states::text[]) AS state, unnest(@healths::text[]) AS health, unnest(@phases::text[]) AS phase,
             unnest(@exact_phases::text[]) AS exact_phase, unnest(@restarts::integer[]) AS restarts, unnest(@endpoints::text[]) AS endpoint, unnest(@ports::jsonb[]) AS ports,
             unnest(@pids::integer[]) AS pid, unnest(@reasons::text[]) AS reason, unnest(@messages::text[]) AS message,
             unnest(@unreadies::boolean[]) AS unready, unnest(@failed::boolean[]) AS failed, unnest(@failing::jsonb[]) AS failing, unnest(@ages::float8[]) AS age) u
WHERE r.id = u.id;

-- name: LoseReplicas :exec
UPDATE replicas SET lost = true WHERE id = ANY(@ids::text[]) AND NOT lost;

-- Every node that may run anything, with what is there: each sum is made of all nodes at once.
-- name: Rooms :many
WITH streams AS (
    SELECT c.node, bool_or(c.drain_asked_at IS NOT NULL) AS asked
    FROM connections c WHERE c.node IS NOT NULL AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') GROUP BY c.node),
taken AS (
    SELECT r.node, count(*) AS replicas, sum(r.cpu) AS cpu, sum(r.memory) AS memory, sum(r.gpus) AS gpus
    FROM replicas r WHERE r.ended_at IS NULL GROUP BY r.node)
SELECT n.name, n.site, coalesce(o.project, '')::text AS project, n.facts, n.cordoned_at, (s.node IS NOT NULL)::boolean AS connected, coalesce(s.asked, false)::boolean AS asked,
       (d.node IS NOT NULL)::boolean AS draining, coalesce(t.replicas, 0)::bigint AS replicas, coalesce(t.cpu, 0)::float8 AS cpu,
       coalesce(t.memory, 0)::bigint AS memory, coalesce(t.gpus, 0)::bigint AS gpus,
       coalesce(CASE WHEN s.node IS NULL THEN greatest((SELECT l.since FROM link_there l),
           (SELECT max(c.ended_at) FROM connections c WHERE c.node = n.name AND c.ended_at IS NOT NULL)) END, 'epoch')::timestamptz AS unheard
FROM nodes n
LEFT JOIN objects o ON o.kind = 'site' AND o.scope = '' AND o.name = n.site
LEFT JOIN streams s ON s.node = n.name
LEFT JOIN taken t ON t.node = n.name
LEFT JOIN node_drains d ON d.node = n.name AND d.ended_at IS NULL
WHERE n.removed_at IS NULL AND n.revoked_at IS NULL AND n.enrolled_at IS NOT NULL
ORDER BY n.name;

-- Own are those of the revision that more are to be made of, as people are shown them.
-- name: OwnOnNodes :many
SELECT r.node, count(*) AS own
FROM replicas r JOIN deployments d ON d.name = r.deployment JOIN deployment_revisions v ON v.deployment = d.name AND v.revision = coalesce(nullif(@revision::bigint, 0), d.revision)
LEFT JOIN deployment_revisions x ON x.deployment = r.deployment AND x.revision = r.revision
WHERE r.deployment = @deployment AND r.ended_at IS NULL AND r.state <> 'TERMINATING' AND r.process_version >= d.from_version AND coalesce(x.object, r.definition) = coalesce(v.object, v.definition)
GROUP BY r.node;

-- name: PortsOnNodes :many
SELECT DISTINCT r.node, p.port::integer AS port
FROM replicas r CROSS JOIN LATERAL unnest(r.fixed_ports) AS p(port)
WHERE r.ended_at IS NULL AND r.fixed_ports <> '{}' ORDER BY r.node, port;

-- What may be ended to make room for what replaces it.
-- name: OldOnNodes :many
SELECT r.id, r.node, r.cpu, r.memory, r.gpus, r.fixed_ports
FROM replicas r JOIN deployments d ON d.name = r.deployment JOIN deployment_revisions v ON v.deployment = d.name AND v.revision = coalesce(nullif(@revision::bigint, 0), d.revision)
LEFT JOIN deployment_revisions x ON x.deployment = r.deployment AND x.revision = r.revision
WHERE r.deployment = @deployment AND r.ended_at IS NULL AND r.state <> 'TERMINATING' AND (r.process_version < d.from_version OR coalesce(x.object, r.definition) <> coalesce(v.object, v.definition))
ORDER BY r.created_at, r.id;

-- name: ModulesOnNodes :many
SELECT DISTINCT c.node::text AS node, (m.module_namespace || '.' || m.name)::text AS module
FROM connections c JOIN modules m ON m.connection = c.id
WHERE c.node IS NOT NULL AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') ORDER BY 1, 2;

-- name: ModulesOfNodes :many
SELECT DISTINCT c.node::text AS node, (m.module_namespace || '.' || m.name)::text AS module
FROM connections c JOIN modules m ON m.connection = c.id
WHERE c.node = ANY(@nodes::text[]) AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') ORDER BY 1, 2;

-- What placement chooses by, of the nodes with live replicas of a deployment.
-- name: NodesOfDeployment :many
SELECT n.name, n.site, coalesce(o.project, '')::text AS project, n.facts
FROM (SELECT DISTINCT r.node FROM replicas r WHERE r.deployment = @deployment AND r.ended_at IS NULL AND r.state <> 'TERMINATING') d
JOIN nodes n ON n.name = d.node
LEFT JOIN objects o ON o.kind = 'site' AND o.scope = '' AND o.name = n.site
ORDER BY n.name;

-- name: FailingNodes :many
SELECT r.node, count(*) AS failing FROM replicas r
WHERE r.deployment = @deployment AND r.failed_at > now() - make_interval(secs => @seconds::float8) GROUP BY r.node;

-- How many replicas of each pool's deployments nodes have.
-- name: PoolTaken :many
SELECT r.node, p.name::text AS pool, count(*) AS replicas
FROM (SELECT d.name, v.revision, v.spec, v.revision = d.revision AS own FROM deployments d
      JOIN deployment_revisions v ON v.deployment = d.name WHERE d.state <> 'TERMINATED'
       AND (v.revision = d.revision OR v.revision = (SELECT o.to_revision FROM rollouts o WHERE o.deployment = d.name AND o.ended_at IS NULL))) s
CROSS JOIN LATERAL jsonb_array_elements_text(coalesce(s.spec #> '{placement,pools}', '[]'::jsonb)) AS p(name)
JOIN replicas r ON r.deployment = s.name AND r.ended_at IS NULL
     AND s.own = (coalesce(r.terms_revision, r.revision) <> coalesce((SELECT o.to_revision FROM rollouts o WHERE o.deployment = s.name AND o.ended_at IS NULL), 0))
WHERE p.name = ANY(@pools::text[]) GROUP BY r.node, p.name;

-- name: PoolSpecs :many
SELECT p.name, p.spec FROM objects p
WHERE p.kind = 'pool' AND p.scope = ''
  AND (p.project = 'default' OR p.project = (SELECT o.project FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = @deployment))
ORDER BY p.name;

-- The filter finds its ids by an index of its own: one plan for all would read every replica.
-- name: ReplicaIDsOfDeployment :many
SELECT u.id FROM (
    SELECT r.id FROM replicas r WHERE r.deployment = @deployment AND r.ended_at IS NULL
    UNION ALL SELECT r.id FROM replicas r WHERE @ended::boolean AND r.deployment = @deployment AND r.ended_at IS NOT NULL) u
WHERE u.id > @after::text ORDER BY u.id LIMIT @max_rows;

-- name: ReplicaIDsOfNode :many
SELECT u.id FROM (SELECT r.id FROM replicas r WHERE r.node = @node AND r.ended_at IS NULL OFFSET 0) u
WHERE u.id > @after::text ORDER BY u.id LIMIT @max_rows;

-- name: ReplicaIDs :many
SELECT r.id FROM replicas r
WHERE r.id > @after::text AND (@node::text = '' OR r.node = @node) AND (@deployment::text = '' OR r.deployment = @deployment)
  AND (@ended::boolean OR r.ended_at IS NULL)
  AND (@project::text = '' OR r.deployment IN (SELECT d.name FROM deployments d WHERE d.project = @project))
ORDER BY r.id LIMIT @max_rows;

-- Startup is that of the replica's own revision, in seconds, 0 when its terms are not known.
-- name: ReplicasByID :many
SELECT sqlc.embed(r), d.project, coalesce((v.terms ->> 'startupSeconds')::float8, 0)::float8 AS startup,
       coalesce(w.spec -> 'strategy', '{}')::jsonb AS strategy, coalesce(w.terms -> 'replica', '{}')::jsonb AS terms, now()::timestamptz AS at,
       EXISTS (SELECT 1 FROM connections k WHERE k.node = r.node AND k.ended_at IS NULL AND k.state IN ('Active', 'Draining') OFFSET 0)::boolean AS heard
FROM replicas r JOIN deployments d ON d.name = r.deployment
LEFT JOIN deployment_revisions v ON v.deployment = r.deployment AND v.revision = r.revision
LEFT JOIN deployment_revisions w ON w.deployment = r.deployment AND w.revision = coalesce(r.terms_revision, r.revision)
WHERE r.id = ANY(@ids::text[]) AND (@project::text = '' OR d.project = @project)
ORDER BY r.id;

-- name: LastEndedReplicas :many
SELECT sqlc.embed(r), d.project FROM replicas r JOIN deployments d ON d.name = r.deployment
WHERE r.deployment = @deployment AND r.ended_at IS NOT NULL
ORDER BY r.ended_at DESC LIMIT @max_rows;

-- name: GetReplica :one
SELECT sqlc.embed(r), d.project, coalesce((v.terms ->> 'startupSeconds')::float8, 0)::float8 AS startup,
       coalesce(w.spec -> 'strategy', '{}')::jsonb AS strategy, coalesce(w.terms -> 'replica', '{}')::jsonb AS terms, now()::timestamptz AS at,
       EXISTS (SELECT 1 FROM connections k WHERE k.node = r.node AND k.ended_at IS NULL AND k.state IN ('Active', 'Draining') OFFSET 0)::boolean AS heard
FROM replicas r JOIN deployments d ON d.name = r.deployment
LEFT JOIN deployment_revisions v ON v.deployment = r.deployment AND v.revision = r.revision
LEFT JOIN deployment_revisions w ON w.deployment = r.deployment AND w.revision = coalesce(r.terms_revision, r.revision)
WHERE r.id = @id;

-- name: HoldsReplica :one
SELECT EXISTS (SELECT 1 FROM replicas r WHERE r.id = @replica AND r.node = @node)::boolean AS holds;

-- name: LastReplicaLog :one
SELECT log_offset, length(data)::bigint AS size FROM replica_logs
WHERE replica = @replica ORDER BY log_offset DESC LIMIT 1;

-- The newest piece that has what a node counts as this offset.
-- name: ReplicaLogWith :one
SELECT log_offset, node_offset, data FROM replica_logs
WHERE replica = @replica
  AND node_offset <= @at_offset::bigint AND node_offset + length(data) > @at_offset::bigint
ORDER BY log_offset DESC LIMIT 1;

-- name: InsertReplicaLog :exec
INSERT INTO replica_logs (replica, log_offset, node_offset, data) VALUES (@replica, @log_offset, @node_offset, @data);

-- name: TrimReplicaLog :exec
DELETE FROM replica_logs l
USING (SELECT m.log_offset, sum(length(m.data)) OVER (ORDER BY m.log_offset DESC) AS newer
       FROM replica_logs m WHERE m.replica = @replica) k
WHERE l.replica = @replica AND l.log_offset = k.log_offset AND k.newer > @keep_bytes::bigint;

-- name: ReadReplicaLogs :many
SELECT log_offset, data, at FROM replica_logs WHERE replica = @replica AND log_offset + length(data) > @from_offset::bigint
ORDER BY log_offset LIMIT @max_rows;

-- name: KeepReplicaSamples :exec
INSERT INTO replica_samples AS s (replica, cpu, memory)
SELECT r.id, u.cpu, u.memory
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@cpus::float8[]) AS cpu, unnest(@memories::bigint[]) AS memory) u
JOIN replicas r ON r.id = u.id AND r.node = @node AND r.ended_at IS NULL ORDER BY r.id
ON CONFLICT (replica) DO UPDATE SET cpu = excluded.cpu, memory = excluded.memory, at = now();

-- name: ReplicaSamples :many
SELECT s.* FROM replica_samples s JOIN replicas r ON r.id = s.replica WHERE r.deployment = @deployment AND r.ended_at IS NULL;

-- name: HoldConnection :one
SELECT c.node FROM connections c WHERE c.id = @id AND c.ended_at IS NULL FOR SHARE;

-- name: CountReplicaStates :many
SELECT state, count(*) AS count FROM replicas WHERE ended_at IS NULL GROUP BY state;

-- name: CountReplicasOn :one
SELECT count(*) AS replicas, count(*) FILTER (WHERE state <> 'TERMINATING') AS live FROM replicas WHERE node = @node AND ended_at IS NULL;

-- How many are to be replaced, and how long the slowest of all that are there may take to end.
-- name: OlderReplicas :one
SELECT count(*) FILTER (WHERE state <> 'TERMINATING' AND (process_version < @process_version OR revision < @revision)) AS older,
       coalesce(max(stop_seconds), 0)::integer AS stop_seconds
FROM replicas WHERE deployment = @deployment AND ended_at IS NULL;

-- name: LiveReplicasOn :many
SELECT id, deployment FROM replicas WHERE node = @node AND ended_at IS NULL AND state <> 'TERMINATING' ORDER BY deployment, id;

-- name: DrainOfNode :one
SELECT EXISTS (SELECT 1 FROM node_drains WHERE node = @node AND ended_at IS NULL);
