-- name: DeliveryByClaim :one
SELECT * FROM deliveries WHERE claim = @claim AND batch_id = '';

-- name: GetDelivery :one
SELECT * FROM deliveries WHERE id = @id;

-- name: LockDelivery :one
SELECT * FROM deliveries WHERE id = @id FOR UPDATE;

-- name: OpenDelivery :one
SELECT * FROM deliveries WHERE site = @site AND name = @name AND state = 'open';

-- name: InsertDeliveries :exec
INSERT INTO deliveries (id, site, name, revision, attempt, claim, node, epoch, from_revision, from_generation, state, phase,
                        requested_by, workflow_id, run_id, deadline_at, batch_id)
SELECT k.id, @site, k.name, k.revision, k.attempt, k.claim, @node, @epoch, k.from_revision,
       coalesce((SELECT r.generation FROM revisions r WHERE r.site = @site AND r.name = k.name AND r.revision = k.from_revision), 0), 'open', @phase,
       k.requested_by, @workflow_id, @run_id, now() + make_interval(secs => @seconds::float8), @batch_id
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision,
             unnest(@attempts::bigint[]) AS attempt, unnest(@claims::text[]) AS claim, unnest(@from_revisions::bigint[]) AS from_revision,
             unnest(@requested_by::text[]) AS requested_by) k;

-- name: EndDeliveries :exec
UPDATE deliveries d SET state = k.state, phase = 'closed', reason = k.reason, message = k.message,
       settled_as = nullif(k.settled_as, ''), ended_at = now()
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM deliveries x WHERE x.id = k.id)) AS place
      FROM (SELECT unnest(@ids::text[]) AS id, unnest(@states::text[]) AS state, unnest(@reasons::text[]) AS reason,
             unnest(@messages::text[]) AS message, unnest(@settled_as::text[]) AS settled_as) k OFFSET 0) k
WHERE d.ctid = k.place AND d.state = @open::text;

-- name: SetPhase :exec
UPDATE deliveries d SET phase = @phase
FROM (SELECT unnest(ARRAY(SELECT x.ctid FROM deliveries x WHERE x.id = k.id)) AS place
      FROM (SELECT unnest(@ids::text[]) AS id) k OFFSET 0) k
WHERE d.ctid = k.place AND d.state = @open::text;

-- An open delivery follows its active to the next epoch, unless that may be at work or has failed: a new pair raises its epoch in its
-- first seconds. No other node held the lease in between. What a node refused as stale it is notified of as for the first time.
-- name: FollowLease :many
WITH followed AS (
UPDATE deliveries d SET epoch = @epoch::bigint, claim = @claim, workflow_id = @workflow_id, run_id = @run_id,
       phase = CASE WHEN d.phase = 'recorded' THEN d.phase ELSE 'persisted' END
WHERE d.site = @site AND d.name = @name AND d.state = 'open' AND d.batch_id = '' AND d.revision = @revision AND d.node = @node
  AND d.epoch + 1 = @epoch::bigint
  AND EXISTS (SELECT 1 FROM delivery_nodes t WHERE t.delivery_id = d.id AND t.node = d.node
              AND (t.state IN ('waiting', 'applied') OR t.state = 'failed' AND t.reason = 'stale'))
RETURNING d.id), again AS (
UPDATE delivery_nodes t SET state = 'waiting', reason = '', message = '', tries = 0, updated_at = now()
FROM followed f WHERE t.delivery_id = f.id AND t.state = 'failed' AND t.reason = 'stale')
SELECT id FROM followed;

-- name: SupersedeOpen :exec
UPDATE deliveries d SET state = 'superseded', phase = CASE WHEN d.phase = 'recorded' THEN 'recorded' ELSE 'closed' END,
       reason = 'newer_revision', ended_at = now(),
       settled_as = CASE WHEN d.phase = 'recorded' THEN 'applied'
                         WHEN d.phase = 'persisted' OR EXISTS (SELECT 1 FROM batches b WHERE b.id = d.batch_id AND b.stage) THEN 'not_applied' END
FROM (SELECT unnest(ARRAY(SELECT x.ctid FROM deliveries x WHERE x.site = @site AND x.name = k.name AND x.state = 'open')) AS place
      FROM (SELECT unnest(@names::text[]) AS name) k OFFSET 0) k
WHERE d.ctid = k.place;

-- name: SettleStaged :exec
UPDATE deliveries d SET settled_as = 'not_applied'
FROM (SELECT unnest(ARRAY(SELECT x.ctid FROM deliveries x
                          WHERE x.site = @site AND x.name = k.name AND x.state = 'staged' AND x.settled_as IS NULL)) AS place
      FROM (SELECT unnest(@names::text[]) AS name) k OFFSET 0) k
WHERE d.ctid = k.place;

-- name: DeletePendingOf :exec
DELETE FROM pending WHERE site = @site AND name = ANY(@names::text[]);

-- name: InsertPending :exec
INSERT INTO pending (deployment_id, site, name, revision, revision_hash, expires_at)
SELECT k.id, @site, k.name, k.revision, k.revision_hash, now() + make_interval(secs => @seconds::float8)
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision,
             unnest(@hashes::bytea[]) AS revision_hash) k;

-- name: ClosePending :exec
DELETE FROM pending WHERE deployment_id = ANY(@ids::text[]);

-- Apart from ExtendPendingMany: the progress of one fetch knows no deadline, and extends exactly.
-- name: ExtendPending :exec
UPDATE pending p SET expires_at = greatest(p.expires_at, least(d.deadline_at, now() + make_interval(secs => @seconds::float8)))
FROM deliveries d WHERE d.id = p.deployment_id AND p.deployment_id = @deployment_id;

-- What a node is told of it can fetch, also where the row expired and was purged since.
-- name: OfferPending :exec
INSERT INTO pending (deployment_id, site, name, revision, revision_hash, expires_at)
SELECT d.id, d.site, d.name, d.revision, r.body_hash, least(d.deadline_at, now() + make_interval(secs => @seconds::float8))
FROM deliveries d JOIN revisions r ON r.site = d.site AND r.name = d.name AND r.revision = d.revision
WHERE d.id = @deployment_id AND d.state = 'open'
ON CONFLICT (deployment_id) DO UPDATE SET expires_at = greatest(pending.expires_at, excluded.expires_at);

-- Those whose row was purged, after the others were extended: what is being purged is gone by then.
-- Apart from OfferPending, which extends or offers one row with one statement.
-- name: OfferPendingMany :exec
INSERT INTO pending (deployment_id, site, name, revision, revision_hash, expires_at)
SELECT d.id, d.site, d.name, d.revision, r.body_hash, least(@deadline::timestamptz, now() + make_interval(secs => @seconds::float8))
FROM deliveries d
JOIN LATERAL (SELECT x.* FROM revisions x WHERE x.site = d.site AND x.name = d.name AND x.revision = d.revision OFFSET 0) r ON true
WHERE d.id = ANY(@ids::text[]) AND d.state = @open::text
  AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.deployment_id = d.id OFFSET 0);

-- name: PurgePending :many
DELETE FROM pending WHERE deployment_id IN (
    SELECT p.deployment_id FROM pending p WHERE p.expires_at < now() ORDER BY p.expires_at LIMIT @max_rows FOR UPDATE SKIP LOCKED)
RETURNING deployment_id;

-- name: PurgeTickets :execrows
DELETE FROM snapshot_tickets WHERE id IN (SELECT t.id FROM snapshot_tickets t WHERE t.expires_at < now() LIMIT @max_rows);

-- name: PurgeTokens :execrows
DELETE FROM fetch_tokens WHERE (deployment_id, hash) IN (SELECT t.deployment_id, t.hash FROM fetch_tokens t WHERE t.expires_at < now() LIMIT @max_rows);

-- The holder of the lease is the active, whatever its configured role. The node that is told at
-- once (told, else '') is what TellTargets would make of it.
-- name: InsertTargets :exec
INSERT INTO delivery_nodes (delivery_id, node, role, total, state, tries, notice)
SELECT k.id, n.name, CASE WHEN n.name = @holder::text THEN 'active' ELSE 'standby' END, k.total,
       CASE WHEN n.name = @told::text THEN 'notified' ELSE 'waiting' END,
       CASE WHEN n.name = @told::text THEN 1 ELSE 0 END, CASE WHEN n.name = @told::text THEN 1 ELSE 0 END
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@totals::bigint[]) AS total) k
CROSS JOIN (SELECT x.name FROM nodes x
            WHERE x.site = @site AND x.removed_at IS NULL AND (x.name = @holder::text OR x.role <> 'worker') OFFSET 0) n;

-- name: TargetsOf :many
SELECT * FROM delivery_nodes WHERE delivery_id = ANY(@ids::text[]) ORDER BY delivery_id, role, node;

--- A node that is told has enrolled, so nothing waits for that.
-- name: TellTargets :exec
UPDATE delivery_nodes SET state = 'notified', tries = tries + 1, notice = greatest(notice, @notice), updated_at = now(),
       reason = CASE WHEN state = 'waiting' AND reason = 'unavailable' THEN '' ELSE reason END,
       message = CASE WHEN state = 'waiting' AND reason = 'unavailable' THEN '' ELSE message END
WHERE delivery_id = ANY(@ids::text[]) AND node = @node AND state <> 'applied';

-- Apart from RecordTargets: the progress of a fetch writes the row without the lock of the subject,
-- and an update by its key waits for that.
-- name: SetTarget :execrows
UPDATE delivery_nodes SET state = @state, already = @already, reason = @reason, message = @message,
       fetched = greatest(fetched, @fetched), updated_at = now()
WHERE delivery_id = @delivery_id AND node = @node AND state <> 'applied';

-- name: TargetProgress :exec
UPDATE delivery_nodes SET fetched = greatest(fetched, @fetched), total = greatest(total, @total), updated_at = now()
WHERE delivery_id = @delivery_id AND node = @node;

-- name: InsertFetchTokens :exec
INSERT INTO fetch_tokens (deployment_id, node, hash, expires_at)
SELECT t.id, @node, t.hash, greatest(now() + make_interval(secs => @seconds::float8), sqlc.narg(until)::timestamptz)
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@hashes::bytea[]) AS hash) t;

-- Of a delivery in a batch the batch's tokens are as good as its own.
-- name: PendingContent :one
SELECT r.content_kind, r.body_hash, r.size, r.run,
       ARRAY(SELECT f.node FROM fetch_tokens f WHERE f.deployment_id = ANY(ARRAY[@id, b.id]) AND f.expires_at > now() ORDER BY f.hash)::text[] AS token_nodes,
       ARRAY(SELECT f.hash FROM fetch_tokens f WHERE f.deployment_id = ANY(ARRAY[@id, b.id]) AND f.expires_at > now() ORDER BY f.hash)::bytea[] AS token_hashes
FROM pending p JOIN revisions r ON r.site = p.site AND r.name = p.name AND r.revision = p.revision
LEFT JOIN LATERAL (SELECT a.* FROM deliveries d JOIN batches a ON a.id = d.batch_id WHERE d.id = p.deployment_id AND a.state = 'open' OFFSET 0) b ON true
WHERE p.deployment_id = @id AND p.expires_at > now();

-- name: TicketContent :one
SELECT r.content_kind, r.body_hash, r.size, r.run,
       ARRAY(SELECT f.node FROM fetch_tokens f WHERE f.deployment_id = @id AND f.expires_at > now() ORDER BY f.hash)::text[] AS token_nodes,
       ARRAY(SELECT f.hash FROM fetch_tokens f WHERE f.deployment_id = @id AND f.expires_at > now() ORDER BY f.hash)::bytea[] AS token_hashes
FROM snapshot_tickets t JOIN revisions r ON r.site = t.site AND r.name = t.name AND r.revision = t.revision
WHERE t.id = @id AND t.expires_at > now();

-- name: InsertTicket :one
INSERT INTO snapshot_tickets (id, site, name, node, revision, expires_at)
VALUES (@id, @site, @name, @node, @revision, now() + make_interval(secs => @seconds::float8))
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, expires_at = excluded.expires_at
WHERE snapshot_tickets.revision <= excluded.revision
RETURNING expires_at;

-- name: UnsettledDeliveries :many
SELECT d.id, d.revision, d.node,
       (SELECT r.era FROM revisions r WHERE r.site = d.site AND r.name = d.name AND r.revision = d.revision)::bigint AS era
FROM deliveries d
WHERE d.site = @site AND d.name = @name AND d.state NOT IN ('open', 'succeeded', 'staged') AND d.settled_as IS NULL
ORDER BY d.attempt DESC LIMIT 20;

-- name: SettleDelivery :exec
UPDATE deliveries SET settled_as = @settled_as WHERE id = @id AND state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL;

-- The newest attempt of a revision at a node that was taken for not applied.
-- name: ReopenSettled :execrows
UPDATE deliveries SET settled_as = NULL WHERE id = (
    SELECT d.id FROM deliveries d
    WHERE d.site = @site AND d.name = @name AND d.revision = @revision AND d.node = @node
      AND d.state NOT IN ('open', 'succeeded', 'staged') AND d.settled_as = 'not_applied'
    ORDER BY d.attempt DESC LIMIT 1);

-- name: ListDeliveries :many
SELECT d.*, r.era, r.generation, r.action, r.body_hash, r.reason AS why
FROM deliveries d JOIN revisions r ON r.site = d.site AND r.name = d.name AND r.revision = d.revision
WHERE d.site = @site AND d.name = @name AND d.attempt < @before_attempt
ORDER BY d.attempt DESC LIMIT @max_rows;

-- name: UpsertOwed :exec
INSERT INTO owed (site, name, node, revision, action, due, reason)
SELECT @site, k.name, @node, k.revision, k.action, @due, k.reason
FROM (SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision, unnest(@actions::text[]) AS action,
             unnest(@reasons::text[]) AS reason) k
ON CONFLICT (site, name, node) DO UPDATE SET
    revision = excluded.revision, action = excluded.action, due = excluded.due, reason = excluded.reason, tried_at = now(),
    since = CASE WHEN owed.revision = excluded.revision THEN owed.since ELSE now() END
WHERE owed.revision <= excluded.revision;

-- Owes what is deployed now, and not what is older by now.
-- name: OweRest :exec
INSERT INTO owed (site, name, node, revision, action, due, reason)
SELECT @site, p.name, n.name, p.revision, p.action, true, 'replicating'
FROM (SELECT unnest(@names::text[]) AS name, unnest(@revisions::bigint[]) AS revision) k
JOIN LATERAL (SELECT x.* FROM snapshots x WHERE x.site = @site AND x.name = k.name AND x.revision = k.revision OFFSET 0) p ON true
CROSS JOIN (SELECT x.name FROM nodes x
            WHERE x.site = @site AND x.removed_at IS NULL AND x.role <> 'worker' AND x.name <> @has::text OFFSET 0) n
ON CONFLICT (site, name, node) DO UPDATE SET
    revision = excluded.revision, action = excluded.action, due = excluded.due, reason = excluded.reason, tried_at = now(),
    since = CASE WHEN owed.revision = excluded.revision THEN owed.since ELSE now() END
WHERE owed.revision <= excluded.revision;

-- Apart from ConfirmOwedMany: a node that starts makes the row due without the lock of the subject,
-- and a delete by its key waits for that.
-- name: ConfirmOwed :exec
DELETE FROM owed WHERE site = @site AND name = @name AND node = @node AND revision <= @revision;

-- A node that starts meanwhile makes the row due: then that stays, and the row is tried once more.
-- name: ParkOwed :exec
UPDATE owed o SET due = false, reason = k.reason, tried_at = now()
FROM (SELECT k.*, unnest(ARRAY(SELECT x.ctid FROM owed x WHERE x.site = @site AND x.name = k.name AND x.node = k.node)) AS place
      FROM (SELECT unnest(@names::text[]) AS name, unnest(@nodes::text[]) AS node, unnest(@reasons::text[]) AS reason) k OFFSET 0) k
WHERE o.ctid = k.place;

-- A node refuses for ever what is below the highest that it took.
-- name: DropOwedBelow :exec
DELETE FROM owed o USING revisions r, node_held h
WHERE o.site = @site AND o.name = @name AND o.node = @node
  AND r.site = o.site AND r.name = o.name AND r.revision = o.revision
  AND h.site = o.site AND h.name = o.name AND h.node = o.node AND refuses(h.high_era, h.high_revision, r.era, r.revision);

-- name: DueOwedOfNode :many
UPDATE owed w SET due = true
WHERE w.node = @node AND (w.site, w.name) IN (
    SELECT o.site, o.name FROM owed o
    WHERE o.node = @node AND NOT o.due AND o.tried_at <= @before::timestamptz ORDER BY o.tried_at LIMIT @max_rows)
RETURNING w.site, w.name;

-- name: MoveOwed :many
WITH moved AS (
    DELETE FROM owed o WHERE o.site = @site AND o.node <> @holder
        AND o.revision > coalesce((SELECT p.revision FROM snapshots p WHERE p.site = o.site AND p.name = o.name), 0)
    RETURNING o.site, o.name, o.revision, o.action, o.reason)
INSERT INTO owed (site, name, node, revision, action, due, reason)
SELECT DISTINCT ON (m.site, m.name) m.site, m.name, @holder, m.revision, m.action, true, m.reason
FROM moved m ORDER BY m.site, m.name, m.revision DESC
ON CONFLICT (site, name, node) DO UPDATE SET
    revision = greatest(owed.revision, excluded.revision), due = true,
    action = CASE WHEN owed.revision > excluded.revision THEN owed.action ELSE excluded.action END
RETURNING name;
