-- The phase of a replica, where it is one that a server of the build before does not know; that reads and writes phase alone.
ALTER TABLE replicas ADD COLUMN exact_phase text NOT NULL DEFAULT '' CHECK (exact_phase IN ('', 'pre_start', 'launching'));

-- Why its checks fail, by its node's last word: health and readiness, each with check, cause, listens, times and since.
ALTER TABLE replicas ADD COLUMN failing jsonb NOT NULL DEFAULT '{}';

-- What started the time of a rollout without progress again, or stops it.
ALTER TABLE rollouts ADD COLUMN clock text NOT NULL DEFAULT '';
