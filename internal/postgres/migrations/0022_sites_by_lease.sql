-- What a node is told of its site is another whenever this is.
CREATE VIEW site_marks AS
SELECT n.site,
       md5((SELECT coalesce(max(o.generation), 0)::text FROM objects o WHERE o.kind = 'site' AND o.scope = '' AND o.name = n.site)
           || coalesce(string_agg(n.name || ' ' || n.role || ' ' || n.peer_address || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.signing_key END, 'hex'), ''), ','
                                  ORDER BY n.name) FILTER (WHERE n.removed_at IS NULL), '')) AS mark
FROM nodes n GROUP BY n.site;

-- Who holds the lease is active, and nobody else: the declared role says only who may be.
CREATE OR REPLACE VIEW owed_now AS
SELECT o.site, o.name, o.node,
       CASE WHEN o.node = l.holder THEN 'active' WHEN n.role = 'active' THEN 'standby' ELSE n.role END AS role, o.revision,
       (SELECT r.era FROM revisions r WHERE r.site = o.site AND r.name = o.name AND r.revision = o.revision) AS era, o.since
FROM owed o
JOIN nodes n ON n.name = o.node
LEFT JOIN site_leases l ON l.site = o.site AND NOT l.dropped
LEFT JOIN snapshots p ON p.site = o.site AND p.name = o.name
WHERE o.due AND n.removed_at IS NULL AND n.role <> 'worker' AND (o.node = l.holder OR o.revision <= p.revision);
