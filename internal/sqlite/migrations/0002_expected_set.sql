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
