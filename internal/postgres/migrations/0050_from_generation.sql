-- Which generation a delivery came from, as the revision may be gone (N105): 0 where nothing was
-- deployed before, and where a server of an earlier version wrote it.
ALTER TABLE deliveries ADD COLUMN from_generation bigint NOT NULL DEFAULT 0;
