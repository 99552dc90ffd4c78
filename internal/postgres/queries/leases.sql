-- Every vote of the region, with the nodes that vote beside it. Nobody holds it by a vote
-- before a TTL was granted.
-- name: Votes :many
SELECT l.site, l.holder, l.epoch, l.promised, l.promised_to, l.counter,
       extract(epoch FROM l.ttl)::float8 AS ttl_seconds, l.released, l.target, l.lost, l.resets, n.pair
FROM site_leases l
JOIN (SELECT x.site, array_agg(x.name ORDER BY x.name)::text[] AS pair FROM nodes x
      WHERE x.removed_at IS NULL AND x.role <> 'worker' GROUP BY x.site) n ON n.site = l.site
WHERE NOT l.dropped;

-- name: VoteOf :one
SELECT l.site, l.holder, l.epoch, l.promised, l.promised_to, l.counter,
       extract(epoch FROM l.ttl)::float8 AS ttl_seconds, l.released, l.target, l.lost, l.resets,
       ARRAY(SELECT x.name FROM nodes x WHERE x.site = l.site AND x.removed_at IS NULL AND x.role <> 'worker' ORDER BY x.name)::text[] AS pair
FROM site_leases l WHERE l.site = @site AND NOT l.dropped;

-- What was is what the voter went by; without a row that is still so, it sees and handles
-- again. The row keeps its last holder, for people and for what is delivered meanwhile.
-- name: CastVote :execrows
UPDATE site_leases l SET
    promised = @promised, promised_to = @promised_to, epoch = @epoch, counter = @counter,
    ttl = make_interval(secs => @ttl::float8), target = @target, lost = @lost,
    holder = coalesce(nullif(@holder::text, ''), l.holder),
    released = (@holder::text = '' AND (l.released OR @ttl::float8 > 0)),
    granted_at = (CASE WHEN @moves::boolean THEN now() ELSE l.granted_at END)
WHERE l.site = @site AND NOT l.dropped
  AND (CASE WHEN l.released OR l.ttl = '0' THEN '' ELSE l.holder END) = @was_holder::text
  AND l.promised = @was_promised AND l.promised_to = @was_promised_to AND l.epoch = @was_epoch AND l.counter = @was_counter
  AND l.ttl = make_interval(secs => @was_ttl::float8) AND l.target = @was_target AND l.lost = @was_lost;

-- Renewals of many sites. A row that somebody has locked is left out, so that no site waits
-- for another: it is written by itself.
-- name: RenewVotes :many
WITH k AS MATERIALIZED (
    SELECT unnest(@sites::text[]) AS site, unnest(@holders::text[]) AS holder, unnest(@epochs::bigint[]) AS epoch,
           unnest(@was_promised::bigint[]) AS was_promised, unnest(@was_promised_to::text[]) AS was_promised_to,
           unnest(@was_counters::bigint[]) AS was_counter, unnest(@was_ttls::float8[]) AS was_ttl, unnest(@was_targets::text[]) AS was_target,
           unnest(@promised::bigint[]) AS promised, unnest(@promised_to::text[]) AS promised_to,
           unnest(@counters::bigint[]) AS counter, unnest(@ttls::float8[]) AS ttl, unnest(@targets::text[]) AS target),
free AS MATERIALIZED (
    SELECT l.site FROM k JOIN site_leases l ON l.site = k.site
    WHERE NOT l.dropped AND NOT l.released AND NOT l.lost AND l.holder = k.holder AND l.epoch = k.epoch
      AND l.promised = k.was_promised AND l.promised_to = k.was_promised_to AND l.counter = k.was_counter
      AND l.ttl = make_interval(secs => k.was_ttl) AND l.target = k.was_target
    FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE site_leases l
SET promised = k.promised, promised_to = k.promised_to, counter = k.counter, ttl = make_interval(secs => k.ttl), target = k.target
FROM k JOIN free f ON f.site = k.site
WHERE l.site = k.site
RETURNING l.site;

-- A site of one node decides without the region, which follows and never goes down; so it does
-- once more when the site has got its second node.
-- name: FollowVote :execrows
UPDATE site_leases l SET holder = @holder, epoch = @epoch, promised = greatest(l.promised, @epoch),
    promised_to = (CASE WHEN l.promised > @epoch THEN '' ELSE @holder END), counter = l.counter + 1,
    ttl = make_interval(secs => @ttl::float8), released = false, lost = false, target = '', granted_at = now()
WHERE l.site = @site AND NOT l.dropped AND (l.epoch < @epoch OR l.epoch = @epoch AND l.lost);

-- The region has got a vote on what one node decided alone: it waits for the word of that one.
-- name: JoinVote :exec
UPDATE site_leases SET lost = true, promised_to = @node WHERE site = @site;

-- An operator vouches that no epoch above the floor was given. The vote counts as cast.
-- name: ForceVote :execrows
UPDATE site_leases SET lost = false, promised = greatest(promised, epoch, @floor), promised_to = '', target = '', counter = greatest(counter, 1)
WHERE site = @site AND lost AND NOT dropped;

-- The highest epoch of a site below @far: of the lease, of what was delivered, or of what is deployed.
-- name: BelievedEpoch :one
SELECT greatest(1, (SELECT max(d.epoch) FROM deliveries d WHERE d.site = l.site AND d.epoch < @far::bigint),
                   (SELECT max(n.epoch) FROM snapshots n WHERE n.site = l.site AND n.epoch < @far::bigint),
                   CASE WHEN l.epoch < @far::bigint THEN l.epoch END,
                   CASE WHEN l.promised < @far::bigint THEN l.promised END)::bigint AS epoch
FROM site_leases l WHERE l.site = @site AND NOT l.dropped;

-- The vote counts as cast, so servers wait a TTL before they favor a node. One that was lost stays so: it may
-- wait for the word of a node that decides alone. What a restored database counts is above what it counted
-- before, by its era.
-- name: ResetVote :one
UPDATE site_leases SET epoch = @epoch, promised = @epoch, promised_to = (CASE WHEN lost THEN promised_to ELSE '' END), counter = 1,
    ttl = least(ttl, interval '1 minute'), released = true, target = '', reset_epoch = @epoch,
    resets = greatest(resets, (SELECT r.era << 20 FROM region r)) + 1
WHERE site = @site AND NOT dropped RETURNING resets;

-- What the nodes of a site reported of the last reset that they followed.
-- name: NodesReset :many
SELECT name, (revoked_at IS NOT NULL)::boolean AS revoked, (enrolled_at IS NOT NULL)::boolean AS enrolled,
       coalesce((counters ->> 'lease_resets')::bigint, 0)::bigint AS resets,
       coalesce((counters ->> 'lease_reset_from')::bigint, 0)::bigint AS reset_from
FROM nodes WHERE site = @site AND removed_at IS NULL ORDER BY name;

-- name: LoseVotes :exec
UPDATE site_leases SET lost = true, promised_to = '';

-- Also of a site that was deleted.
-- name: FindLease :one
SELECT * FROM site_leases WHERE site = @site;

-- name: LeaseView :one
SELECT l.holder, l.epoch, l.released, l.target, l.lost, l.granted_at, l.counter > 0 OR l.ttl > '0' AS voted
FROM site_leases l WHERE l.site = @site AND NOT l.dropped;

-- Those that neither ask for it nor may have it end before it.
-- name: SupersedeFailovers :exec
WITH ended AS (
UPDATE operations SET state = 'superseded', reason = 'superseded', message = @message, ended_at = now()
WHERE subject = @subject AND kind = 'failover' AND state = 'running' AND name <> @name
RETURNING id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- name: NewestFailover :one
SELECT * FROM operations WHERE subject = @subject AND kind = 'failover' AND state = 'running' ORDER BY created_at DESC, id DESC LIMIT 1;

-- One that drains takes nothing over either.
-- name: NodeOnLink :one
SELECT EXISTS (SELECT 1 FROM connections WHERE node = @node AND ended_at IS NULL AND state = 'Active');

-- name: NodeHasStream :one
SELECT EXISTS (SELECT 1 FROM connections WHERE node = @node AND ended_at IS NULL AND state IN ('Active', 'Draining'));

-- name: LinkThere :one
SELECT since FROM link_there;

-- Why those of a site still wait (X8).
-- name: NoteFailover :exec
UPDATE operations SET reason = @reason, message = @message
WHERE subject = @subject AND kind = 'failover' AND state = 'running' AND name = @name AND (reason <> @reason OR message <> @message);

-- name: EndFailovers :exec
WITH ended AS (
UPDATE operations SET state = @state, reason = @reason, message = @message, ended_at = now()
WHERE subject = @subject AND kind = 'failover' AND state = 'running' AND name = @name AND (NOT @only_cancelled::boolean OR cancel_requested)
RETURNING id)
SELECT pg_notify('holdfast_operation', e.id) FROM ended e;

-- Sites whose declared active does not hold the lease though they ask for it (autoFailback).
-- name: Failbacks :many
SELECT o.name AS site, n.name AS node, l.holder,
       (l.released OR l.lost OR l.target <> '')::boolean AS unsettled,
       (n.enrolled_at IS NOT NULL AND n.revoked_at IS NULL AND n.cordoned_at IS NULL AND n.started_at >= n.enrolled_at)::boolean AS ready,
       coalesce(extract(epoch FROM clock_timestamp() - n.seen_at), 1e9)::float8 AS unseen_seconds,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - greatest(n.started_at, c.active_at)) FROM connections c
                 WHERE c.node = n.name AND c.ended_at IS NULL AND c.state = 'Active'
                 ORDER BY c.active_at DESC LIMIT 1), 0)::float8 AS up_seconds,
       extract(epoch FROM clock_timestamp() - l.granted_at)::float8 AS held_seconds,
       EXISTS (SELECT 1 FROM operations r WHERE r.subject = 'site.' || o.name AND r.kind = 'failover' AND r.state = 'running') AS under_way,
       EXISTS (SELECT 1 FROM owed w WHERE w.node = n.name) AS owed
FROM objects o
JOIN site_leases l ON l.site = o.name AND NOT l.dropped
JOIN nodes n ON n.site = o.name AND n.role = 'active' AND n.removed_at IS NULL
WHERE o.kind = 'site' AND o.scope = '' AND o.name > @after::text AND (o.spec ->> 'autoFailback')::boolean
  AND l.holder <> n.name AND mod(abs(hashtext(o.name)::bigint), @shards::bigint) = @shard::bigint
ORDER BY o.name LIMIT @max_rows;

-- name: CountedByNode :exec
UPDATE nodes SET counters = @counters, counted_at = now() WHERE name = @name;
