-- When a write last referred to a body, or the collection last found that something does.
ALTER TABLE bodies ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX bodies_unused ON bodies (used_at) WHERE hash IS NOT NULL;
-- Holds bodies against the collection until the transaction ends; fails when one is gone.
CREATE FUNCTION hold_bodies(hashes bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    held integer;
BEGIN
    PERFORM 1 FROM bodies b WHERE b.hash = ANY(hashes) FOR KEY SHARE;
    GET DIAGNOSTICS held = ROW_COUNT;
    IF held < cardinality(hashes) THEN
        RAISE EXCEPTION 'a body was collected' USING ERRCODE = 'HF001';
    END IF;
END $$;
-- Without a name: an upload under way, or what is left to be removed of one or of a large body.
CREATE INDEX bodies_nameless ON bodies (id) WHERE hash IS NULL;
CREATE INDEX uploads_progress ON uploads (updated_at);
CREATE INDEX uploads_body ON uploads (body_id);
CREATE INDEX body_projects_hash ON body_projects (hash);

-- Who refers to a body. A revision's config or artifact is its body; its overrides are a
-- body of their own. Of declared objects every "hash" counts, so that a new kind is safe.
CREATE INDEX revisions_body ON revisions (body_hash) WHERE body_hash IS NOT NULL;
CREATE INDEX revisions_overrides ON revisions ((spec #>> '{overrides,hash}')) WHERE spec #>> '{overrides,hash}' IS NOT NULL;
CREATE INDEX objects_bodies ON objects
    USING gin (jsonb_path_query_array(spec, '$.**.hash'::jsonpath) jsonb_path_ops) WITH (fastupdate = off);
CREATE INDEX template_generations_bodies ON template_generations
    USING gin (jsonb_path_query_array(spec, '$.**.hash'::jsonpath) jsonb_path_ops) WITH (fastupdate = off);

-- Who refers to a revision.
CREATE INDEX deliveries_revision ON deliveries (site, name, revision);
CREATE INDEX snapshot_tickets_instance ON snapshot_tickets (site, name);

-- Whose an instance was, for when its operations are gone.
ALTER TABLE subjects ADD COLUMN project text NOT NULL DEFAULT '';
UPDATE subjects s SET project = coalesce((SELECT o.project FROM operations o WHERE o.site = s.site AND o.name = s.name
                                          ORDER BY o.created_at DESC LIMIT 1), '');

CREATE INDEX operations_told ON operations (ended_at) WHERE state <> 'running' AND (door_run = '' OR door_told);

-- The last event that was collected: a watch goes on from here or later, not from before.
CREATE TABLE feed_horizon (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    era      bigint  NOT NULL DEFAULT 0,
    xid      xid8    NOT NULL DEFAULT '0',
    seq      bigint  NOT NULL DEFAULT 0
);
INSERT INTO feed_horizon DEFAULT VALUES;

-- Where a walk over all instances goes on, in the next page or the next run.
CREATE TABLE collection_places (
    kind text PRIMARY KEY CHECK (kind IN ('deliveries', 'revisions')),
    site text NOT NULL DEFAULT '',
    name text NOT NULL DEFAULT ''
);
INSERT INTO collection_places (kind) VALUES ('deliveries'), ('revisions');
