-- What governs other objects, of those that there are.
-- name: ReadHolders :many
SELECT o.kind, o.name, o.project, o.spec, coalesce(o.owner, '')::text AS owner, o.owner_epoch
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@names::text[]) AS name) k
JOIN LATERAL (SELECT x.* FROM holders x WHERE x.kind = k.kind AND x.name = k.name OFFSET 0) o ON true;

-- Each with its event. The declared part stays, and with it resource version, generation and time of the last change. What
-- has another syncing than it had was written in between, which computed it. Most objects go from the same syncing to the same:
-- each pair of them is given once.
-- name: RefreshSyncing :execrows
WITH k AS MATERIALIZED (SELECT unnest(@uids::text[])::uuid AS uid, unnest(@pairs::int[]) AS pair),
appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
    SELECT r.era, 'updated', o.kind, o.project, o.scope, o.name, o.uid, o.generation, @actor,
        CASE WHEN o.labels IN ('{}', 'null') THEN jsonb_build_object('spec', o.spec, 'ownerEpoch', o.owner_epoch, 'syncing', o.syncing)
             ELSE jsonb_build_object('spec', o.spec, 'ownerEpoch', o.owner_epoch, 'syncing', o.syncing, 'labels', o.labels) END,
        CASE WHEN o.labels IN ('{}', 'null') THEN jsonb_build_object('spec', o.spec, 'ownerEpoch', o.owner_epoch, 'syncing', (@afters::jsonb[])[k.pair])
             ELSE jsonb_build_object('spec', o.spec, 'ownerEpoch', o.owner_epoch, 'syncing', (@afters::jsonb[])[k.pair], 'labels', o.labels) END
    FROM region r CROSS JOIN k
    JOIN LATERAL (SELECT x.* FROM objects x WHERE x.uid = k.uid AND x.syncing = (@befores::jsonb[])[k.pair] OFFSET 0) o ON true
    RETURNING uid, seq, before -> 'syncing' AS was, after -> 'syncing' AS is_now)
UPDATE objects o SET syncing = a.is_now, refreshed = a.seq FROM appended a WHERE o.uid = a.uid AND o.syncing = a.was;

-- A turn that is under way continues where it is: one that is restarted has to come round to there again.
-- name: WantPolicyTurn :exec
INSERT INTO policy_turns AS t (kind, name, generation) VALUES (@kind, @name, @generation)
ON CONFLICT (kind, name) DO UPDATE SET
    generation = CASE WHEN excluded.generation = 0 THEN t.generation ELSE excluded.generation END, wanted = t.wanted + 1, ended_at = NULL,
    at = CASE WHEN t.ended_at IS NULL THEN t.at ELSE '{}' END,
    began = CASE WHEN t.ended_at IS NOT NULL THEN '{}' WHEN @restart::boolean THEN t.at ELSE t.began END,
    wrapped = t.wrapped AND t.ended_at IS NULL AND NOT @restart,
    visited = CASE WHEN t.ended_at IS NOT NULL OR @restart THEN 0 ELSE t.visited END,
    refreshed = CASE WHEN t.ended_at IS NOT NULL OR @restart THEN 0 ELSE t.refreshed END,
    started_at = CASE WHEN t.ended_at IS NOT NULL OR @restart THEN now() ELSE t.started_at END;

-- name: GetPolicyTurn :one
SELECT * FROM policy_turns WHERE kind = @kind AND name = @name;

-- Only from where a page began: another run may have written the same page, or a newer policy restarted the turn. Tells the number of
-- the newest event, also of transactions that are under way.
-- name: MovePolicyTurn :one
UPDATE policy_turns SET at = @at::text[], wrapped = @wrapped, visited = visited + @visited, refreshed = refreshed + @refreshed,
    moved_at = now(), ended_at = CASE WHEN @done::boolean THEN now() END
WHERE kind = @kind AND name = @name AND wanted = @wanted AND at = @was_at::text[] AND wrapped = @was_wrapped AND ended_at IS NULL
RETURNING coalesce(pg_sequence_last_value('events_seq_seq'), 0)::bigint AS feed;

-- The turn is of all holders of a name, whichever region created them: it goes with the last one.
-- name: DropPolicyTurn :exec
DELETE FROM policy_turns t WHERE t.kind = @kind AND t.name = @name
  AND (SELECT count(*) FROM objects o WHERE o.kind = t.kind AND o.scope = '' AND o.name = t.name)
    + (SELECT count(*) FROM copies c WHERE c.kind = t.kind AND c.scope = '' AND c.name = t.name) <= 1;

-- The next project of an organization.
-- name: ProjectUnder :one
SELECT coalesce(min(p.name), '')::text AS name FROM shared p
WHERE p.kind = 'project' AND p.scope = '' AND p.name > @after::text AND (@until::text = '' OR p.name <= @until)
  AND p.spec ->> 'organization' = @organization::text;

-- The next project in which something names a service. Both may have gone.
-- name: ProjectOfService :one
SELECT coalesce(least(
    (SELECT min(o.project) FROM objects o WHERE o.project <> 'default' AND o.project > @after::text AND (@until::text = '' OR o.project <= @until) AND o.service = @service::text),
    (SELECT min(c.project) FROM copies c WHERE c.kind IN ('organization', 'project', 'service', 'template') AND c.project > @after AND (@until = '' OR c.project <= @until)
        AND c.service = @service)), '')::text AS project;

-- The planner knows of few objects in a project, and would read and sort all that follow for each page: in this
-- transaction it follows the index.
-- name: PlanInOrder :exec
SELECT set_config('enable_sort', 'off', true);

-- Objects of this region, and shared ones of others. Names of several regions may be equal: a page ends with all of a name.
-- name: GovernedAfter :many
SELECT g.uid, g.kind, g.scope, g.name, g.service, g.syncing, g.region FROM (
    (SELECT o.uid, o.kind, o.scope, o.name, o.service, o.syncing, ''::text AS region FROM objects o
     WHERE o.project = @project AND o.project <> 'default'
       AND (o.service, o.kind, o.scope, o.name) > (@service::text, @kind::text, @scope::text, @name::text)
       AND (NOT @bounded::boolean OR (o.service, o.kind, o.scope, o.name) <= (@until_service::text, @until_kind::text, @until_scope::text, @until_name::text))
       AND (@within::text = '' OR o.service = @within)
     ORDER BY o.service, o.kind, o.scope, o.name LIMIT @max_rows)
    UNION ALL
    (SELECT c.uid, c.kind, c.scope, c.name, c.service, c.syncing, c.region FROM copies c
     WHERE c.project = @project AND c.kind IN ('organization', 'project', 'service', 'template')
       AND (c.service, c.kind, c.scope, c.name) > (@service::text, @kind::text, @scope::text, @name::text)
       AND (NOT @bounded::boolean OR (c.service, c.kind, c.scope, c.name) <= (@until_service::text, @until_kind::text, @until_scope::text, @until_name::text))
       AND (@within::text = '' OR c.service = @within)
     ORDER BY c.service, c.kind, c.scope, c.name FETCH FIRST (@max_rows) ROWS WITH TIES)
) g ORDER BY g.service, g.kind, g.scope, g.name FETCH FIRST (@max_rows) ROWS WITH TIES;

-- What computes the syncing of the next objects of this region.
-- name: SyncingAfter :many
SELECT uid, kind, scope, name, project, service, syncing, owner_number,
    (CASE WHEN kind IN ('organization', 'project', 'service') THEN spec ELSE '{}' END)::jsonb AS spec
FROM objects WHERE (kind, scope, name) > (@kind::text, @scope::text, @name::text) ORDER BY kind, scope, name LIMIT @max_rows;

-- What still names a service, by kind.
-- name: UsesOfService :many
SELECT kind, count(*) AS uses FROM objects WHERE project = @project AND project <> 'default' AND service = @service
GROUP BY kind ORDER BY kind;

-- name: UsesOfOrganization :one
SELECT count(*) FROM objects WHERE kind = 'project' AND scope = '' AND spec ->> 'organization' = @organization::text;

-- A holder of a name whose only copy governed until now.
-- name: NamedAlready :one
SELECT CASE @kind::text
    WHEN 'project' THEN EXISTS (SELECT FROM objects o WHERE o.project = @name AND o.project <> 'default' AND o.kind <> 'project')
    WHEN 'service' THEN EXISTS (SELECT FROM objects o WHERE o.project = @project AND o.project <> 'default' AND o.service = @name)
    ELSE EXISTS (SELECT FROM objects o WHERE o.kind = 'project' AND o.scope = '' AND o.spec ->> 'organization' = @name) END::boolean AS named;
