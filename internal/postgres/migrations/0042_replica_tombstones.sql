-- What a node is to end by name although the row has ended: it has not said yet that nothing of it
-- runs. It outlives the row.
CREATE TABLE replica_tombstones (
    node         text        NOT NULL REFERENCES nodes (name),
    replica      text        NOT NULL CHECK (replica ~ '^[0-9a-f]{12}$'),
    deployment   text        NOT NULL,
    stop_seconds integer     NOT NULL, -- 0: as the node knows it
    listed       bigint      NOT NULL, -- the version of the node's set since which it is in it
    since        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node, replica)
);
CREATE INDEX replica_tombstones_of ON replica_tombstones (deployment);

-- What a node runs, and the region does not know or may not end by itself, waiting for an operator.
CREATE TABLE orphan_replicas (
    node        text        NOT NULL REFERENCES nodes (name),
    replica     text        NOT NULL CHECK (replica ~ '^[0-9a-f]{12}$'),
    deployment  text        NOT NULL, -- that its node knows it by, '' when it knows none
    revision    bigint      NOT NULL,
    phase       text        NOT NULL, -- that its node told last
    reason      text        NOT NULL CHECK (reason IN ('never_known', 'over_cap')),
    since       timestamptz NOT NULL DEFAULT now(),
    approved_by text,
    approved_at timestamptz,
    PRIMARY KEY (node, replica),
    CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);
CREATE INDEX orphan_replicas_of ON orphan_replicas (deployment);

-- What waits for an operator, of both kinds.
CREATE VIEW waiting_orphans AS
SELECT x.node, x.since FROM orphans x JOIN nodes n ON n.name = x.node WHERE x.approved_at IS NULL AND n.removed_at IS NULL
UNION ALL
SELECT y.node, y.since FROM orphan_replicas y JOIN nodes n ON n.name = y.node WHERE y.approved_at IS NULL AND n.removed_at IS NULL;

-- Until now a node ended what its set did not list. What it may still have is named from now on.
INSERT INTO replica_tombstones (node, replica, deployment, stop_seconds, listed)
SELECT r.node, r.id, r.deployment, r.stop_seconds, s.version + 1
FROM replicas r JOIN nodes n ON n.name = r.node JOIN node_sets s ON s.node = r.node
WHERE r.ended_at IS NOT NULL AND r.phase <> 'stopped' AND NOT r.lost AND n.removed_at IS NULL AND n.revoked_at IS NULL;
UPDATE node_sets SET version = version + 1, changed_at = now() WHERE node IN (SELECT t.node FROM replica_tombstones t);
