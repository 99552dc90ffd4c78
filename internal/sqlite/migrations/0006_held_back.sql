-- What the region has deleted or disabled since the revision that is held, and has not come yet:
-- it does not start, also not after a restart with the region away.
CREATE TABLE held_back (
    instance TEXT    PRIMARY KEY CHECK (length(instance) BETWEEN 1 AND 63),
    era      INTEGER NOT NULL CHECK (era >= 0),
    revision INTEGER NOT NULL CHECK (revision >= 0)
) STRICT;
