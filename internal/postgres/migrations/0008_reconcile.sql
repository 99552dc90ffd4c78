-- The number of each site's expected set, raised by every change to it. It is raised at
-- commit, so that deliveries of one site wait for each other no longer than their flush,
-- and once a transaction.
CREATE TABLE site_sets (
    site       text   PRIMARY KEY,
    version    bigint NOT NULL CHECK (version > 0),
    changed_in xid8   NOT NULL
);
CREATE FUNCTION raise_site_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO site_sets (site, version, changed_in) VALUES (NEW.site, 1, pg_current_xact_id())
    ON CONFLICT (site) DO UPDATE SET version = site_sets.version + 1, changed_in = excluded.changed_in
    WHERE site_sets.changed_in <> excluded.changed_in;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER snapshots_raise_set AFTER INSERT OR UPDATE ON snapshots
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION raise_site_set();
INSERT INTO site_sets (site, version, changed_in) SELECT DISTINCT site, 1, pg_current_xact_id() FROM snapshots;

-- One comparison of one node. The token opens the site's expected set while it runs.
CREATE TABLE reconciles (
    id         text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    node       text        NOT NULL,
    site       text        NOT NULL,
    reason     text        NOT NULL,
    token_hash bytea       NOT NULL UNIQUE CHECK (octet_length(token_hash) = 32),
    state      text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'succeeded', 'failed')),
    message    text        NOT NULL DEFAULT '',
    -- What the node said came of it; its lists of names are bounded.
    report     jsonb       NOT NULL DEFAULT '{}',
    drops      integer     NOT NULL DEFAULT 0, -- let go by the cap
    run        text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    ended_at   timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX reconciles_node ON reconciles (node, created_at DESC);

-- What a node holds and the region does not expect there, waiting for an operator.
CREATE TABLE orphans (
    node        text        NOT NULL,
    name        text        NOT NULL,
    site        text        NOT NULL,
    era         bigint      NOT NULL,
    revision    bigint      NOT NULL,
    hash        bytea,
    reason      text        NOT NULL CHECK (reason IN ('never_known', 'over_cap')),
    reconcile   text        NOT NULL, -- that listed it last
    since       timestamptz NOT NULL DEFAULT now(),
    approved_by text,
    approved_at timestamptz,
    PRIMARY KEY (node, name),
    CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);

-- Deliveries that are open, or of which nobody knows yet what became of them.
CREATE VIEW under_way AS
SELECT site, name FROM deliveries WHERE state = 'open'
UNION ALL
SELECT site, name FROM deliveries WHERE state NOT IN ('open', 'succeeded') AND settled_as IS NULL;
