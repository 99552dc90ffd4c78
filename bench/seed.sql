-- Instances as though they had been delivered before, for a comparison to find: SITE, the
-- numbers FIRST, STEP and LAST of their names, and REVISION, whose content is its own.
INSERT INTO bodies (hash, size)
SELECT sha256(convert_to(t, 'UTF8')), length(t)
FROM (SELECT '{"v":"REVISION-' || i || '-' || repeat('x', 4000) || '"}' AS t FROM generate_series(FIRST, LAST, STEP) i) c
ON CONFLICT (hash) DO NOTHING;
INSERT INTO body_chunks (body_id, idx, data)
SELECT b.id, 0, convert_to(t, 'UTF8')
FROM (SELECT '{"v":"REVISION-' || i || '-' || repeat('x', 4000) || '"}' AS t FROM generate_series(FIRST, LAST, STEP) i) c
JOIN bodies b ON b.hash = sha256(convert_to(t, 'UTF8'))
ON CONFLICT DO NOTHING;
INSERT INTO subjects (site, name, last_revision, desired_revision)
SELECT 'SITE', 'n' || lpad(i::text, 5, '0'), REVISION, REVISION FROM generate_series(FIRST, LAST, STEP) i
ON CONFLICT (site, name) DO UPDATE SET last_revision = excluded.last_revision, desired_revision = excluded.desired_revision;
INSERT INTO revisions (site, name, revision, era, action, content_kind, body_hash, size, enabled, durability, generation, spec, created_by)
SELECT 'SITE', 'n' || lpad(i::text, 5, '0'), REVISION, 1, 'deploy', 'json', sha256(convert_to(t, 'UTF8')), length(t), true, 'sync', 1, '{}', 'bench'
FROM (SELECT i, '{"v":"REVISION-' || i || '-' || repeat('x', 4000) || '"}' AS t FROM generate_series(FIRST, LAST, STEP) i) c;
INSERT INTO snapshots (site, name, revision, delivery_id, epoch)
SELECT 'SITE', 'n' || lpad(i::text, 5, '0'), REVISION, 'bench', 1 FROM generate_series(FIRST, LAST, STEP) i
ON CONFLICT (site, name) DO UPDATE SET revision = excluded.revision;
