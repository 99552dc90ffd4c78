-- The last drain of each node. One entity (drain.NODE) serves all operations that ask for it;
-- a second one joins, and the earlier deadline counts.
CREATE TABLE node_drains (
    node      text        PRIMARY KEY REFERENCES nodes (name),
    newest    text        NOT NULL, -- the operation that asked last
    reason    text        NOT NULL,
    forced    boolean     NOT NULL DEFAULT false,
    phase     text        NOT NULL CHECK (phase IN ('moving', 'draining', 'ended')),
    rule      text        NOT NULL DEFAULT '', -- why it waits, or how it ended
    message   text        NOT NULL DEFAULT '',
    asked_at  timestamptz NOT NULL DEFAULT now(),
    deadline  timestamptz NOT NULL,
    ended_at  timestamptz,
    CHECK ((phase = 'ended') = (ended_at IS NOT NULL))
);
-- A drain reads also what of its node has ended since.
CREATE INDEX connections_ended_of_node ON connections (node, ended_at) WHERE node IS NOT NULL AND ended_at IS NOT NULL;
