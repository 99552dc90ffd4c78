-- Sync (docs/sync.md): the newest digest of each node, which is compared with the rows of its replicas. After a crash of
-- the database nodes send it again.
CREATE UNLOGGED TABLE node_digests (
    node       text        PRIMARY KEY REFERENCES nodes (name),
    connection text        NOT NULL, -- that sent it
    era        bigint      NOT NULL, -- of the set that the node followed
    version    bigint      NOT NULL,
    reports    bigint      NOT NULL DEFAULT 0, -- that were written since the node sent its first digest
    after      bigint      NOT NULL DEFAULT 0, -- those of them that were written before this digest
    marks      text, -- a line for each replica; NULL once the region has requested a report because of it
    at         timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
