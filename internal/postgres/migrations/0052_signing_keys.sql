-- By which the region signs what its nodes are asked through Temporal (docs/node-access.md): the
-- newest key whose time has come. Nodes learn a key before that, and take its commands until it
-- is retired.
CREATE TABLE signing_keys (
    number     bigint      PRIMARY KEY CHECK (number >= 1),
    seed       bytea       NOT NULL CHECK (length(seed) = 32),
    public     bytea       NOT NULL CHECK (length(public) = 32),
    use_at     timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz
);
