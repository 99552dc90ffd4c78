-- name: InsertOperation :one
INSERT INTO operations (id, kind, site, name, subject, revision, project, state, requested_by, door_workflow, door_run, deadline_at,
                        process_version, target, forced, drain_of, stop_first)
VALUES (@id, @kind, @site, @name, @subject, @revision, @project, 'running', @requested_by, @door_workflow, @door_run,
        now() + make_interval(secs => @seconds::float8), @process_version, @target, @forced, @drain_of, @stop_first)
RETURNING *;

-- name: OperationByDoor :one
SELECT * FROM operations WHERE door_workflow = @door_workflow AND door_run = @door_run;

-- name: GetOperation :one
SELECT * FROM operations WHERE id = @id;

-- name: GetOperations :many
SELECT * FROM operations WHERE id = ANY(@ids::text[]) ORDER BY name;

-- The name of a reconcile, a drain or a failover is that of a node, of a fleet that of a fleet change.
-- name: ListOperations :many
SELECT * FROM operations
WHERE (created_at, id) < (@before_at::timestamptz, @before_id::text) AND (@project::text = '' OR project = @project)
  AND (@state::text = '' OR state = @state) AND (@site::text = '' OR site = @site)
  AND (@name::text = '' OR name = @name AND starts_with(subject, 'instance.'))
  AND (@node::text = '' OR name = @node AND split_part(subject, '.', 1) IN ('node', 'drain', 'site'))
  AND (@fleet::text = '' OR name = @fleet AND starts_with(subject, 'fleet.'))
  AND (@deployment::text = '' OR name = @deployment AND starts_with(subject, 'deployment.'))
ORDER BY created_at DESC, id DESC LIMIT @max_rows;

-- name: ServeOperations :exec
UPDATE operations SET entity_run = @run, entity_build = @build
WHERE subject = ANY(@subjects::text[]) AND state = 'running' AND (entity_run <> @run OR entity_build <> @build);

-- Apart from EndOperationsMany: a cancellation writes the row without the lock of the subject, and
-- an update by its key waits for that; only one subject asks for a run, or for what was cancelled.
-- name: EndOperations :exec
WITH ended AS (
UPDATE operations SET state = @state, reason = @reason, message = @message, ended_at = now(),
       delivery_id = coalesce(nullif(@delivery_id::text, ''), delivery_id)
WHERE subject = @subject AND state = 'running' AND revision >= @from_revision AND revision <= @to_revision
  AND (NOT @only_cancelled::boolean OR cancel_requested) AND (@run::text = '' OR entity_run = @run) AND (@kind::text = '' OR kind = @kind)
RETURNING id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- name: EndOperation :execrows
UPDATE operations SET state = @state, reason = @reason, message = @message, ended_at = now()
WHERE id = @id AND state = 'running';

-- Apart from AttachDeliveries, because a cancellation writes the row without the lock of the subject.
-- name: AttachDelivery :exec
UPDATE operations SET delivery_id = @delivery_id WHERE subject = @subject AND state = 'running' AND revision <= @revision;

-- name: RequestCancel :one
UPDATE operations SET cancel_requested = true WHERE id = @id AND state = 'running' RETURNING *;

-- name: UntoldDoors :many
SELECT * FROM operations WHERE state <> 'running' AND door_run <> '' AND NOT door_told
  AND (@subject::text = '' OR subject = @subject) ORDER BY ended_at LIMIT @max_rows;

-- name: DoorTold :exec
UPDATE operations SET door_told = true WHERE id = @id;

-- Also what nobody will ask for again: a delivery whose answer was lost and that is owed to
-- nobody (it was cancelled, or the attempt after it was refused), once its active is there.
-- What an open batch delivers is left to it.
-- name: OpenSubjects :many
SELECT s.site, s.name, s.entity_run FROM subjects s
WHERE (s.site, s.name) > (@after_site::text, @after_name::text) AND (s.site, s.name) IN (
    SELECT o.site, o.name FROM operations o
    WHERE o.state = 'running' AND starts_with(o.subject, 'instance.') AND o.created_at < now() - make_interval(secs => @older_seconds::float8)
    UNION SELECT d.site, d.name FROM deliveries d WHERE d.state = 'open'
    UNION SELECT w.site, w.name FROM owed_now w WHERE w.since < now() - make_interval(secs => @older_seconds::float8)
    UNION SELECT d.site, d.name FROM deliveries d
    JOIN site_leases l ON l.site = d.site AND NOT l.dropped JOIN nodes n ON n.name = l.holder
    WHERE d.state NOT IN ('open', 'succeeded', 'staged') AND d.settled_as IS NULL
      AND d.ended_at < now() - make_interval(secs => @older_seconds::float8)
      AND n.seen_at > now() - make_interval(secs => @heard_seconds::float8))
  AND NOT EXISTS (SELECT 1 FROM deliveries i JOIN batches b ON b.id = i.batch_id
                  WHERE i.site = s.site AND i.name = s.name AND i.state = 'open' AND b.state = 'open' OFFSET 0)
ORDER BY s.site, s.name LIMIT @max_rows;

-- name: CountRunning :one
SELECT count(*) FROM operations WHERE subject = @subject AND state = 'running' AND (@kind::text = '' OR kind = @kind);

-- name: LastProject :one
SELECT coalesce((SELECT nullif(s.project, '') FROM subjects s WHERE s.site = @site AND s.name = @name),
                (SELECT o.project FROM operations o WHERE o.site = @site AND o.name = @name AND starts_with(o.subject, 'instance.')
                 ORDER BY o.created_at DESC LIMIT 1), '')::text AS project;

-- Those on deployments are ended by their entities, which know what was awaited; they are given
-- some time for that. What they said last is there for when they do not. A drain has time when the region is back.
-- name: OverdueOperations :many
SELECT o.id, o.kind, coalesce(d.message, '')::text AS message, coalesce(d.awaited, '')::text AS awaited, (d.name IS NOT NULL)::boolean AS of_deployment
FROM operations o
LEFT JOIN deployments d ON d.name = o.name AND o.kind IN ('converge', 'scale', 'restart', 'destroy', 'return')
WHERE o.state = 'running' AND o.deadline_at < now() - make_interval(secs => CASE WHEN d.name IS NULL THEN 0 ELSE @entity_seconds::float8 END)
  AND NOT (o.kind = 'drain' AND (SELECT l.since + make_interval(secs => @entity_seconds::float8) > now() FROM link_there l)
           AND EXISTS (SELECT 1 FROM link_servers l WHERE l.seen_at > now() - make_interval(secs => l.silence_seconds)))
  AND NOT (o.kind IN ('converge', 'return', 'restart') AND EXISTS (SELECT 1 FROM rollouts r WHERE r.deployment = o.name AND r.ended_at IS NULL
                                                                   AND o.process_version IN (r.process_version, 0))) -- they end with it, or begin
ORDER BY o.deadline_at LIMIT @max_rows;

-- name: NotifyOperation :exec
SELECT pg_notify('holdfast_operation', @id::text);
