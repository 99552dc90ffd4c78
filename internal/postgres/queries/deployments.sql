-- Who changes a deployment holds its row; FOR NO KEY UPDATE, so that what refers to it can be
-- written meanwhile.

-- name: LockDeployment :one
SELECT * FROM deployments WHERE name = @name FOR NO KEY UPDATE;

-- name: InsertDeployment :one
INSERT INTO deployments (name, uid, project, state, last_revision, process_version, last_version)
SELECT @name, @uid, @project, 'PENDING', coalesce(max(n.last_revision), 0), coalesce(max(n.process_version), 0), coalesce(max(n.process_version), 0)
FROM deployment_numbers n WHERE n.name = @name
RETURNING *;

-- name: GetDeploymentRevision :one
SELECT * FROM deployment_revisions WHERE deployment = @deployment AND revision = @revision;

-- name: NewestDeploymentRevision :one
SELECT * FROM deployment_revisions WHERE deployment = @deployment AND uid = @uid ORDER BY revision DESC LIMIT 1;

-- What runs of some deployments: the release that most live replicas obey, the earlier of two; the last one if none lives.
-- Applied is what is rolled out, or else the own revision.
-- name: RunningSpecs :many
SELECT d.name, d.uid, d.target, v.spec, v.definition, a.spec AS applied, a.definition AS applied_definition FROM deployments d
LEFT JOIN LATERAL (
    SELECT coalesce(r.terms_revision, r.revision) AS obeyed, count(*) AS replicas FROM replicas r
    WHERE r.deployment = d.name AND r.uid = d.uid AND r.ended_at IS NULL AND r.state <> 'TERMINATING'
    GROUP BY coalesce(r.terms_revision, r.revision) ORDER BY count(*) DESC, coalesce(r.terms_revision, r.revision) LIMIT 1) w ON true
JOIN deployment_revisions v ON v.deployment = d.name AND v.revision = coalesce(w.obeyed, d.revision)
JOIN deployment_revisions a ON a.deployment = d.name
 AND a.revision = coalesce((SELECT o.to_revision FROM rollouts o WHERE o.deployment = d.name AND o.ended_at IS NULL AND o.state <> 'CANCELING'), d.revision)
WHERE d.name = ANY(@names::text[]) ORDER BY d.name;

-- What waits for a restart: the newest revision, which has no process version yet, and the one that is applied.
-- name: PendingRestarts :many
SELECT d.name, p.revision, p.spec, a.spec AS applied FROM deployments d
JOIN deployment_revisions p ON p.deployment = d.name AND p.revision = d.last_revision AND p.uid = d.uid AND p.revision > d.revision AND p.process_version = 0
JOIN deployment_revisions a ON a.deployment = d.name AND a.revision <> p.revision
 AND a.revision = coalesce((SELECT o.to_revision FROM rollouts o WHERE o.deployment = d.name AND o.ended_at IS NULL AND o.state <> 'CANCELING'), d.revision)
WHERE d.name = ANY(@names::text[]) ORDER BY d.name;

-- name: NumberRevision :exec
UPDATE deployments SET last_revision = @revision WHERE name = @name;

-- name: InsertDeploymentRevision :exec
INSERT INTO deployment_revisions (deployment, revision, uid, project, generation, process_version, spec, terms, definition, object, created_by, reason)
VALUES (@deployment, @revision, @uid, @project, @generation, @process_version, @spec, @terms, @definition, @object, @created_by, @reason);

-- A revision of the declaration that runs is released at once, one of the next waits.
-- name: ReleaseDeployment :exec
UPDATE deployments SET last_revision = greatest(last_revision, @revision), revision = CASE WHEN uid = @uid AND NOT @rolls::boolean THEN @revision ELSE revision END,
    process_version = CASE WHEN uid = @uid AND NOT @rolls::boolean THEN @process_version ELSE process_version END,
    last_version = greatest(last_version, @process_version),
    target = CASE WHEN uid = @uid THEN @target ELSE target END, updated_at = now()
WHERE name = @name;

-- name: DeclareNext :exec
UPDATE deployments SET next_uid = sqlc.narg(next_uid), updated_at = now() WHERE name = @name;

-- name: ScaleDeployment :exec
UPDATE deployments SET target = @target, scaled = true, updated_at = now() WHERE name = @name;

-- name: RestartDeployment :one
UPDATE deployments SET process_version = greatest(last_version, process_version) + 1, from_version = greatest(last_version, process_version) + 1, last_version = greatest(last_version, process_version) + 1, updated_at = now()
WHERE name = @name RETURNING process_version;

-- name: BeginRestarts :exec
UPDATE operations SET revision = @revision, process_version = @process_version, target = @target, deadline_at = now() + make_interval(secs => @seconds::float8)
WHERE subject = @subject AND kind = 'restart' AND process_version = 0 AND state = 'running' AND NOT cancel_requested;

-- What was begun is begun anew: the way out of ERROR.
-- name: BeginDeploymentAnew :exec
UPDATE deployments SET began = 0, next_attempt = NULL, updated_at = now() WHERE name = @name;

-- name: AttachDeploymentRun :exec
UPDATE deployments SET entity_run = @run, seen_at = now() WHERE name = @name;

-- name: MoveDeployment :exec
UPDATE deployments SET state = @state, reason = @reason, message = @message, awaited = @awaited,
    since = CASE WHEN state = @state THEN since ELSE clock_timestamp() END,
    began = @began, began_version = @began_version, attempts = @attempts, crashes = @crashes,
    next_attempt = sqlc.narg(next_attempt), owed = @owed, wake_at = sqlc.narg(wake_at), conditions = @conditions,
    stable = CASE WHEN @proven::boolean THEN revision ELSE stable END,
    updated_at = CASE WHEN (state, reason, message, awaited, conditions) IS DISTINCT FROM (@state, @reason, @message, @awaited, @conditions::jsonb)
                      THEN now() ELSE updated_at END
WHERE name = @name;

-- What was only written reads as when it is written for the first time.
-- name: RedeclareDeployment :one
UPDATE deployments SET uid = @uid, next_uid = NULL, project = @project, revision = @revision, process_version = @process_version,
    stable = NULL, target = @target, scaled = false, began = 0, began_version = 0, attempts = 0, crashes = 0, next_attempt = NULL, owed = 0, wake_at = NULL,
    state = @state, reason = CASE WHEN @revision::bigint = 0 THEN '' ELSE 'redeclared' END, message = '', awaited = '', conditions = '[]', since = clock_timestamp(), updated_at = now()
WHERE name = @name
RETURNING *;

-- name: ForgetDeployment :exec
WITH r AS (DELETE FROM deployment_revisions v WHERE v.deployment = @name AND v.project <> @project),
     h AS (DELETE FROM deployment_history y WHERE y.deployment = @name AND y.project <> @project)
DELETE FROM replicas x WHERE x.deployment = @name AND x.ended_at IS NOT NULL;

-- name: SeeDeploymentOperations :many
SELECT id, kind, revision, process_version, target, stop_first, cancel_requested, created_at, deadline_at FROM operations
WHERE subject = @subject AND kind IN ('converge', 'scale', 'restart', 'destroy', 'return') AND state = 'running' ORDER BY created_at, id;

-- name: CountUntold :one
SELECT count(*) FROM operations WHERE subject = @subject AND state <> 'running' AND door_run <> '' AND NOT door_told;

-- name: EndOperationsEach :exec
WITH ended AS (
    UPDATE operations o SET state = u.state, reason = u.reason, message = u.message, ended_at = now()
    FROM (SELECT unnest(@ids::text[]) AS id, unnest(@states::text[]) AS state, unnest(@reasons::text[]) AS reason,
                 unnest(@messages::text[]) AS message) u
    WHERE o.id = u.id AND o.state = 'running'
    RETURNING o.id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- A line like one of the last ones takes its place, counted, so that the newest stays first.
-- name: WriteDeploymentHistory :exec
WITH before AS (
    SELECT h.id FROM (SELECT x.* FROM deployment_history x WHERE x.deployment = @deployment ORDER BY x.id DESC LIMIT @look_back) h
    WHERE h.uid = @uid AND (h.replica <> '') = (@replica::text <> '') AND h.from_state = @from_state AND h.to_state = @to_state
      AND h.reason = @reason AND h.message = @message AND h.actor = @actor
    ORDER BY h.id DESC LIMIT 1),
merged AS (DELETE FROM deployment_history h USING before b WHERE h.id = b.id RETURNING h.at, h.times)
INSERT INTO deployment_history (deployment, uid, project, replica, node, at, times, from_state, to_state, reason, message, actor)
SELECT @deployment, @uid, coalesce((SELECT d.project FROM deployments d WHERE d.name = @deployment AND d.uid = @uid),
                                   (SELECT o.project FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = @deployment AND o.uid = @uid), ''),
       @replica, @node, coalesce((SELECT m.at FROM merged m), now()),
       coalesce((SELECT m.times FROM merged m), 0) + @times::integer, @from_state, @to_state, @reason, @message, @actor;

-- Of the project whose deployment of the name runs or ran last, also of its earlier declarations.
-- name: ListDeploymentHistory :many
SELECT h.* FROM deployment_history h JOIN deployments d ON d.name = h.deployment AND d.project = h.project
WHERE h.deployment = @deployment AND (@before::bigint = 0 OR h.id < @before)
ORDER BY h.id DESC LIMIT @max_rows;

-- name: ListDeploymentRevisions :many
SELECT v.* FROM deployment_revisions v JOIN deployments d ON d.name = v.deployment AND d.project = v.project
WHERE v.deployment = @deployment AND (@before::bigint = 0 OR v.revision < @before)
ORDER BY v.revision DESC LIMIT @max_rows;

-- name: DeploymentsOfPool :many
SELECT DISTINCT d.name FROM deployments d JOIN deployment_revisions v ON v.deployment = d.name
 AND (v.revision = d.revision OR v.revision = (SELECT o.to_revision FROM rollouts o WHERE o.deployment = d.name AND o.ended_at IS NULL))
WHERE d.state <> 'TERMINATED' AND v.spec #> '{placement,pools}' ? @pool::text ORDER BY d.name;

-- Whose placement names a pool or a site (list: pools or sites): written are those whose declaration does; the
-- others only run, or are to run once what was before them has ended, a revision that does.
-- name: NamesOfPlacement :many
SELECT u.name::text AS name, bool_or(u.written)::boolean AS written FROM (
    SELECT o.name, true AS written FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.spec #> ARRAY['placement', @list::text] ? @name::text
    UNION ALL SELECT d.name, false FROM deployments d JOIN deployment_revisions v ON v.deployment = d.name
    WHERE v.spec #> ARRAY['placement', @list::text] ? @name::text
      AND (d.state NOT IN ('DESTROYING', 'TERMINATED') AND (v.revision = d.revision
           OR v.revision = (SELECT o.to_revision FROM rollouts o WHERE o.deployment = d.name AND o.ended_at IS NULL)) OR v.uid = d.next_uid AND v.revision = d.last_revision)) u
GROUP BY u.name ORDER BY u.name;

-- Replicas on nodes that are there.
-- name: CountReplicasAt :one
SELECT count(*) FROM nodes n JOIN replicas r ON r.node = n.name AND r.ended_at IS NULL
WHERE n.site = @site AND n.removed_at IS NULL AND n.revoked_at IS NULL;

-- name: EndUnreleased :exec
UPDATE deployments SET state = @state, reason = 'deleted', message = 'it was never released', awaited = '', since = clock_timestamp(), updated_at = now()
WHERE name = @name;

-- name: ViewDeployments :many
SELECT sqlc.embed(d), coalesce(v.generation, 0)::bigint AS generation, coalesce(v.definition, ''::bytea)::bytea AS definition, coalesce(v.least, 0)::integer AS least,
       coalesce(v.stopped, false)::boolean AS stopped, coalesce(v.created_at, d.since)::timestamptz AS own_at,
       coalesce(n.generation, 0)::bigint AS released_generation, coalesce(n.revision, 0)::bigint AS newest, coalesce(n.created_at, d.since)::timestamptz AS newest_at,
       c.present, c.starting, c.healthy, c.routable, c.unhealthy, c.terminating, c.unheard, c.older
FROM deployments d
LEFT JOIN LATERAL (SELECT x.generation, x.definition, coalesce(x.object, x.definition) AS object, x.created_at, x.spec ->> 'state' = 'stopped' AS stopped, (x.spec #>> '{replicas,min}')::integer AS least FROM deployment_revisions x WHERE x.deployment = d.name AND x.revision = d.revision OFFSET 0) v ON true
LEFT JOIN LATERAL (SELECT x.revision, x.generation, x.created_at FROM deployment_revisions x
                   WHERE x.deployment = d.name AND x.uid = coalesce(d.next_uid, d.uid) ORDER BY x.revision DESC LIMIT 1) n ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS present, count(*) FILTER (WHERE r.heard AND r.state = 'STARTING') AS starting, count(*) FILTER (WHERE r.heard AND r.state = 'HEALTHY') AS healthy,
           count(*) FILTER (WHERE r.heard AND r.state = 'HEALTHY' AND NOT r.unready) AS routable,
           count(*) FILTER (WHERE r.heard AND r.state = 'UNHEALTHY') AS unhealthy, count(*) FILTER (WHERE r.state = 'TERMINATING') AS terminating,
           count(*) FILTER (WHERE r.state <> 'TERMINATING' AND NOT r.heard) AS unheard,
           count(*) FILTER (WHERE r.state <> 'TERMINATING' AND (r.process_version < d.from_version OR r.object <> v.object)) AS older
    FROM (SELECT x.state, x.unready, x.process_version, coalesce(o.object, x.definition) AS object, EXISTS (
              SELECT 1 FROM connections k WHERE k.node = x.node AND k.ended_at IS NULL AND k.state IN ('Active', 'Draining') OFFSET 0) AS heard
          FROM replicas x LEFT JOIN deployment_revisions o ON o.deployment = x.deployment AND o.revision = x.revision
          WHERE x.deployment = d.name AND x.ended_at IS NULL OFFSET 0) r OFFSET 0) c
WHERE d.name = ANY(@names::text[]) ORDER BY d.name;

-- Those of a shard that have something to do and were not looked at for a while. One that waits for
-- a time of its own is left alone until then, but for what asks or goes wrong meanwhile. A node that
-- was lost after the last look, or so little before it that it may not have been seen, is such.
-- name: DeploymentsDue :many
SELECT d.name FROM deployments d
LEFT JOIN LATERAL (SELECT v.spec ->> 'state' AS wanted FROM deployment_revisions v
                   WHERE v.deployment = d.name AND v.revision = d.revision OFFSET 0) w ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.state <> 'TERMINATING') AS live,
           coalesce(bool_or(r.state = 'TERMINATING' AND r.stop_by < now() OR r.lost OR n.leaves OR n.gone), false) AS wrong,
           coalesce(bool_or(NOT n.heard AND r.state <> 'TERMINATING' AND n.unheard > d.seen_at - interval '1 minute' AND n.unheard < now()), false) AS unheard
    FROM replicas r
    JOIN LATERAL (SELECT x.heard, x.unheard, x.leaves, x.gone FROM replica_nodes x WHERE x.name = r.node OFFSET 0) n ON true
    WHERE r.deployment = d.name AND r.ended_at IS NULL OFFSET 0) c
WHERE d.name > @after::text AND mod(hashtext(d.name)::bigint + 2147483648, @shards::bigint) = @shard::bigint
  AND d.seen_at < now() - make_interval(secs => @older_seconds::float8)
  AND (d.wake_at <= now() OR c.wrong OR c.unheard
       OR EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'deployment.' || d.name AND o.state = 'running' OFFSET 0)
       OR d.state = 'TERMINATED' AND d.next_uid IS NOT NULL
       OR d.state <> 'TERMINATED' AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = d.name
                                                 AND o.uid = d.uid AND o.deleting_since IS NULL OFFSET 0)
       OR d.revision > 0 AND w.wanted = 'started' AND d.state <> 'TERMINATED' AND (d.revision > d.began OR d.process_version > d.began_version)
       OR d.wake_at IS NULL AND d.revision > 0
          AND c.live <> CASE WHEN w.wanted = 'started' AND d.state IN ('PENDING', 'PROVISIONING', 'RUNNING') THEN d.target
                             WHEN w.wanted = 'started' AND d.state = 'ERROR' THEN c.live ELSE 0 END)
ORDER BY d.name LIMIT @max_rows;

-- name: CountDeployments :one
SELECT count(*) FROM deployments WHERE state <> 'TERMINATED';

-- name: CountDeploymentStates :many
SELECT state, count(*) AS count FROM deployments GROUP BY state;
