-- What 0042 named to nodes of replicas that they had said were over was written after those ended, which 0043
-- took for a later word: agents of before whole reports could never confirm it. A schema that was made by hand
-- has no record of 0042, and none of these.
DO $$ BEGIN
    IF to_regclass('schema_migrations') IS NOT NULL THEN
        UPDATE replica_tombstones t SET ended = true
        FROM replicas r, schema_migrations m
        WHERE r.id = t.replica AND r.node = t.node AND r.deployment = t.deployment AND r.phase IN ('exited', 'failed')
          AND m.name = 'migrations/0042_replica_tombstones.sql' AND t.since = m.at;
    END IF;
END $$;
