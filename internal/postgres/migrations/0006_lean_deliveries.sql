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
