-- What is owed and can be served now: to a node of the pair that is there, and either
-- deployed, or owed to the node that may deploy it.
CREATE VIEW owed_now AS
SELECT o.site, o.name, o.node, n.role, o.revision, r.era, o.since
FROM owed o
JOIN nodes n ON n.name = o.node
JOIN revisions r ON r.site = o.site AND r.name = o.name AND r.revision = o.revision
LEFT JOIN site_leases l ON l.site = o.site AND NOT l.dropped
LEFT JOIN snapshots p ON p.site = o.site AND p.name = o.name
WHERE o.due AND n.removed_at IS NULL AND n.role <> 'worker' AND (o.node = l.holder OR o.revision <= p.revision);
