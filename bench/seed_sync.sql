-- Converged deployments as though they had been released: DEPLOYMENTS of them with five replicas each, on NODES connected
-- nodes, whose digests equal the rows.
INSERT INTO nodes (name, site, role, enrolled_at) SELECT 'sync-' || i, 'bench', 'worker', now() FROM generate_series(1, NODES) i;
INSERT INTO connections (id, state, identity, node, provider, protocol, server, active_at)
SELECT md5('sync-' || i), 'Active', 'node:sync-' || i, 'sync-' || i, 'sync-' || i, 1, 'bench', now() FROM generate_series(1, NODES) i;
INSERT INTO node_sets (node, version) SELECT 'sync-' || i, 7 FROM generate_series(1, NODES) i;
INSERT INTO deployments (name, uid, project, state, target) SELECT 'sync-' || i, gen_random_uuid(), 'default', 'RUNNING', 5 FROM generate_series(1, DEPLOYMENTS) i;
INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, stop_seconds, state, health, phase, listed, endpoint, pid)
SELECT substr(md5('sync-' || i), 1, 12), d.name, d.uid, 'sync-' || 1 + i % NODES, 'bench', 3, 7, sha256(convert_to(d.name, 'UTF8')), 10,
       'HEALTHY', 'HEALTHY', 'running', 7, '10.0.0.1:8000', i
FROM generate_series(1, 5 * DEPLOYMENTS) i JOIN deployments d ON d.name = 'sync-' || 1 + i % DEPLOYMENTS;
INSERT INTO node_digests (node, connection, era, version, marks)
SELECT r.node, md5(r.node), g.era, 7, string_agg(r.id || ' 3 7 ' || encode(substr(r.definition, 1, 8), 'hex') || ' running HEALTHY' || chr(10), '' ORDER BY r.id)
FROM replicas r, region g WHERE r.site = 'bench' GROUP BY r.node, g.era;
