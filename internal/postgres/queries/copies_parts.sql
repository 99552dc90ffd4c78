-- What copies of templates are composed of: generations, and bodies.

-- name: PutWaiting :exec
INSERT INTO copies_waiting (region, kind, scope, name, owner, owner_epoch, number, change)
VALUES (@region, @kind, @scope, @name, @owner, @owner_epoch, @number, @change)
ON CONFLICT (kind, scope, name, region, owner) DO UPDATE SET
    owner_epoch = excluded.owner_epoch, number = excluded.number, change = excluded.change, failures = 0, problem = '', retry_at = now()
WHERE (copies_waiting.owner_epoch, copies_waiting.number) < (excluded.owner_epoch, excluded.number);

-- name: DropWaiting :exec
DELETE FROM copies_waiting w
USING (SELECT unnest(@regions::text[]) AS region, unnest(@kinds::text[]) AS kind, unnest(@scopes::text[]) AS scope, unnest(@names::text[]) AS name,
              unnest(@owner_epochs::bigint[]) AS owner_epoch, unnest(@numbers::bigint[]) AS number) k
WHERE w.owner = @owner AND w.kind = k.kind AND w.scope = k.scope AND w.name = k.name AND w.region = k.region AND (w.owner_epoch, w.number) <= (k.owner_epoch, k.number);

-- name: DropWaitingOf :exec
DELETE FROM copies_waiting WHERE owner = @owner;

-- name: DueWaiting :many
SELECT change FROM copies_waiting WHERE owner = @owner AND retry_at <= now() ORDER BY retry_at LIMIT @max_rows;

-- name: PutOffWaiting :exec
UPDATE copies_waiting w
SET failures = w.failures + 1, problem = @problem, retry_at = now() + make_interval(secs => least(power(2, least(w.failures, 10)), @most_seconds::float8))
WHERE w.kind = @kind AND w.scope = @scope AND w.name = @name AND w.region = @region AND w.owner_epoch = @owner_epoch AND w.number = @number;

-- Both keep what is here from being collected until the transaction ends.
-- name: BodyHere :one
SELECT id FROM bodies WHERE hash = @hash AND size = @size FOR KEY SHARE;

-- name: GenerationsHere :many
SELECT t.name, t.generation FROM template_generations t
WHERE (t.name, t.generation) IN (SELECT unnest(@names::text[]), unnest(@generations::bigint[])) ORDER BY t.name, t.generation FOR KEY SHARE;

-- name: Generations :many
SELECT t.name, t.generation, t.spec FROM template_generations t
WHERE (t.name, t.generation) IN (SELECT unnest(@names::text[]), unnest(@generations::bigint[]));

-- Of a copy: its owner says what its generation is, also when that is another one than before a restore.
-- name: PutCopiedGeneration :exec
INSERT INTO template_generations (name, generation, spec) VALUES (@name, @generation, @spec)
ON CONFLICT (name, generation) DO UPDATE SET spec = excluded.spec, used_at = now();

-- name: FindCopy :one
SELECT * FROM copies WHERE kind = @kind AND scope = '' AND name = @name AND region = @region;

-- Generations of copied templates whose copy is gone: of one name, with or without its region.
-- name: LeftGenerations :many
SELECT t.name, max(t.generation)::bigint AS generation FROM template_generations t
WHERE t.name LIKE '%/%' AND (t.name = @name OR split_part(t.name, '/', 2) = @name AND t.name NOT LIKE '%/%/%')
  AND NOT EXISTS (SELECT 1 FROM copies c WHERE c.kind = 'template' AND c.scope = '' AND c.region || '/' || c.name = t.name)
GROUP BY t.name ORDER BY t.name LIMIT 2;

-- The same, of any name, as long as something that is declared pins them.
-- name: KeptGenerations :many
WITH kept AS MATERIALIZED (
    SELECT t.name, t.generation FROM template_generations t
    WHERE t.name LIKE '%/%' AND t.name NOT LIKE '%/%/%'
      AND NOT EXISTS (SELECT 1 FROM copies c WHERE c.kind = 'template' AND c.scope = '' AND c.region || '/' || c.name = t.name)),
pinned AS (
    SELECT o.spec ->> 'template' AS name, (o.spec ->> 'templateGeneration')::bigint AS generation FROM objects o
    WHERE o.kind = 'instance' AND o.spec ->> 'template' LIKE '%/%' AND EXISTS (SELECT 1 FROM kept)
    UNION ALL
    SELECT o.spec #>> '{change,template}', (o.spec #>> '{change,templateGeneration}')::bigint FROM objects o
    WHERE o.kind = 'fleet' AND o.spec #>> '{change,template}' LIKE '%/%'
    UNION ALL
    SELECT p ->> 'name', (p ->> 'generation')::bigint FROM objects o CROSS JOIN LATERAL jsonb_path_query(o.spec, '$.compositions[*]'::jsonpath) p
    WHERE o.kind = 'template' AND p ->> 'name' LIKE '%/%')
SELECT k.name, k.generation, count(*) AS used_by FROM kept k JOIN pinned p ON p.name = k.name AND p.generation = k.generation
GROUP BY k.name, k.generation ORDER BY k.name, k.generation LIMIT @max_rows;

-- name: LockOldGenerations :many
SELECT name, generation FROM template_generations
WHERE name LIKE '%/%' AND used_at < now() - make_interval(secs => @older_seconds::float8)
ORDER BY used_at LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- What pins a generation: its copy, what is declared here, a revision or a run that can come back, or another generation.
-- name: GenerationsPinned :many
WITH page AS MATERIALIZED (SELECT unnest(@names::text[]) AS name, unnest(@generations::bigint[]) AS generation)
SELECT g.name::text AS name, g.generation::bigint AS generation FROM page g WHERE (g.name, g.generation) IN (
    SELECT c.region || '/' || c.name, c.generation FROM copies c WHERE c.kind = 'template'
    UNION ALL
    SELECT o.spec ->> 'template', (o.spec ->> 'templateGeneration')::bigint FROM objects o WHERE o.kind = 'instance' AND o.spec ->> 'template' LIKE '%/%'
    UNION ALL
    SELECT o.spec #>> '{change,template}', (o.spec #>> '{change,templateGeneration}')::bigint FROM objects o WHERE o.kind = 'fleet'
    UNION ALL
    SELECT r.spec ->> 'template', (r.spec ->> 'templateGeneration')::bigint FROM revisions r WHERE r.spec ->> 'template' LIKE '%/%'
    UNION ALL
    SELECT f.spec #>> '{change,template}', (f.spec #>> '{change,templateGeneration}')::bigint FROM fleet_runs f
    UNION ALL
    SELECT regexp_replace(t.name, '[^/]*$', '') || (p ->> 'name'), (p ->> 'generation')::bigint
    FROM template_generations t CROSS JOIN LATERAL jsonb_path_query(t.spec, '$.compositions[*]'::jsonpath) p);

-- name: GenerationsUsed :exec
UPDATE template_generations t SET used_at = now() WHERE (t.name, t.generation) IN (SELECT unnest(@names::text[]), unnest(@generations::bigint[]));

-- name: DropGenerations :exec
DELETE FROM template_generations t WHERE (t.name, t.generation) IN (SELECT unnest(@names::text[]), unnest(@generations::bigint[]));
