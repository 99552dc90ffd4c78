-- The region's truth. Constraints state what must never be; Go states what happens.

CREATE TABLE region (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name              text        NOT NULL,
    era               bigint      NOT NULL CHECK (era > 0),
    system_identifier text        NOT NULL,
    timeline          integer     NOT NULL,
    raised_at         timestamptz NOT NULL DEFAULT now()
);

-- Every declared object. Bodies are named by hash inside spec, never inline.
CREATE TABLE objects (
    uid              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    kind             text        NOT NULL,
    api_version      text        NOT NULL DEFAULT 'v1',
    project          text        NOT NULL,
    scope            text        NOT NULL DEFAULT '', -- the site of an instance
    name             text        NOT NULL,
    labels           jsonb       NOT NULL DEFAULT '{}',
    generation       bigint      NOT NULL CHECK (generation > 0),
    resource_version bigint      NOT NULL,
    spec             jsonb       NOT NULL,
    syncing          jsonb       NOT NULL,
    owner_epoch      bigint      NOT NULL DEFAULT 1,
    created_by       text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    deleting_since   timestamptz,
    UNIQUE (kind, scope, name)
);

-- The feed. Sequence order is not commit order, so readers order by (era, xid, seq) and
-- stop below the oldest running transaction.
CREATE TABLE events (
    seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    era        bigint      NOT NULL,
    xid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at         timestamptz NOT NULL DEFAULT now(),
    type       text        NOT NULL CHECK (type IN ('created', 'updated', 'deleting', 'deleted', 'status')),
    kind       text        NOT NULL,
    project    text        NOT NULL,
    scope      text        NOT NULL,
    name       text        NOT NULL,
    uid        uuid        NOT NULL,
    generation bigint      NOT NULL,
    actor      text        NOT NULL,
    before     jsonb,
    after      jsonb
);
CREATE INDEX events_feed ON events (era, xid, seq);

-- "Wake X": order and repeats do not matter. A row goes when its entity has read it.
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject    text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_subject ON outbox (subject);

CREATE TABLE template_generations (
    name       text   NOT NULL,
    generation bigint NOT NULL,
    spec       jsonb  NOT NULL,
    PRIMARY KEY (name, generation)
);

-- Bodies in chunks of at most 1 MiB. An upload is a body without a hash.
CREATE TABLE bodies (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash       bytea       UNIQUE CHECK (octet_length(hash) = 32),
    size       bigint      NOT NULL DEFAULT 0 CHECK (size >= 0),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE body_chunks (
    body_id bigint  NOT NULL REFERENCES bodies ON DELETE CASCADE,
    idx     integer NOT NULL CHECK (idx >= 0),
    data    bytea   NOT NULL CHECK (octet_length(data) <= 1048576),
    PRIMARY KEY (body_id, idx)
);
ALTER TABLE body_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE uploads (
    id         text        PRIMARY KEY,
    project    text        NOT NULL,
    body_id    bigint      NOT NULL REFERENCES bodies ON DELETE CASCADE,
    received   bigint      NOT NULL DEFAULT 0,
    hash_state bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
-- A project may only reference what it uploaded.
CREATE TABLE body_projects (
    project text  NOT NULL,
    hash    bytea NOT NULL REFERENCES bodies (hash) ON DELETE CASCADE,
    PRIMARY KEY (project, hash)
);

CREATE TABLE nodes (
    name         text        PRIMARY KEY,
    site         text        NOT NULL,
    role         text        NOT NULL CHECK (role IN ('active', 'standby', 'worker')),
    signing_key  bytea       CHECK (octet_length(signing_key) = 32),
    sealing_key  bytea       CHECK (octet_length(sealing_key) = 32),
    enrolled_at  timestamptz,
    revoked_at   timestamptz,
    seen_at      timestamptz,
    start_id     text,
    started_at   timestamptz,
    removed_at   timestamptz
);
CREATE INDEX nodes_site ON nodes (site);

-- Who may be active. Until nodes vote, the configured node holds it.
CREATE TABLE site_leases (
    site   text   PRIMARY KEY,
    holder text   NOT NULL REFERENCES nodes (name),
    epoch  bigint NOT NULL CHECK (epoch > 0)
);

-- Permanent per (site, name): the counter of its revisions, and its tombstone.
CREATE TABLE subjects (
    site             text    NOT NULL,
    name             text    NOT NULL,
    last_revision    bigint  NOT NULL DEFAULT 0,
    desired_revision bigint  NOT NULL DEFAULT 0 CHECK (desired_revision <= last_revision),
    attempts         bigint  NOT NULL DEFAULT 0,
    deleted          boolean NOT NULL DEFAULT false,
    entity_run       text    NOT NULL DEFAULT '',
    PRIMARY KEY (site, name)
);

CREATE TABLE revisions (
    site         text        NOT NULL,
    name         text        NOT NULL,
    revision     bigint      NOT NULL CHECK (revision > 0),
    era          bigint      NOT NULL,
    action       text        NOT NULL CHECK (action IN ('deploy', 'enable', 'disable', 'delete')),
    content_kind text        NOT NULL DEFAULT '' CHECK (content_kind IN ('', 'json', 'artifact')),
    body_hash    bytea       REFERENCES bodies (hash),
    size         bigint      NOT NULL DEFAULT 0,
    run          jsonb,
    run_hash     bytea,
    enabled      boolean     NOT NULL,
    durability   text        NOT NULL CHECK (durability IN ('sync', 'async')),
    generation   bigint      NOT NULL,
    spec         jsonb       NOT NULL,
    created_by   text        NOT NULL,
    reason       text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, name, revision),
    FOREIGN KEY (site, name) REFERENCES subjects (site, name),
    CHECK ((action = 'delete') = (body_hash IS NULL)),
    CHECK ((run IS NULL) = (run_hash IS NULL))
);

CREATE TABLE deliveries (
    id           text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    site         text        NOT NULL,
    name         text        NOT NULL,
    revision     bigint      NOT NULL,
    attempt      bigint      NOT NULL,
    claim        text        NOT NULL UNIQUE, -- entity run and step: the same claim again, not a second one
    node         text        NOT NULL,        -- the active that it was claimed for
    epoch        bigint      NOT NULL,
    from_revision bigint     NOT NULL DEFAULT 0,
    state        text        NOT NULL CHECK (state IN ('open', 'unknown', 'succeeded', 'failed', 'superseded', 'cancelled')),
    phase        text        NOT NULL,
    reason       text        NOT NULL DEFAULT '',
    message      text        NOT NULL DEFAULT '',
    settled_as   text        CHECK (settled_as IN ('applied', 'not_applied')),
    requested_by text        NOT NULL,
    workflow_id  text        NOT NULL,
    run_id       text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    deadline_at  timestamptz NOT NULL,
    ended_at     timestamptz,
    UNIQUE (site, name, attempt),
    FOREIGN KEY (site, name, revision) REFERENCES revisions
);
CREATE UNIQUE INDEX one_open_delivery ON deliveries (site, name) WHERE state = 'open';
CREATE INDEX unsettled_deliveries ON deliveries (site, name) WHERE state <> 'succeeded' AND settled_as IS NULL;

-- What each node made of a delivery; one row a node, never one blob.
CREATE TABLE delivery_nodes (
    delivery_id text        NOT NULL REFERENCES deliveries ON DELETE CASCADE,
    node        text        NOT NULL,
    role        text        NOT NULL,
    state       text        NOT NULL CHECK (state IN ('waiting', 'notified', 'applied', 'failed', 'unknown')),
    already     boolean     NOT NULL DEFAULT false,
    tries       integer     NOT NULL DEFAULT 0,
    fetched     bigint      NOT NULL DEFAULT 0,
    total       bigint      NOT NULL DEFAULT 0,
    reason      text        NOT NULL DEFAULT '',
    message     text        NOT NULL DEFAULT '',
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (delivery_id, node)
);

-- Governs fetching only. Unique per subject: at most one, the newest (N17).
CREATE TABLE pending (
    deployment_id text        PRIMARY KEY REFERENCES deliveries ON DELETE CASCADE,
    site          text        NOT NULL,
    name          text        NOT NULL,
    revision      bigint      NOT NULL,
    revision_hash bytea,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    UNIQUE (site, name)
);
CREATE INDEX pending_expiry ON pending (expires_at);

-- A way to fetch what is already deployed; supersedes and closes nothing.
CREATE TABLE snapshot_tickets (
    id         text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    site       text        NOT NULL,
    name       text        NOT NULL,
    node       text        NOT NULL,
    revision   bigint      NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX snapshot_tickets_expiry ON snapshot_tickets (expires_at);

-- Insert-only; the token itself is nowhere.
CREATE TABLE fetch_tokens (
    deployment_id text        NOT NULL,
    node          text        NOT NULL,
    hash          bytea       NOT NULL CHECK (octet_length(hash) = 32),
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (deployment_id, hash)
);
CREATE INDEX fetch_tokens_expiry ON fetch_tokens (expires_at);

-- What the active applied last: deployed means succeeded.
CREATE TABLE snapshots (
    site        text        NOT NULL,
    name        text        NOT NULL,
    revision    bigint      NOT NULL,
    delivery_id text        NOT NULL,
    epoch       bigint      NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, name),
    FOREIGN KEY (site, name, revision) REFERENCES revisions
);

-- What a node should hold and has not confirmed. due: to be tried now; else when the node
-- starts, reports or is swept.
CREATE TABLE owed (
    site     text        NOT NULL,
    name     text        NOT NULL,
    node     text        NOT NULL,
    revision bigint      NOT NULL,
    action   text        NOT NULL,
    due      boolean     NOT NULL,
    reason   text        NOT NULL DEFAULT '',
    since    timestamptz NOT NULL DEFAULT now(),
    tried_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, name, node),
    FOREIGN KEY (site, name, revision) REFERENCES revisions
);
CREATE INDEX owed_node ON owed (node);

-- What each node last said that it holds.
CREATE TABLE node_held (
    site          text        NOT NULL,
    name          text        NOT NULL,
    node          text        NOT NULL,
    era           bigint      NOT NULL,
    revision      bigint      NOT NULL,
    hash          bytea,
    enabled       boolean     NOT NULL,
    deleted       boolean     NOT NULL,
    running       boolean     NOT NULL,
    high_era      bigint      NOT NULL,
    high_revision bigint      NOT NULL,
    reason        text        NOT NULL DEFAULT '',
    reported_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, name, node)
);

CREATE TABLE operations (
    id               text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    kind             text        NOT NULL,
    site             text        NOT NULL,
    name             text        NOT NULL,
    subject          text        NOT NULL, -- the entity's workflow id
    revision         bigint      NOT NULL DEFAULT 0,
    project          text        NOT NULL,
    state            text        NOT NULL CHECK (state IN ('running', 'succeeded', 'failed', 'unknown', 'cancelled', 'superseded')),
    reason           text        NOT NULL DEFAULT '',
    message          text        NOT NULL DEFAULT '',
    requested_by     text        NOT NULL,
    cancel_requested boolean     NOT NULL DEFAULT false,
    entity_run       text        NOT NULL DEFAULT '',
    entity_build     text        NOT NULL DEFAULT '',
    door_workflow    text        NOT NULL DEFAULT '',
    door_run         text        NOT NULL DEFAULT '',
    door_told        boolean     NOT NULL DEFAULT false,
    delivery_id      text        NOT NULL DEFAULT '',
    created_at       timestamptz NOT NULL DEFAULT now(),
    deadline_at      timestamptz NOT NULL,
    ended_at         timestamptz,
    CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX operations_open ON operations (subject) WHERE state = 'running';
CREATE INDEX operations_running ON operations (site, name) WHERE state = 'running';
CREATE INDEX operations_listing ON operations (created_at DESC, id);
-- A door that runs its activity twice asks once.
CREATE UNIQUE INDEX operations_door ON operations (door_workflow, door_run) WHERE door_run <> '';

-- A repeated request is answered from what the first one started.
CREATE TABLE idempotency (
    actor        text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    operation_id text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (actor, key)
);

CREATE TABLE api_tokens (
    id         text        PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    role       text        NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    project    text        NOT NULL DEFAULT '', -- '' is every project
    note       text        NOT NULL DEFAULT '',
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE TABLE join_tokens (
    id         text        PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    site       text        NOT NULL,
    node       text        NOT NULL,
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

-- Which builds have a worker: a pinned run of a build without one is stranded.
CREATE TABLE servers (
    id         text        PRIMARY KEY,
    build_id   text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE instance_logs (
    site        text        NOT NULL,
    name        text        NOT NULL,
    node        text        NOT NULL,
    log_offset  bigint      NOT NULL,
    data        bytea       NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, name, node, log_offset)
);
