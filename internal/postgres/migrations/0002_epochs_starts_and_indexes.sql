-- The epoch of a site only rises, also when the site has no node for a while.
ALTER TABLE site_leases ADD COLUMN dropped boolean NOT NULL DEFAULT false;

-- When a node began to say what it holds after its start: what it said before is forgotten.
ALTER TABLE nodes ADD COLUMN starting_at timestamptz;

-- What the sweeps look for among all that ever was.
CREATE INDEX operations_untold ON operations (ended_at) WHERE state <> 'running' AND door_run <> '' AND NOT door_told;
CREATE INDEX owed_due ON owed (site, name) WHERE due;
