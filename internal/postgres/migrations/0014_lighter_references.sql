-- What a fleet change costs the database most, once more: looks at what the same transaction
-- holds or has just written, and the same words in two indexes.

-- Who refers to a revision has it from what refers to it already, under the lock of the
-- subject: a delivery is claimed of the desired one, what is deployed or owed is that of a
-- delivery or of the snapshot. The collection passes over each of these. A revision is written
-- by who holds its body (hold_bodies, UseBodies). What is left to guard is that nothing goes
-- which is referred to.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_site_name_revision_fkey;
ALTER TABLE snapshots DROP CONSTRAINT snapshots_site_name_revision_fkey;
ALTER TABLE owed DROP CONSTRAINT owed_site_name_revision_fkey;
ALTER TABLE revisions DROP CONSTRAINT revisions_body_hash_fkey;
CREATE FUNCTION keep_referred_revisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g WHERE
            EXISTS (SELECT 1 FROM deliveries d WHERE d.site = g.site AND d.name = g.name AND d.revision = g.revision OFFSET 0)
            OR EXISTS (SELECT 1 FROM snapshots p WHERE p.site = g.site AND p.name = g.name AND p.revision = g.revision OFFSET 0)
            OR EXISTS (SELECT 1 FROM owed o WHERE o.site = g.site AND o.name = g.name AND o.revision = g.revision OFFSET 0)) THEN
        RAISE EXCEPTION 'a revision is referred to' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER revisions_referred AFTER DELETE ON revisions REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_revisions();

-- A body is given another name never, and taken it away from only when it is removed.
CREATE FUNCTION keep_referred_bodies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g WHERE g.hash IS NOT NULL
               AND EXISTS (SELECT 1 FROM revisions r WHERE r.body_hash = g.hash OFFSET 0)
               AND NOT EXISTS (SELECT 1 FROM bodies b WHERE b.hash = g.hash OFFSET 0)) THEN
        RAISE EXCEPTION 'a body is referred to' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER bodies_referred AFTER DELETE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_bodies();
CREATE TRIGGER bodies_unnamed AFTER UPDATE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_bodies();

-- The claim of a delivery in a batch is the batch and the name, which are unique together.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_claim_key;
CREATE UNIQUE INDEX deliveries_claim ON deliveries (claim) WHERE batch_id = '';
DROP INDEX deliveries_batch;
CREATE UNIQUE INDEX deliveries_batch ON deliveries (batch_id, name) WHERE batch_id <> '';

-- Takes the advisory locks of a transaction in the order given, without a statement for each.
CREATE OR REPLACE FUNCTION lock_keys(keys bigint[], shared boolean[]) RETURNS void LANGUAGE sql AS $$
    SELECT count(CASE WHEN k.shared THEN pg_advisory_xact_lock_shared(k.key) ELSE pg_advisory_xact_lock(k.key) END)
    FROM unnest(keys, shared) AS k(key, shared)
$$;
