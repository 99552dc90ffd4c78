-- What FailoverSite was asked to do, and what a node counted since it started.
ALTER TABLE operations ADD COLUMN forced boolean NOT NULL DEFAULT false;
ALTER TABLE nodes ADD COLUMN counters jsonb NOT NULL DEFAULT '{}', ADD COLUMN counted_at timestamptz;
