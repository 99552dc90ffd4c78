-- name: CordonNode :execrows
UPDATE nodes SET cordoned_at = now(), cordon_reason = @reason WHERE name = @name AND cordoned_at IS NULL;

-- Gives the reason that it was cordoned for.
-- name: UncordonNode :one
WITH was AS (SELECT x.name, x.cordon_reason FROM nodes x WHERE x.name = @name AND x.cordoned_at IS NOT NULL FOR UPDATE)
UPDATE nodes n SET cordoned_at = NULL, cordon_reason = '' FROM was WHERE n.name = was.name
RETURNING was.cordon_reason;

-- name: LiveOfNode :many
SELECT id FROM connections WHERE node = @node AND ended_at IS NULL;

-- The earlier deadline counts, and once forced is forced.
-- name: AskNodeDrain :exec
INSERT INTO node_drains AS d (node, newest, reason, forced, phase, deadline)
VALUES (@node, @operation, @reason, @forced, 'moving', now() + make_interval(secs => @seconds::float8))
ON CONFLICT (node) DO UPDATE SET
    newest = excluded.newest,
    reason = CASE WHEN d.ended_at IS NULL THEN d.reason ELSE excluded.reason END,
    forced = CASE WHEN d.ended_at IS NULL THEN d.forced OR excluded.forced ELSE excluded.forced END,
    phase = CASE WHEN d.ended_at IS NULL THEN d.phase ELSE 'moving' END,
    rule = CASE WHEN d.ended_at IS NULL THEN d.rule ELSE '' END,
    message = CASE WHEN d.ended_at IS NULL THEN d.message ELSE '' END,
    asked_at = CASE WHEN d.ended_at IS NULL THEN d.asked_at ELSE excluded.asked_at END,
    deadline = CASE WHEN d.ended_at IS NULL THEN least(d.deadline, excluded.deadline) ELSE excluded.deadline END,
    ended_at = NULL;

-- Where the region went away in mid-drain (it is back 30 s before link_there), it has some time once its nodes could
-- be back. As long as nobody is there to speak to them the operations go by their own deadline.
-- name: GiveDrainTime :exec
WITH given AS (
    UPDATE node_drains d SET deadline = l.since + make_interval(secs => @seconds::float8)
    FROM link_there l
    WHERE d.node = @node AND d.ended_at IS NULL AND d.deadline < l.since + make_interval(secs => @seconds::float8)
      AND d.asked_at < l.since - interval '30 seconds'
    RETURNING d.node, d.deadline)
UPDATE operations o SET deadline_at = g.deadline + make_interval(secs => @room::float8)
FROM given g
WHERE o.subject = 'drain.' || g.node AND o.kind = 'drain' AND o.state = 'running' AND o.deadline_at < g.deadline + make_interval(secs => @room::float8)
  AND EXISTS (SELECT 1 FROM link_servers l WHERE l.seen_at > now() - make_interval(secs => l.silence_seconds));

-- name: GetNodeDrain :one
SELECT * FROM node_drains WHERE node = @node;

-- name: NodeDrains :many
SELECT sqlc.embed(d), (SELECT coalesce(sum(c.in_flight), 0) FROM connections c WHERE c.node = d.node AND c.ended_at IS NULL)::bigint AS in_flight
FROM node_drains d WHERE d.node = ANY(@nodes::text[]);

-- name: NoteNodeDrain :exec
UPDATE node_drains SET phase = @phase, rule = @rule, message = @message WHERE node = @node AND ended_at IS NULL;

-- The other nodes that may hold the lease of a node's site. One that was taken back, is
-- cordoned, has not started since it enrolled or is not on the link is not ready to.
-- name: PeersForDrain :many
SELECT n.name, coalesce(n.enrolled_at IS NOT NULL AND n.revoked_at IS NULL AND n.cordoned_at IS NULL
                        AND n.started_at >= n.enrolled_at
                        AND EXISTS (SELECT 1 FROM connections c WHERE c.node = n.name AND c.ended_at IS NULL AND c.state = 'Active'), false)::boolean AS ready
FROM nodes n WHERE n.site = @site AND n.name <> @node AND n.role <> 'worker' AND n.removed_at IS NULL
ORDER BY n.name;

-- What a drain has asked of its site's lease, and which of that is under way.
-- name: FailoversOfDrain :one
SELECT count(*) AS asked, coalesce(max(id) FILTER (WHERE state = 'running'), '')::text AS running
FROM operations WHERE drain_of = @node::text AND drain_of <> '' AND created_at >= @since;

-- name: CancelFailoversOfDrain :many
UPDATE operations SET cancel_requested = true WHERE drain_of = @node::text AND drain_of <> '' AND state = 'running' AND NOT cancel_requested
RETURNING subject;

-- name: CountRunningOn :one
SELECT count(*) FROM node_held WHERE node = @node AND running AND NOT deleted;

-- The replicas that do not leave a node, for their deployments make nothing and they are needed: what was
-- asked of these since is not done yet. Names are told to those who may know them.
-- name: GivenUpOn :one
SELECT count(*) AS replicas, coalesce(array_agg(DISTINCT d.name ORDER BY d.name) FILTER (WHERE d.project = s.project), '{}')::text[] AS deployments
FROM replicas r JOIN deployments d ON d.name = r.deployment
LEFT JOIN objects s ON s.kind = 'site' AND s.scope = '' AND s.name = @site
WHERE r.node = @node AND r.ended_at IS NULL AND r.state = 'HEALTHY' AND NOT r.lost
  AND d.state = 'ERROR' AND d.revision <= d.began AND d.process_version <= d.began_version
  AND EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = d.name AND o.uid = d.uid AND o.deleting_since IS NULL)
  AND (SELECT count(*) FROM replicas x WHERE x.deployment = d.name AND x.ended_at IS NULL AND x.state = 'HEALTHY') <= d.target;

-- What ended before the drain began says nothing of it. One that was asked to go later than
-- the drain ends by now is to be asked again.
-- name: ConnectionsOfDrain :many
SELECT c.id, c.provider, c.state, c.reason, c.in_flight,
       coalesce(c.drain_asked_at IS NOT NULL AND (c.ended_at IS NOT NULL OR c.drain_deadline <= d.deadline), false)::boolean AS asked,
       (c.drain_acked_at IS NOT NULL)::boolean AS acked
FROM connections c JOIN node_drains d ON d.node = c.node
WHERE c.node = @node AND (c.ended_at IS NULL OR c.ended_at >= d.asked_at)
ORDER BY c.registered_at, c.id;

-- The last one of each provider, where it ended before the drain began.
-- name: ConnectionsBeforeDrain :many
SELECT x.id, x.provider, x.state, x.reason, x.ended_at::timestamptz AS ended_at
FROM (SELECT DISTINCT ON (c.provider) c.id, c.provider, c.state, c.reason, c.ended_at FROM connections c
      WHERE c.node = @node ORDER BY c.provider, c.registered_at DESC, c.id DESC) x
JOIN node_drains d ON d.node = @node AND x.ended_at < d.asked_at;

-- name: AskConnectionsOfDrain :many
UPDATE connections c SET
    drain_reason = CASE WHEN c.drain_asked_at IS NULL THEN d.reason ELSE c.drain_reason END,
    drain_asked_at = coalesce(c.drain_asked_at, now()), drain_deadline = least(c.drain_deadline, d.deadline)
FROM node_drains d
WHERE d.node = @node AND d.ended_at IS NULL AND c.node = d.node AND c.id = ANY(@ids::text[])
  AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining')
RETURNING c.id;

-- name: CutConnectionsOfDrain :many
UPDATE connections c SET state = 'Disconnected', reason = @reason, ended_at = now()
FROM node_drains d
WHERE d.node = @node AND d.ended_at IS NULL AND c.node = d.node AND c.id = ANY(@ids::text[])
  AND c.ended_at IS NULL AND c.drain_deadline <= now() AND c.state = ANY(@states::text[])
RETURNING c.id;

-- name: EndNodeDrain :execrows
UPDATE node_drains d SET phase = 'ended', rule = @rule, message = @message, ended_at = now()
WHERE d.node = @node AND d.ended_at IS NULL AND d.newest = @newest
  AND (NOT @only_unwanted::boolean OR NOT EXISTS (SELECT 1 FROM operations o WHERE o.subject = 'drain.' || d.node AND o.kind = 'drain' AND o.state = 'running'));

-- The nodes whose drain waits for one of these connections.
-- name: DrainsOfConnections :many
SELECT DISTINCT d.node FROM node_drains d JOIN connections c ON c.node = d.node
WHERE d.ended_at IS NULL AND c.id = ANY(@ids::text[]);
