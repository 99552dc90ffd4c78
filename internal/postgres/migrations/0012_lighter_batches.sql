-- What a batch of 500 writes costs the database most is its indexes and what runs for each row.

-- A delivery is written again three times within a second, twice of them with nothing that an
-- index holds: with room beside it, these stay on its page and touch no index.
ALTER TABLE deliveries SET (fillfactor = 50);

-- Checked again at each of these writes.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_id_check;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_id_check CHECK (octet_length(id) = 32);

-- One index for both who asks by project and hash, and who drops a hash.
ALTER TABLE body_projects DROP CONSTRAINT body_projects_pkey;
DROP INDEX body_projects_hash;
ALTER TABLE body_projects ADD PRIMARY KEY (hash, project);

-- The first snapshot of a transaction raises its site's set; the rest only see that it did.
CREATE OR REPLACE FUNCTION raise_site_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('holdfast.raised_set', true) = NEW.site THEN
        RETURN NULL;
    END IF;
    INSERT INTO site_sets (site, version, changed_in) VALUES (NEW.site, 1, pg_current_xact_id())
    ON CONFLICT (site) DO UPDATE SET version = site_sets.version + 1, changed_in = excluded.changed_in
    WHERE site_sets.changed_in <> excluded.changed_in;
    PERFORM set_config('holdfast.raised_set', NEW.site, true);
    RETURN NULL;
END $$;

-- The state of a target is in no index, so that its turns stay on its page too. Who looks for
-- what is left to do at a site reads the targets of that site.
DROP INDEX fleet_targets_to_do;

-- The chunks of a body are written by the transaction that makes it, or under the lock of its
-- upload, and go with it.
ALTER TABLE body_chunks DROP CONSTRAINT body_chunks_body_id_fkey;
CREATE OR REPLACE FUNCTION drop_with_bodies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM body_projects WHERE hash = ANY(ARRAY(SELECT g.hash FROM gone g WHERE g.hash IS NOT NULL));
    DELETE FROM body_chunks WHERE body_id = ANY(ARRAY(SELECT g.id FROM gone g));
    RETURN NULL;
END $$;
