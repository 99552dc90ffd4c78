-- How many of those that failed are not made anew before next_attempt: others are, meanwhile.
ALTER TABLE deployments ADD COLUMN owed integer NOT NULL DEFAULT 0;
