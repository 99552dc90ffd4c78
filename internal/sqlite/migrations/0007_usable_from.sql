-- Which agents may use this file: those that know the schema with this number, or a later one. Each migration
-- behind this one says so itself, because a release may bring several, and the one before it must be able to come
-- back (X26):
--
--	UPDATE usable SET from_schema = max(from_schema, 7);
CREATE TABLE usable (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    from_schema INTEGER NOT NULL CHECK (from_schema > 0)
) STRICT;
INSERT INTO usable (only_row, from_schema) VALUES (1, 6);
