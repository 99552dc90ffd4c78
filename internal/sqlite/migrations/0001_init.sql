-- What a node knows about itself. One row.
CREATE TABLE meta (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    region   TEXT    NOT NULL DEFAULT '',
    role     TEXT    NOT NULL DEFAULT '' CHECK (role IN ('', 'active', 'standby', 'worker')),
    epoch    INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    holder   TEXT    NOT NULL DEFAULT '',
    start_id TEXT    NOT NULL DEFAULT ''
) STRICT;

INSERT INTO meta (id) VALUES (1);

-- A body, named by its SHA-256 and shared by every slot that has it. It is the resume state
-- of its own download: received bytes are committed, sha_state is the running hash over
-- them. A body that is to be removed loses its hash first, so that none is ever seen half
-- removed.
CREATE TABLE contents (
    id        INTEGER PRIMARY KEY,
    hash      TEXT    UNIQUE CHECK (hash IS NULL OR length(hash) = 64),
    size      INTEGER NOT NULL CHECK (size >= 0),
    received  INTEGER NOT NULL DEFAULT 0 CHECK (received BETWEEN 0 AND size),
    complete  INTEGER NOT NULL DEFAULT 0 CHECK (complete IN (0, 1)),
    sha_state BLOB    NOT NULL,
    CHECK (complete = 0 OR received = size)
) STRICT;

CREATE TABLE chunks (
    content_id INTEGER NOT NULL REFERENCES contents (id),
    position   INTEGER NOT NULL CHECK (position >= 0),
    data       BLOB    NOT NULL CHECK (length(data) BETWEEN 1 AND 1048576),
    PRIMARY KEY (content_id, position)
) STRICT;

-- One permanent row per name: the high-water mark is the highest revision ever accepted,
-- also when it failed. It outlives a delete.
CREATE TABLE instances (
    name          TEXT    PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    high_era      INTEGER NOT NULL CHECK (high_era >= 0),
    high_revision INTEGER NOT NULL CHECK (high_revision >= 0),
    high_action   TEXT    NOT NULL CHECK (high_action IN ('deploy', 'enable', 'disable', 'delete')),
    high_hash     TEXT    NOT NULL,
    high_run_hash TEXT    NOT NULL,
    high_enabled  INTEGER NOT NULL CHECK (high_enabled IN (0, 1)),
    epoch         INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

CREATE INDEX instances_by_high_hash ON instances (high_hash);

-- What a name holds. A current slot with the action delete is a tombstone.
CREATE TABLE slots (
    instance   TEXT    NOT NULL REFERENCES instances (name),
    slot       TEXT    NOT NULL CHECK (slot IN ('staged', 'current', 'previous')),
    era        INTEGER NOT NULL CHECK (era >= 0),
    revision   INTEGER NOT NULL CHECK (revision >= 0),
    action     TEXT    NOT NULL CHECK (action IN ('deploy', 'enable', 'disable', 'delete')),
    kind       TEXT    NOT NULL CHECK (kind IN ('', 'json', 'artifact')),
    hash       TEXT    NOT NULL,
    size       INTEGER NOT NULL CHECK (size >= 0),
    run_hash   TEXT    NOT NULL,
    run        BLOB    NOT NULL,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    epoch      INTEGER NOT NULL CHECK (epoch >= 0),
    content_id INTEGER REFERENCES contents (id),
    PRIMARY KEY (instance, slot),
    CHECK ((action = 'delete') = (content_id IS NULL)),
    CHECK (action <> 'delete' OR (enabled = 0 AND run_hash = '' AND slot <> 'previous')),
    CHECK ((run_hash = '') = (length(run) = 0))
) STRICT;

CREATE INDEX slots_by_content ON slots (content_id);

-- How far the output of an instance was shipped.
CREATE TABLE log_offsets (
    instance TEXT    PRIMARY KEY,
    position INTEGER NOT NULL CHECK (position >= 0)
) STRICT;
