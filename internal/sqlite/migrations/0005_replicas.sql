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
