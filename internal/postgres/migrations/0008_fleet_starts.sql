-- A wave of a fleet change ends when the commands that it started have run for a while (docs/fleets.md). Nodes say how
-- often a command has exited, and how last; a delivery keeps how often it had when its revision was applied.
ALTER TABLE node_held ADD COLUMN exits integer NOT NULL DEFAULT 0 CHECK (exits >= 0), ADD COLUMN last_exit text NOT NULL DEFAULT '';
ALTER TABLE delivery_nodes ADD COLUMN exits integer NOT NULL DEFAULT 0 CHECK (exits >= 0);

-- What succeeded before this counts as proven.
ALTER TABLE fleet_targets ADD COLUMN proven boolean NOT NULL DEFAULT true;
ALTER TABLE fleet_targets ALTER COLUMN proven SET DEFAULT false;
CREATE INDEX fleet_targets_unproven ON fleet_targets (fleet, run, wave) WHERE state = 'succeeded' AND NOT proven;
