-- Many deliveries of one site that travel together (N98).
CREATE TABLE batches (
    id          text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    site        text        NOT NULL,
    fleet       text        NOT NULL DEFAULT '',
    fleet_run   bigint      NOT NULL DEFAULT 0,
    stage       boolean     NOT NULL DEFAULT false, -- fetched now, switched to by a later delivery
    node        text        NOT NULL,               -- the active that it was claimed for
    epoch       bigint      NOT NULL,
    state       text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'lost')),
    reason      text        NOT NULL DEFAULT '',
    workflow_id text        NOT NULL,
    run_id      text        NOT NULL,
    actor       text        NOT NULL,
    claimed     integer     NOT NULL DEFAULT 0,     -- how many deliveries it began with
    nodes       text[]      NOT NULL DEFAULT '{}',  -- that are told, the active first
    created_at  timestamptz NOT NULL DEFAULT now(),
    deadline_at timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE INDEX batches_open ON batches (created_at, id) WHERE state = 'open';
CREATE INDEX batches_ended ON batches (ended_at) WHERE state <> 'open';

ALTER TABLE deliveries ADD COLUMN batch_id text NOT NULL DEFAULT ''; -- '' of one that travels alone
CREATE INDEX deliveries_batch ON deliveries (batch_id, name) WHERE batch_id <> '';
ALTER TABLE deliveries DROP CONSTRAINT deliveries_state_check;
ALTER TABLE deliveries ADD CONSTRAINT deliveries_state_check
    CHECK (state IN ('open', 'unknown', 'succeeded', 'failed', 'superseded', 'cancelled', 'staged'));

-- What is only fetched asks no node what became of it, and is on its way to none.
DROP INDEX unsettled_deliveries;
CREATE INDEX unsettled_deliveries ON deliveries (site, name, attempt)
    WHERE state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL;
CREATE UNIQUE INDEX one_staged_delivery ON deliveries (site, name) WHERE state = 'staged' AND settled_as IS NULL;
CREATE OR REPLACE VIEW under_way AS
SELECT site, name FROM deliveries WHERE state = 'open'
UNION ALL
SELECT site, name FROM deliveries WHERE state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL;

-- The notify of its batch that named the item last, so that its digest stays what it was.
ALTER TABLE delivery_nodes ADD COLUMN notice bigint NOT NULL DEFAULT 0;
ALTER TABLE delivery_nodes DROP CONSTRAINT delivery_nodes_state_check;
ALTER TABLE delivery_nodes ADD CONSTRAINT delivery_nodes_state_check
    CHECK (state IN ('waiting', 'notified', 'applied', 'failed', 'unknown', 'staged'));

-- No index begins with a part of a key: while nothing is known of a table, a planner takes one
-- that does for as good as the whole key.
DROP INDEX owed_node;
CREATE INDEX owed_node ON owed (node, site, name);
DROP INDEX node_held_node;
CREATE INDEX node_held_node ON node_held (node, name, site);
DROP INDEX operations_running; -- one of all that run is enough: a planner takes either for the other

-- Who writes what is deployed beside its number spares the look at the revision.
DROP TRIGGER snapshots_fill ON snapshots;
CREATE TRIGGER snapshots_fill BEFORE INSERT ON snapshots FOR EACH ROW WHEN (NEW.era IS NULL) EXECUTE FUNCTION fill_snapshot();
CREATE TRIGGER snapshots_refill BEFORE UPDATE ON snapshots FOR EACH ROW
    WHEN (NEW.revision <> OLD.revision AND (NEW.era, NEW.action, NEW.body_hash, NEW.run_hash, NEW.enabled)
          IS NOT DISTINCT FROM (OLD.era, OLD.action, OLD.body_hash, OLD.run_hash, OLD.enabled))
    EXECUTE FUNCTION fill_snapshot();

-- A subject is permanent, and is numbered by the transaction that writes the revision. What
-- belongs to a delivery is written by the transaction that writes it, and goes with it: a
-- look at the delivery for each row found what was just written.
ALTER TABLE revisions DROP CONSTRAINT revisions_site_name_fkey;
ALTER TABLE delivery_nodes DROP CONSTRAINT delivery_nodes_delivery_id_fkey;
ALTER TABLE pending DROP CONSTRAINT pending_deployment_id_fkey;
CREATE FUNCTION drop_with_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids text[] := ARRAY(SELECT g.id FROM gone g);
BEGIN
    DELETE FROM delivery_nodes WHERE delivery_id = ANY(ids);
    DELETE FROM pending WHERE deployment_id = ANY(ids);
    RETURN NULL;
END $$;
CREATE TRIGGER deliveries_drop AFTER DELETE ON deliveries REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drop_with_deliveries();

-- Who lets a project refer to a body holds the body, or has just written it.
ALTER TABLE body_projects DROP CONSTRAINT body_projects_hash_fkey;
CREATE FUNCTION drop_with_bodies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM body_projects WHERE hash = ANY(ARRAY(SELECT g.hash FROM gone g WHERE g.hash IS NOT NULL));
    RETURN NULL;
END $$;
CREATE TRIGGER bodies_drop AFTER DELETE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drop_with_bodies();

-- A config of a usual size is one row, not a row and three more beside it.
ALTER TABLE body_chunks SET (toast_tuple_target = 8160);

-- Takes the advisory locks of a transaction in the order given, in one statement.
CREATE FUNCTION lock_keys(keys bigint[], shared boolean[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. coalesce(cardinality(keys), 0) LOOP
        IF shared[i] THEN
            PERFORM pg_advisory_xact_lock_shared(keys[i]);
        ELSE
            PERFORM pg_advisory_xact_lock(keys[i]);
        END IF;
    END LOOP;
END $$;

-- One going of a declared fleet change over its instances. What it does is read from spec,
-- the declared one at its start; a rollback takes back what another run released.
CREATE TABLE fleet_runs (
    fleet            text        NOT NULL,
    run              bigint      NOT NULL CHECK (run > 0),
    uid              uuid        NOT NULL DEFAULT gen_random_uuid(), -- of the object: one of the same name that was deleted had other runs
    project          text        NOT NULL,
    generation       bigint      NOT NULL,
    spec             jsonb       NOT NULL,
    rollback_of      bigint      NOT NULL DEFAULT 0 CHECK (rollback_of < run),
    state            text        NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'succeeded', 'cancelled', 'superseded')),
    reason           text        NOT NULL DEFAULT '',
    message          text        NOT NULL DEFAULT '',
    cancel_requested boolean     NOT NULL DEFAULT false,
    wave             integer     NOT NULL DEFAULT 1 CHECK (wave > 0),
    waves            integer     NOT NULL CHECK (waves >= wave),
    until_wave       integer     NOT NULL CHECK (until_wave <= waves),
    retrying         boolean     NOT NULL DEFAULT false, -- only targets that are marked as retried
    turn             bigint      NOT NULL DEFAULT 1,     -- raised by people: what was decided before counts no more
    entity_run       text        NOT NULL DEFAULT '',
    requested_by     text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    deadline_at      timestamptz NOT NULL,
    ended_at         timestamptz,
    PRIMARY KEY (fleet, run),
    CHECK ((state IN ('running', 'paused')) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX one_live_fleet_run ON fleet_runs (fleet) WHERE state IN ('running', 'paused');
CREATE INDEX fleet_runs_ended ON fleet_runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX fleet_runs_patches ON fleet_runs ((spec #>> '{change,patch,hash}')) WHERE spec #>> '{change,patch,hash}' IS NOT NULL;

CREATE TABLE fleet_targets (
    fleet           text        NOT NULL,
    run             bigint      NOT NULL,
    site            text        NOT NULL,
    name            text        NOT NULL,
    wave            integer     NOT NULL CHECK (wave > 0),
    state           text        NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'delivering', 'staged', 'succeeded', 'unchanged', 'superseded', 'failed')),
    revision        bigint      NOT NULL DEFAULT 0, -- that this run released
    before_revision bigint      NOT NULL DEFAULT 0, -- that was desired before
    undoes          bigint      NOT NULL DEFAULT 0, -- of a rollback: the revision that it takes back
    restores        bigint      NOT NULL DEFAULT 0, -- of a rollback: the revision that it writes again, 0 when there was none
    retried         boolean     NOT NULL DEFAULT false, -- it failed, and was put back to wait
    tries           integer     NOT NULL DEFAULT 0,
    delivery_id     text        NOT NULL DEFAULT '',
    reason          text        NOT NULL DEFAULT '',
    message         text        NOT NULL DEFAULT '',
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (fleet, run, site, name),
    FOREIGN KEY (fleet, run) REFERENCES fleet_runs ON DELETE CASCADE
);
ALTER TABLE fleet_targets SET (fillfactor = 60);
-- No other begins with (fleet, run): while nothing is known of the table, a planner takes any that
-- does for as good as the primary key, and then looks at every target for each.
CREATE INDEX fleet_targets_to_do ON fleet_targets (fleet, run, wave, site, name) WHERE state IN ('waiting', 'staged');

-- How the targets of each wave stand.
CREATE VIEW fleet_waves AS
SELECT fleet, run, wave, state, count(*) AS targets FROM fleet_targets GROUP BY fleet, run, wave, state;
