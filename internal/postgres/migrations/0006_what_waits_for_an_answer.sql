-- Copies that a comparison removed without an event of their owner that is newer than they are: they count towards the cap
-- (docs/copies.md).
ALTER TABLE region_syncs ADD COLUMN unshown bigint NOT NULL DEFAULT 0;

-- The region waits for a report that it requested of the node: what a digest of the same connection shows meanwhile is counted already.
ALTER TABLE node_digests ADD COLUMN asked boolean NOT NULL DEFAULT false;

DROP FUNCTION lock_keys;
