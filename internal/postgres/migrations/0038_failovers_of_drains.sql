-- The node whose drain asked for a failover.
ALTER TABLE operations ADD COLUMN drain_of text NOT NULL DEFAULT '';
CREATE INDEX operations_of_drain ON operations (drain_of, created_at) WHERE drain_of <> '';
