-- What a node is told to end by name although its row has ended, and what a node has that nobody
-- told it to run. Rows are locked in the order of replicas' ids; the node's set comes after them.

-- Of what ends without its node's word that it ended it as it was told. One that is removed or revoked
-- may come back.
-- name: BuryReplicas :exec
INSERT INTO replica_tombstones (node, replica, deployment, stop_seconds, listed, uid, process_version, ended)
SELECT r.node, r.id, r.deployment, r.stop_seconds, s.version, r.uid, r.process_version, r.phase IN ('exited', 'failed', 'stopped')
FROM replicas r JOIN node_sets s ON s.node = r.node
WHERE r.id = ANY(@ids::text[]) AND NOT r.lost
ORDER BY r.id
ON CONFLICT (node, replica) DO UPDATE SET listed = excluded.listed;

-- By a node's word, or an operator's, of what has no live row there. Stop is 0 where the node knows it.
-- name: BuryUnlisted :exec
INSERT INTO replica_tombstones (node, replica, deployment, stop_seconds, listed, uid, process_version, ended)
SELECT @node, u.id, u.deployment, coalesce(r.stop_seconds, 0), @listed, r.uid, coalesce(r.process_version, 0),
       u.phase IN ('exited', 'failed', 'stopped')
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@deployments::text[]) AS deployment, unnest(@phases::text[]) AS phase) u
LEFT JOIN replicas r ON r.id = u.id AND r.node = @node
ORDER BY u.id
ON CONFLICT (node, replica) DO NOTHING;

-- What a node says of replicas that have no live row there.
-- name: SeeUnlisted :many
SELECT u.id::text AS id, (t.replica IS NOT NULL)::boolean AS named, (o.replica IS NOT NULL)::boolean AS listed,
       (r.ended_at IS NOT NULL)::boolean AS ended, coalesce(r.deployment, '')::text AS deployment, r.uid
FROM (SELECT unnest(@ids::text[]) AS id) u
LEFT JOIN replica_tombstones t ON t.node = @node AND t.replica = u.id
LEFT JOIN orphan_replicas o ON o.node = @node AND o.replica = u.id
LEFT JOIN replicas r ON r.id = u.id AND r.node = @node
ORDER BY u.id;

-- Nothing of them runs, by the node's word. By a report of the whole that is all that it does not name; of
-- what was named to it later than the set that it had, it says nothing.
-- name: ConfirmTombstones :execrows
DELETE FROM replica_tombstones x WHERE x.node = @node AND x.replica = ANY(ARRAY(
    SELECT t.replica FROM replica_tombstones t
    WHERE t.node = @node AND (t.replica = ANY(@stopped::text[])
        OR @whole::boolean AND t.listed <= @held::bigint AND NOT (t.replica = ANY(@said::text[])))
    ORDER BY t.replica FOR UPDATE));

-- name: ForgetOrphanReplicas :exec
DELETE FROM orphan_replicas x WHERE x.node = @node AND x.replica = ANY(ARRAY(
    SELECT o.replica FROM orphan_replicas o
    WHERE o.node = @node AND (o.replica = ANY(@stopped::text[]) OR @whole::boolean AND NOT (o.replica = ANY(@said::text[])))
    ORDER BY o.replica FOR UPDATE));

-- name: ListOrphanReplicas :exec
INSERT INTO orphan_replicas AS o (node, replica, deployment, revision, phase, reason)
SELECT @node, u.id, u.deployment, u.revision, u.phase, u.reason
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@deployments::text[]) AS deployment, unnest(@revisions::bigint[]) AS revision,
             unnest(@phases::text[]) AS phase, unnest(@reasons::text[]) AS reason) u
ORDER BY u.id
ON CONFLICT (node, replica) DO UPDATE SET phase = excluded.phase,
    deployment = CASE WHEN o.deployment = '' THEN excluded.deployment ELSE o.deployment END,
    revision = CASE WHEN o.deployment = '' THEN excluded.revision ELSE o.revision END;

-- Held against a report that lists or forgets them meanwhile.
-- name: LockOrphanReplicas :many
SELECT o.*, (CASE WHEN replica_project(o.deployment, o.revision) IS NULL AND EXISTS (SELECT 1 FROM deployments d WHERE d.name = o.deployment)
                  THEN '' ELSE o.deployment END)::text AS known_of
FROM orphan_replicas o WHERE o.node = @node AND (@every::boolean OR o.replica = ANY(@ids::text[]))
  AND (@project::text = '' OR replica_project(o.deployment, o.revision) = @project)
ORDER BY o.replica FOR UPDATE;

-- The name is another project's now, or nobody knows whose it was: what ends goes on ending, and is shown to
-- nobody as theirs.
-- name: ForgetTombstonesOf :exec
UPDATE replica_tombstones x SET deployment = '' WHERE (x.node, x.replica) IN (
    SELECT t.node, t.replica FROM replica_tombstones t WHERE t.deployment = @deployment ORDER BY t.replica FOR UPDATE);

-- name: ApproveOrphanReplicas :exec
UPDATE orphan_replicas SET approved_by = @actor, approved_at = now()
WHERE node = @node AND approved_at IS NULL AND replica = ANY(@ids::text[]);

-- The nodes that were told to end some of a declaration, and have not said yet that nothing of it runs.
-- name: UnconfirmedNodes :many
SELECT t.node, min(t.process_version)::bigint AS process_version, n.removed_at, n.revoked_at
FROM replica_tombstones t JOIN nodes n ON n.name = t.node
WHERE t.deployment = @deployment AND t.uid = @uid::uuid AND NOT t.ended
GROUP BY t.node, n.removed_at, n.revoked_at ORDER BY t.node;

-- What may run of a deployment and counts no more. Deployments are few that have any.
-- Those of which nobody can say whose they are only who sees all is to see.
-- name: UncountedReplicas :many
SELECT u.replica::text AS replica, u.node::text AS node, u.reason::text AS reason, u.since::timestamptz AS since FROM (
    SELECT t.replica, t.node, 'told_to_end' AS reason, t.since FROM replica_tombstones t WHERE t.deployment = @deployment
    UNION ALL
    SELECT o.replica, o.node, o.reason, o.since FROM orphan_replicas o
    WHERE o.deployment = @deployment AND o.approved_at IS NULL AND o.phase NOT IN ('exited', 'failed', 'stopped')
      AND (@every::boolean OR replica_project(o.deployment, o.revision) IS NOT NULL)) u
ORDER BY u.since DESC, u.replica LIMIT @max_rows;

-- Those that run, by their node's last word.
-- name: CountOrphanReplicasOn :one
SELECT count(*) FROM orphan_replicas WHERE node = @node AND approved_at IS NULL AND phase NOT IN ('exited', 'failed', 'stopped');
