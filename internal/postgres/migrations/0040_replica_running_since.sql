-- When the process of a replica began to run: its first success is due by then and the start-up time. Preparing,
-- which comes before, is in the same state.
ALTER TABLE replicas ADD COLUMN running_since timestamptz;
