-- Pools as though they had been declared, each with its event: of PROJECT, the numbers FIRST to LAST of their names after
-- PREFIX, in REGIONS (JSON).
INSERT INTO objects (kind, project, name, labels, generation, resource_version, spec, syncing, created_by)
SELECT 'pool', 'PROJECT', 'PREFIX' || lpad(i::text, 6, '0'),
       jsonb_build_object('n', '0', 'line', 'line-' || i % 17, 'owner', md5(i::text), 'room', 'room-' || i % 5, 'team', 'maintenance'),
       1, 0, '{"maxReplicas": 3}', 'REGIONS', 'bench'
FROM generate_series(FIRST, LAST) i;
WITH appended AS (
    INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, after)
    SELECT r.era, 'created', o.kind, o.project, o.scope, o.name, o.uid, o.generation, 'bench',
           jsonb_build_object('labels', o.labels, 'spec', o.spec, 'syncing', o.syncing, 'ownerEpoch', o.owner_epoch)
    FROM objects o, region r WHERE o.kind = 'pool' AND o.resource_version = 0
    RETURNING uid, seq)
UPDATE objects o SET resource_version = a.seq FROM appended a WHERE o.uid = a.uid;
