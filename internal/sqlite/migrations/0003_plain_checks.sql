-- The same tables with the same checks: SQLite builds a table for each list of more than two
-- of an IN, at every write, which was most of the cost of one.
CREATE TABLE instances_new (
    name          TEXT    PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    high_era      INTEGER NOT NULL CHECK (high_era >= 0),
    high_revision INTEGER NOT NULL CHECK (high_revision >= 0),
    high_action   TEXT    NOT NULL
        CHECK (high_action = 'deploy' OR high_action = 'enable' OR high_action = 'disable' OR high_action = 'delete'),
    high_hash     TEXT    NOT NULL,
    high_run_hash TEXT    NOT NULL,
    high_enabled  INTEGER NOT NULL CHECK (high_enabled BETWEEN 0 AND 1),
    epoch         INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

INSERT INTO instances_new SELECT * FROM instances;

CREATE TABLE slots_new (
    instance   TEXT    NOT NULL REFERENCES instances_new (name),
    slot       TEXT    NOT NULL CHECK (slot = 'staged' OR slot = 'current' OR slot = 'previous'),
    era        INTEGER NOT NULL CHECK (era >= 0),
    revision   INTEGER NOT NULL CHECK (revision >= 0),
    action     TEXT    NOT NULL
        CHECK (action = 'deploy' OR action = 'enable' OR action = 'disable' OR action = 'delete'),
    kind       TEXT    NOT NULL CHECK (kind = '' OR kind = 'json' OR kind = 'artifact'),
    hash       TEXT    NOT NULL,
    size       INTEGER NOT NULL CHECK (size >= 0),
    run_hash   TEXT    NOT NULL,
    run        BLOB    NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled BETWEEN 0 AND 1),
    epoch      INTEGER NOT NULL CHECK (epoch >= 0),
    content_id INTEGER REFERENCES contents (id),
    PRIMARY KEY (instance, slot),
    CHECK ((action = 'delete') = (content_id IS NULL)),
    CHECK (action <> 'delete' OR (enabled = 0 AND run_hash = '' AND slot <> 'previous')),
    CHECK ((run_hash = '') = (length(run) = 0))
) STRICT;

INSERT INTO slots_new SELECT * FROM slots;

DROP TABLE slots;
DROP TABLE instances;
ALTER TABLE instances_new RENAME TO instances;
ALTER TABLE slots_new RENAME TO slots;

CREATE INDEX instances_by_high_hash ON instances (high_hash);
CREATE INDEX slots_by_content ON slots (content_id);
