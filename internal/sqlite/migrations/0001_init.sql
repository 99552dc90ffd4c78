-- An IN of more than two has SQLite build a table at every write, which was most of the cost of one: checks are
-- written out.

PRAGMA application_id = 1215261796; -- "Hold": the file is a node's store, of a release

-- What a node knows about itself. One row.
CREATE TABLE meta (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    region   TEXT    NOT NULL DEFAULT '',
    role     TEXT    NOT NULL DEFAULT '' CHECK (role IN ('', 'active', 'standby', 'worker')),
    epoch    INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    holder   TEXT    NOT NULL DEFAULT '',
    start_id TEXT    NOT NULL DEFAULT '',
    -- The last reset of the site's votes that this store followed, and its epoch before.
    resets     INTEGER NOT NULL DEFAULT 0 CHECK (resets >= 0),
    reset_from INTEGER NOT NULL DEFAULT 0 CHECK (reset_from >= 0)
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
    high_action   TEXT    NOT NULL
        CHECK (high_action = 'deploy' OR high_action = 'enable' OR high_action = 'disable' OR high_action = 'delete'),
    high_hash     TEXT    NOT NULL,
    high_run_hash TEXT    NOT NULL,
    high_enabled  INTEGER NOT NULL CHECK (high_enabled BETWEEN 0 AND 1),
    epoch         INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

CREATE INDEX instances_by_high_hash ON instances (high_hash);

-- What a name holds. A current slot with the action delete is a tombstone.
CREATE TABLE slots (
    instance   TEXT    NOT NULL REFERENCES instances (name),
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

CREATE INDEX slots_by_content ON slots (content_id);

-- How far the output of an instance was shipped.
CREATE TABLE log_offsets (
    instance TEXT    PRIMARY KEY,
    position INTEGER NOT NULL CHECK (position >= 0)
) STRICT;

-- The newest expected set of the site that this node has seen, and the one that it was last
-- found to be exactly equal to. An older set than the seen one is not acted upon.
CREATE TABLE expected_set (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    seen_era     INTEGER NOT NULL DEFAULT 0 CHECK (seen_era >= 0),
    seen_number  INTEGER NOT NULL DEFAULT 0 CHECK (seen_number >= 0),
    clean_era    INTEGER NOT NULL DEFAULT 0 CHECK (clean_era >= 0),
    clean_number INTEGER NOT NULL DEFAULT 0 CHECK (clean_number >= 0)
) STRICT;

INSERT INTO expected_set (id) VALUES (1);

-- What was fetched for a switch that comes later, one revision of a name. It is not accepted:
-- what the node is owed until then is older, and must still be taken.
CREATE TABLE set_aside (
    instance TEXT    PRIMARY KEY CHECK (length(instance) BETWEEN 1 AND 63),
    era      INTEGER NOT NULL CHECK (era >= 0),
    revision INTEGER NOT NULL CHECK (revision >= 0),
    hash     TEXT    NOT NULL
) STRICT;
CREATE INDEX set_aside_by_hash ON set_aside (hash);

-- What the node knows of each of its replicas, so that it keeps and probes them after a restart,
-- also while the region is away. known is JSON of the keeper's own.
CREATE TABLE replicas (
    id           TEXT    PRIMARY KEY CHECK (length(id) = 12),
    known        BLOB    NOT NULL,
    log_position INTEGER NOT NULL DEFAULT 0 CHECK (log_position >= 0)
) STRICT;

-- The newest set of replicas that was taken.
CREATE TABLE replica_set (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    era      INTEGER NOT NULL CHECK (era >= 0),
    version  INTEGER NOT NULL CHECK (version >= 0)
) STRICT;
INSERT INTO replica_set (only_row, era, version) VALUES (1, 0, 0);

-- What the region has deleted or disabled since the revision that is held, and has not come yet:
-- it does not start, also not after a restart with the region away.
CREATE TABLE held_back (
    instance TEXT    PRIMARY KEY CHECK (length(instance) BETWEEN 1 AND 63),
    era      INTEGER NOT NULL CHECK (era >= 0),
    revision INTEGER NOT NULL CHECK (revision >= 0)
) STRICT;

-- Signatures of commands that were acted on, until they expire: of those that no revision and no epoch protects from
-- a repetition after a restart.
CREATE TABLE used_commands (
    signature  BLOB    PRIMARY KEY,
    expires_at INTEGER NOT NULL -- Unix time in nanoseconds
) STRICT;

-- Which agents may use this file: those that know the schema with this number, or a later one. Each migration
-- behind this one says so itself, because a release may bring several, and the one before it must be able to come
-- back (X26):
--
--	UPDATE usable SET from_schema = max(from_schema, 1);
CREATE TABLE usable (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    from_schema INTEGER NOT NULL CHECK (from_schema > 0)
) STRICT;
INSERT INTO usable (only_row, from_schema) VALUES (1, 1);
