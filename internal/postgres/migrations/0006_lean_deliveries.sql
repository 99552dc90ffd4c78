-- A walk asks whether a door of its subject waits for word.
CREATE INDEX operations_untold_of ON operations (subject) WHERE state <> 'running' AND door_run <> '' AND NOT door_told;

-- Rows that change several times in their life find room for the next version beside them.
ALTER TABLE deliveries SET (fillfactor = 60);
ALTER TABLE delivery_nodes SET (fillfactor = 50);
ALTER TABLE operations SET (fillfactor = 60);
ALTER TABLE subjects SET (fillfactor = 50);
ALTER TABLE objects SET (fillfactor = 70);
ALTER TABLE node_held SET (fillfactor = 70);
ALTER TABLE snapshots SET (fillfactor = 50);

-- In the order in which they are asked for.
DROP INDEX unsettled_deliveries;
CREATE INDEX unsettled_deliveries ON deliveries (site, name, attempt)
    WHERE state NOT IN ('open', 'succeeded') AND settled_as IS NULL;

-- As before, but a revision is looked up by its whole key.
CREATE OR REPLACE VIEW owed_now AS
SELECT o.site, o.name, o.node, n.role, o.revision,
       (SELECT r.era FROM revisions r WHERE r.site = o.site AND r.name = o.name AND r.revision = o.revision) AS era, o.since
FROM owed o
JOIN nodes n ON n.name = o.node
LEFT JOIN site_leases l ON l.site = o.site AND NOT l.dropped
LEFT JOIN snapshots p ON p.site = o.site AND p.name = o.name
WHERE o.due AND n.removed_at IS NULL AND n.role <> 'worker' AND (o.node = l.holder OR o.revision <= p.revision);
