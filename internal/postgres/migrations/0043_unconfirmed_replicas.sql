-- Of which declaration, and of which process version, a tombstone is, and whether its node had said before
-- that nothing of it runs: what is neither confirmed nor said may run on, and an operation says so.
ALTER TABLE replica_tombstones
    ADD COLUMN uid             uuid, -- NULL: of none that is known
    ADD COLUMN process_version bigint  NOT NULL DEFAULT 0,
    ADD COLUMN ended           boolean NOT NULL DEFAULT false;
UPDATE replica_tombstones t
SET uid = r.uid, process_version = r.process_version, ended = r.phase IN ('exited', 'failed', 'stopped') AND t.since <= r.ended_at
FROM replicas r WHERE r.id = t.replica AND r.node = t.node AND r.deployment = t.deployment;
