-- name: ActiveRollout :one
SELECT * FROM rollouts WHERE deployment = @deployment AND ended_at IS NULL;

-- The newest 100 are kept (F76).
-- name: InsertRollout :one
WITH old AS (DELETE FROM rollouts o WHERE o.deployment = @deployment AND o.ended_at IS NOT NULL
             AND o.number <= (SELECT max(x.number) FROM rollouts x WHERE x.deployment = @deployment) - 99)
INSERT INTO rollouts (deployment, number, uid, project, from_revision, to_revision, process_version, strategy, state, began_in, from_target, step, at_start, progress, min_healthy, deadline_at, created_by)
SELECT @deployment, coalesce(max(r.number), 0) + 1, @uid, @project, @from_revision, @to_revision, @process_version, @strategy, @state, @began_in, @from_target::integer, @step, @at_start, @progress, @min_healthy::float8,
       now() + make_interval(secs => @seconds::float8), @created_by
FROM rollouts r WHERE r.deployment = @deployment
RETURNING *;

-- name: MoveRollout :exec
UPDATE rollouts SET state = @state, since = CASE WHEN state = @state THEN since ELSE clock_timestamp() END, reason = @reason, message = @message, failure = @failure,
    step = @step, step_at = sqlc.narg(step_at), want = @want, proven = @proven, most = @most, progress_at = @progress_at, clock = @clock, until = sqlc.narg(until), short = @short,
    failures = @failures, failed_at = sqlc.narg(failed_at), crashes = @crashes, owed = @owed, next_attempt = sqlc.narg(next_attempt), ended_at = CASE WHEN @active::boolean THEN NULL ELSE clock_timestamp() END
WHERE deployment = @deployment AND number = @number;

-- An edit that no replica has to be replaced for joins the rollout.
-- name: JoinRollout :exec
UPDATE rollouts SET to_revision = @to_revision, strategy = @strategy, progress = @progress, min_healthy = @min_healthy::float8, progress_at = now(), clock = 'joined',
    deadline_at = greatest(deadline_at, now() + make_interval(secs => @seconds::float8))
WHERE deployment = @deployment AND ended_at IS NULL;

-- A pause moves the deadlines of what waits for the rollout.
-- name: TurnRollout :exec
WITH paused AS (SELECT r.deployment, r.process_version, now() - r.since AS long FROM rollouts r
                WHERE r.deployment = @deployment AND r.number = @number AND r.state = 'PAUSED'),
     moved AS (UPDATE operations o SET deadline_at = o.deadline_at + p.long FROM paused p
               WHERE o.subject = 'deployment.' || p.deployment AND o.process_version = p.process_version AND o.state = 'running')
UPDATE rollouts t SET state = @state, since = clock_timestamp(), reason = @reason, message = @message, progress_at = now(), clock = CASE WHEN t.state = 'PAUSED' THEN 'paused' ELSE 'step' END,
    step = @step, step_at = sqlc.narg(step_at), deadline_at = t.deadline_at + CASE WHEN t.state = 'PAUSED' THEN now() - t.since ELSE interval '0' END,
    ended_at = CASE WHEN @active::boolean THEN NULL ELSE clock_timestamp() END
WHERE t.deployment = @deployment AND t.number = @number;

-- The revision that was rolled out is the deployment's own from now on.
-- name: AdoptRevision :one
UPDATE deployments SET revision = @revision, process_version = @process_version, began = @revision, began_version = @process_version,
    stable = CASE WHEN target > 0 THEN @revision ELSE stable END,
    from_version = CASE WHEN revision = @revision THEN @process_version ELSE from_version END, updated_at = now()
WHERE name = @name RETURNING *;

-- The stable revision gets a version above that of the one that it comes back from; what runs of it stays. The
-- target is as before the release.
-- name: RaiseStable :one
UPDATE deployments SET target = coalesce((SELECT r.from_target FROM rollouts r WHERE r.deployment = deployments.name AND r.ended_at IS NULL), target),
    process_version = greatest(last_version, process_version) + 1, began_version = greatest(last_version, process_version) + 1, last_version = greatest(last_version, process_version) + 1, updated_at = now()
WHERE name = @name RETURNING *;

-- A rollout that starts what does not run begins with the stable revision as the deployment's own, as though nothing had failed.
-- name: BeginWithStable :one
UPDATE deployments SET revision = stable, began = stable, process_version = @version, began_version = @version, last_version = @version, attempts = 0, crashes = 0,
    next_attempt = NULL, owed = 0, updated_at = now()
WHERE name = @name AND stable IS NOT NULL RETURNING *;

-- name: ListRollouts :many
SELECT r.* FROM rollouts r JOIN deployments d ON d.name = r.deployment AND d.project = r.project
WHERE r.deployment = @deployment AND (@before::bigint = 0 OR r.number < @before)
ORDER BY r.number DESC LIMIT @max_rows;

-- name: CountRoutable :one
SELECT count(*) FROM replicas r
JOIN LATERAL (SELECT s.heard FROM replica_nodes s WHERE s.name = r.node OFFSET 0) n ON n.heard
WHERE r.deployment = @deployment AND r.ended_at IS NULL AND r.state = 'HEALTHY' AND NOT r.unready;

-- Of the declaration that runs; one under way is the newest.
-- name: NewestRollouts :many
SELECT r.* FROM deployments d JOIN rollouts r ON r.deployment = d.name AND r.uid = d.uid
 AND r.number = (SELECT max(x.number) FROM rollouts x WHERE x.deployment = d.name)
WHERE d.name = ANY(@names::text[]);

-- Since when a server of the link was there, and 30 s more.
-- name: RegionThere :one
SELECT coalesce((SELECT l.since FROM link_there l), now())::timestamptz AS since;

-- A scale starts the time of a rollout again, and stays after a return.
-- name: ScaledRollout :exec
UPDATE rollouts SET progress_at = now(), clock = 'scaled', from_target = NULL WHERE deployment = @deployment AND ended_at IS NULL;

-- What a rollback without a revision finds. Before is the newest that ran as it was to, of another object than the deployment's own.
-- name: SeeRollback :one
SELECT d.revision AS own, coalesce(n.revision, 0)::bigint AS newest, coalesce(d.stable, 0)::bigint AS stable,
       coalesce(n.revision > d.revision AND n.process_version = 0, false)::boolean AS waits,
       EXISTS (SELECT 1 FROM rollouts r WHERE r.deployment = d.name AND r.ended_at IS NULL AND r.to_revision <> d.revision)::boolean AS rolls_out,
       (d.target = 0 OR coalesce(w.spec ->> 'state' = 'stopped', true))::boolean AS idle,
       coalesce((SELECT max(v.revision) FROM deployment_revisions v
                 WHERE v.deployment = d.name AND v.uid = d.uid AND coalesce(v.object, v.definition) <> coalesce(w.object, w.definition)
                   AND (v.revision = d.stable OR EXISTS (
                       SELECT 1 FROM rollouts r WHERE r.deployment = d.name AND r.uid = d.uid
                          AND (r.from_revision = v.revision OR r.to_revision = v.revision AND r.state = 'DEPLOYED' AND r.reason <> 'unproven')))), 0)::bigint AS before
FROM deployments d
LEFT JOIN deployment_revisions w ON w.deployment = d.name AND w.revision = d.revision
LEFT JOIN LATERAL (SELECT v.revision, v.process_version FROM deployment_revisions v
                   WHERE v.deployment = d.name AND v.uid = d.uid ORDER BY v.revision DESC LIMIT 1) n ON true
WHERE d.name = @deployment;
