-- What a region owns, and another one is to have, in ranges of uids. Each range is read by itself and by an index: the planner
-- would compare every object with every range.
-- name: SharedSums :many
SELECT s.uid, s.region, s.kind, s.scope, s.name, s.owner_epoch, s.number::bigint AS number, copy_sum(ROW(s.*)::copies)::bytea AS sum
FROM (SELECT unnest(@froms::text[])::uuid AS first, unnest(@tos::text[])::uuid AS last) r
CROSS JOIN LATERAL (
    SELECT x.* FROM shared x WHERE x.uid BETWEEN r.first AND r.last AND x.owner = @owner::text AND x.syncing -> 'regions' ? @region::text OFFSET 0) s
ORDER BY s.uid;

-- name: CountShared :one
SELECT count(*) FROM shared s WHERE s.owner = @owner::text AND s.syncing -> 'regions' ? @region::text;

-- What a region has of what another one owns, in ranges of uids.
-- name: HeldSums :many
SELECT s.uid, s.region, s.kind, s.scope, s.name, s.owner_epoch, s.number::bigint AS number, copy_sum(ROW(s.*)::copies)::bytea AS sum
FROM (SELECT unnest(@froms::text[])::uuid AS first, unnest(@tos::text[])::uuid AS last) r
CROSS JOIN LATERAL (SELECT x.* FROM shared x WHERE x.uid BETWEEN r.first AND r.last AND x.owner = @owner::text OFFSET 0) s
ORDER BY s.uid;

-- One sum for each range in which a region owns objects that another one is to have: far fewer rows than objects.
-- name: SharedRanges :many
SELECT (('x' || left(s.uid::text, 8))::bit(32)::bigint >> @shift::integer)::bigint AS range, count(*) AS objects,
    sha256(string_agg(copy_sum(ROW(s.*)::copies), ''::bytea ORDER BY s.uid))::bytea AS sum
FROM shared s WHERE s.uid BETWEEN @first::uuid AND @last::uuid AND s.owner = @owner::text AND s.syncing -> 'regions' ? @region::text
GROUP BY 1;

-- The same of what a region has of another one's objects.
-- name: HeldRanges :many
SELECT (('x' || left(s.uid::text, 8))::bit(32)::bigint >> @shift::integer)::bigint AS range, count(*) AS objects,
    sha256(string_agg(copy_sum(ROW(s.*)::copies), ''::bytea ORDER BY s.uid))::bytea AS sum
FROM shared s WHERE s.uid BETWEEN @first::uuid AND @last::uuid AND s.owner = @owner::text
GROUP BY 1;

-- name: SharedByUid :many
SELECT s.region::text AS region, s.kind, s.scope, s.name, s.owner::text AS owner, s.owner_epoch, s.number::bigint AS number, s.uid, s.project, s.service, s.labels::jsonb AS labels,
    s.generation, s.spec, s.syncing, s.created_by, s.created_at, s.updated_at, s.deleting_since, s.event
FROM (SELECT unnest(@uids::text[])::uuid AS uid) k
CROSS JOIN LATERAL (SELECT x.* FROM shared x WHERE x.uid = k.uid AND x.owner = @owner::text AND x.syncing -> 'regions' ? @region::text OFFSET 0) s
ORDER BY s.uid;

-- What this region knows of objects that another one names: its row if it has one, else how it went.
-- name: Known :many
SELECT k.region::text AS region, k.kind::text AS kind, k.scope::text AS scope, k.name::text AS name, coalesce(s.uid::text, '')::text AS uid, coalesce(s.owner, '')::text AS owner,
    (coalesce(s.syncing -> 'regions' ? @asker::text, false))::boolean AS shared,
    coalesce(s.owner_epoch, d.epoch, 0)::bigint AS owner_epoch, coalesce(s.number, d.seq, 0)::bigint AS number,
    coalesce(d.owner, '')::text AS last_owner, coalesce(d.took_over, 'null')::jsonb AS took_over
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name) k
LEFT JOIN shared s ON s.kind = k.kind AND s.scope = k.scope AND s.name = k.name AND s.region = k.region
LEFT JOIN LATERAL (
    SELECT e.seq, coalesce((e.before ->> 'ownerEpoch')::bigint, 1) AS epoch, e.before -> 'syncing' ->> 'owningRegion' AS owner,
        e.before -> 'syncing' -> 'tookOver' AS took_over FROM events e
    WHERE s.uid IS NULL AND e.type = 'deleted' AND e.kind = k.kind AND e.scope = k.scope AND e.name = k.name
      AND e.region = CASE WHEN k.region = (SELECT r.name FROM region r) THEN '' ELSE k.region END
    ORDER BY e.seq DESC LIMIT 1) d ON true;

-- Numbers up to kept belong to events that are no longer stored. An era that ended says up to which number it was kept.
-- name: FeedNumbers :one
SELECT r.era, (SELECT h.seq FROM feed_horizon h)::bigint AS kept, coalesce((SELECT e.seq FROM eras e WHERE e.era = @era), 0)::bigint AS era_end,
    EXISTS (SELECT FROM eras e WHERE e.era = @era)::boolean AS era_ended
FROM region r;

-- name: WantSync :one
INSERT INTO region_syncs AS s (peer, accepting) VALUES (@peer, @accepting)
ON CONFLICT (peer) DO UPDATE SET wanted = s.wanted + 1, wanted_at = now(), accepting = s.accepting AND s.ended_at IS NULL OR excluded.accepting
RETURNING wanted;

-- One is due when none was made for a while, or one was not begun by this server's start.
-- name: WantSyncs :many
INSERT INTO region_syncs AS s (peer)
SELECT p.name FROM peers p WHERE NOT p.self AND p.disabled_at IS NULL AND p.removed_at IS NULL
ON CONFLICT (peer) DO UPDATE SET wanted = s.wanted + 1, wanted_at = now()
    WHERE s.wanted = s.pass AND s.ended_at IS NOT NULL AND s.ended_at < now() - make_interval(secs => @every_seconds::float8)
RETURNING peer;

-- name: GetSync :one
SELECT * FROM region_syncs WHERE peer = @peer FOR UPDATE;

-- A comparison begins when the stream of the peer is current: what it brings need not be compared.
-- name: SyncReady :one
SELECT (s.wanted_at < now() - make_interval(secs => @patience_seconds::float8) OR EXISTS (
    SELECT FROM region_streams f WHERE f.peer = s.peer AND f.position <> '' AND f.began = '' AND f.current_at IS NOT NULL))::boolean AS ready
FROM region_syncs s WHERE s.peer = @peer;

-- name: Syncs :many
SELECT * FROM region_syncs ORDER BY peer;

-- name: StartSync :exec
UPDATE region_syncs SET pass = wanted, bits = 0, at = 0, objects = 0, compared = 0, differed = 0, written = 0, removed = 0, unshown = 0, lost = 0, waiting = 0,
    started_at = now(), moved_at = now(), ended_at = NULL
WHERE peer = @peer;

-- name: SplitSync :execrows
UPDATE region_syncs SET bits = @bits, objects = @objects, at = 0, moved_at = now() WHERE peer = @peer AND pass = @pass AND bits < @bits AND ended_at IS NULL;

-- name: MoveSync :exec
UPDATE region_syncs SET at = @at, compared = compared + @compared, differed = differed + @differed, written = written + @written,
    removed = removed + @removed, unshown = unshown + @unshown, lost = lost + @lost, waiting = waiting + @waiting, moved_at = now()
WHERE peer = @peer;

-- name: EndSync :exec
UPDATE region_syncs SET ended_at = now(), completed_at = started_at, accepting = accepting AND wanted > pass WHERE peer = @peer;

-- What a comparison did not set aside again is settled.
-- name: SettleQuarantine :execrows
DELETE FROM quarantine q USING region_syncs s WHERE s.peer = @peer AND q.peer = s.peer AND q.at < s.started_at AND q.waiting IS NULL;

-- name: PutLost :exec
INSERT INTO lost_writes (peer, region, kind, scope, name, owner_epoch, number, reason, object)
SELECT @peer, l.region, l.kind, l.scope, l.name, l.owner_epoch, l.number, l.reason, l.object
FROM jsonb_populate_recordset(NULL::lost_writes, @rows::jsonb) l
WHERE NOT EXISTS (SELECT FROM lost_writes w WHERE w.peer = @peer AND w.region = l.region AND w.kind = l.kind AND w.scope = l.scope AND w.name = l.name
    AND w.owner_epoch = l.owner_epoch AND w.number = l.number);

-- What this region has of states that a restore of their owner undid, before newer ones replace them.
-- name: ListUndone :exec
WITH undone AS (
    SELECT s.region, s.kind, s.scope, s.name, s.owner_epoch, s.number, to_jsonb(s) AS object FROM shared s
    WHERE s.owner = @peer AND s.number >= @first_number AND s.number <= @last_number
    UNION ALL
    SELECT m.region, m.kind, m.scope, m.name, m.owner_epoch, m.number, NULL FROM copy_markers m
    WHERE m.owner = @peer AND m.number >= @first_number AND m.number <= @last_number AND m.reason = 'deleted')
INSERT INTO lost_writes (peer, region, kind, scope, name, owner_epoch, number, reason, object)
SELECT @peer, u.region, u.kind, u.scope, u.name, u.owner_epoch, u.number, 'undone', u.object FROM undone u
WHERE NOT EXISTS (SELECT FROM lost_writes w WHERE w.peer = @peer AND w.region = u.region AND w.kind = u.kind AND w.scope = u.scope AND w.name = u.name
    AND w.owner_epoch = u.owner_epoch AND w.number = u.number);

-- What was undone and is there again was not lost: a restore undoes also that a policy refreshed who has an object.
-- name: FindUndone :exec
DELETE FROM lost_writes l USING jsonb_populate_recordset(NULL::copies, @rows::jsonb) c
WHERE l.peer = @peer AND l.region = c.region AND l.kind = c.kind AND l.scope = c.scope AND l.name = c.name AND l.reason = 'undone'
  AND l.object ->> 'uid' = c.uid::text AND l.object -> 'spec' = c.spec AND l.object -> 'labels' = c.labels;

-- Deletions and removals that were undone must not keep older states away.
-- name: DropUndoneMarkers :execrows
DELETE FROM copy_markers WHERE owner = @peer AND number >= @first_number AND number <= @last_number;

-- What waits of that time waits no more.
-- name: TakeUndone :many
WITH aside AS (
    DELETE FROM quarantine q WHERE q.peer = @peer AND q.waiting IS NOT NULL AND q.number >= @first_number AND q.number <= @last_number
    RETURNING q.waiting AS change),
waits AS (
    DELETE FROM copies_waiting w WHERE w.owner = @peer AND w.number >= @first_number AND w.number <= @last_number RETURNING w.change)
SELECT a.change FROM aside a UNION ALL SELECT w.change FROM waits w;

-- name: StreamPlace :one
SELECT coalesce(nullif(position, ''), began)::text AS place FROM region_streams WHERE peer = @peer;

-- name: LostWrites :many
SELECT * FROM lost_writes WHERE id > @after ORDER BY id LIMIT @max_rows;

-- See fleet.MovedNumber.
-- name: MoveCopies :exec
UPDATE copies c SET owner = k.owner, owner_epoch = greatest(c.owner_epoch, k.epoch), number = @moved_number
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name,
      unnest(@owners::text[]) AS owner, unnest(@epochs::bigint[]) AS epoch) k
WHERE c.kind = k.kind AND c.scope = k.scope AND c.name = k.name AND c.region = k.region AND c.owner = @peer;

-- name: MoveOwn :exec
UPDATE objects o SET syncing = jsonb_set(o.syncing, '{owningRegion}', to_jsonb(k.owner)), owner_epoch = greatest(o.owner_epoch, k.epoch),
    owner_number = @moved_number
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name,
      unnest(@owners::text[]) AS owner, unnest(@epochs::bigint[]) AS epoch) k
WHERE k.region = @self::text AND o.kind = k.kind AND o.scope = k.scope AND o.name = k.name AND o.syncing ->> 'owningRegion' = @peer::text;

-- name: DropSync :exec
DELETE FROM region_syncs WHERE peer = @peer;

-- The policy holders of a peer, those that it may have claimed from this region, and deleted since, and what waits of it and is not
-- here: no range of uids has that.
-- name: AskedFirst :many
SELECT s.region::text AS region, s.kind, s.scope, s.name, s.owner_epoch, s.number::bigint AS number FROM shared s
WHERE (s.owner = @owner::text OR s.owner = @self::text AND s.syncing -> 'regions' ? @owner) AND s.kind IN ('organization', 'project', 'service') AND s.scope = ''
UNION ALL
SELECT q.region, q.kind, q.scope, q.name, q.owner_epoch, q.number FROM quarantine q
WHERE q.peer = @owner AND q.waiting IS NOT NULL
  AND NOT EXISTS (SELECT FROM shared s WHERE s.kind = q.kind AND s.scope = q.scope AND s.name = q.name AND s.region = q.region AND s.owner = @owner);

-- The regions, projects and services of the templates that this region owns.
-- name: TemplatePlaces :many
SELECT DISTINCT s.region::text AS region, s.project, s.service FROM shared s WHERE s.kind = 'template' AND s.owner = @self::text AND s.project <> 'default';

-- name: TemplatesIn :many
SELECT s.region::text AS region, s.kind, s.scope, s.name, s.owner_epoch, s.number::bigint AS number
FROM (SELECT unnest(@regions::text[]) AS region, unnest(@projects::text[]) AS project, unnest(@services::text[]) AS service) k
JOIN shared s ON s.kind = 'template' AND s.region = k.region AND s.project = k.project AND s.service = k.service AND s.owner = @self::text;

-- name: CollectMarkers :execrows
DELETE FROM copy_markers m WHERE (m.kind, m.scope, m.name, m.region) IN (
    SELECT o.kind, o.scope, o.name, o.region FROM copy_markers o
    WHERE o.at < now() - make_interval(secs => @older_seconds::float8)
      AND o.at < coalesce((SELECT min(s.started_at) FROM region_syncs s WHERE s.ended_at IS NULL), now())
    ORDER BY o.at LIMIT @max_rows FOR UPDATE SKIP LOCKED);

-- name: CollectLost :execrows
DELETE FROM lost_writes WHERE id = ANY(ARRAY(
    SELECT l.id FROM lost_writes l WHERE l.at < now() - make_interval(secs => @older_seconds::float8)
    ORDER BY l.id LIMIT @max_rows FOR UPDATE SKIP LOCKED));
