-- Copies that a comparison removed without an event of their owner that is newer than they are: they count towards the cap
-- (docs/copies.md).
ALTER TABLE region_syncs ADD COLUMN unshown bigint NOT NULL DEFAULT 0;

DROP FUNCTION lock_keys;
