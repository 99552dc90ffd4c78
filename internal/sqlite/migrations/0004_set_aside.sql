-- What was fetched for a switch that comes later, one revision of a name. It is not accepted:
-- what the node is owed until then is older, and must still be taken.
CREATE TABLE set_aside (
    instance TEXT    PRIMARY KEY CHECK (length(instance) BETWEEN 1 AND 63),
    era      INTEGER NOT NULL CHECK (era >= 0),
    revision INTEGER NOT NULL CHECK (revision >= 0),
    hash     TEXT    NOT NULL
) STRICT;
CREATE INDEX set_aside_by_hash ON set_aside (hash);
