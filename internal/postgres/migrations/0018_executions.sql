-- What durable executions of modules are given and give back, and the answers of direct ones
-- that came with an idempotency key. Temporal sees ids only; rows go when they expire.
CREATE TABLE executions (
    id               text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'), -- the operation's, where there is one
    module_namespace text        NOT NULL,
    module           text        NOT NULL,
    input            bytea       CHECK (octet_length(input) <= 65536), -- NULL of a direct one
    input_hash       text        NOT NULL CHECK (length(input_hash) = 64),
    output           bytea       CHECK (octet_length(output) <= 1048576),
    output_hash      text        CHECK (length(output_hash) = 64),
    failure          text        NOT NULL DEFAULT '', -- what the module said
    connection       text        NOT NULL DEFAULT '', -- who answered
    created_at       timestamptz NOT NULL DEFAULT now(),
    expires_at       timestamptz NOT NULL,
    CHECK ((output IS NULL) = (output_hash IS NULL))
);
CREATE INDEX executions_expiry ON executions (expires_at);
