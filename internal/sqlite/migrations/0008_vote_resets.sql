-- The last reset of the site's votes that this store followed, and its epoch before. An agent that does not know
-- these columns follows no reset.
ALTER TABLE meta ADD COLUMN resets INTEGER NOT NULL DEFAULT 0 CHECK (resets >= 0);
ALTER TABLE meta ADD COLUMN reset_from INTEGER NOT NULL DEFAULT 0 CHECK (reset_from >= 0);
UPDATE usable SET from_schema = max(from_schema, 7);
