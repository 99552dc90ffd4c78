-- With no index on what is in a spec, a change of it stays on its page and touches no index; the
-- collection reads the specs instead (BodiesDeclared).
DROP INDEX objects_bodies;
ALTER TABLE objects SET (fillfactor = 50);
