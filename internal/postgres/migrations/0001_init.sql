-- The region's truth. Constraints state what must never be; Go states what happens.

CREATE TABLE region (
    only_row          boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
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
) WITH (fillfactor = 50);

-- What the specs of plain kinds refer to. An object is not deleted while another refers to it.
CREATE TABLE object_references (
    kind     text NOT NULL,
    scope    text NOT NULL,
    name     text NOT NULL,
    to_kind  text NOT NULL,
    to_scope text NOT NULL,
    to_name  text NOT NULL,
    PRIMARY KEY (to_kind, to_scope, to_name, kind, scope, name),
    FOREIGN KEY (kind, scope, name) REFERENCES objects (kind, scope, name) ON DELETE CASCADE,
    FOREIGN KEY (to_kind, to_scope, to_name) REFERENCES objects (kind, scope, name)
);
CREATE INDEX object_references_from ON object_references (kind, scope, name);

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
    created_at timestamptz NOT NULL DEFAULT now(),
    -- The trace of the request that asked (a W3C traceparent), for a wake that is repeated.
    trace      text        NOT NULL DEFAULT ''
);
CREATE INDEX outbox_subject ON outbox (subject);

CREATE TABLE template_generations (
    name       text   NOT NULL,
    generation bigint NOT NULL,
    spec       jsonb  NOT NULL,
    PRIMARY KEY (name, generation)
);
CREATE INDEX template_generations_bodies ON template_generations USING gin (jsonb_path_query_array(spec, '$.**."hash"'::jsonpath) jsonb_path_ops) WITH (fastupdate = off);

-- Bodies in chunks of at most 1 MiB. An upload is a body without a hash.
CREATE TABLE bodies (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash       bytea       UNIQUE CHECK (octet_length(hash) = 32),
    size       bigint      NOT NULL DEFAULT 0 CHECK (size >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- When a write last referred to a body, or the collection last found that something does.
    used_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX bodies_unused ON bodies (used_at) WHERE hash IS NOT NULL;
-- Without a name: an upload under way, or what is left to be removed of one or of a large body.
CREATE INDEX bodies_nameless ON bodies (id) WHERE hash IS NULL;

CREATE TABLE body_chunks (
    body_id bigint  NOT NULL,
    idx     integer NOT NULL CHECK (idx >= 0),
    data    bytea   NOT NULL CHECK (octet_length(data) <= 1048576),
    PRIMARY KEY (body_id, idx)
) WITH (toast_tuple_target = 8160);

CREATE TABLE uploads (
    id         text        PRIMARY KEY,
    project    text        NOT NULL,
    body_id    bigint      NOT NULL REFERENCES bodies (id) ON DELETE CASCADE,
    received   bigint      NOT NULL DEFAULT 0,
    hash_state bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX uploads_progress ON uploads (updated_at);
CREATE INDEX uploads_body ON uploads (body_id);

-- A project may only reference what it uploaded.
CREATE TABLE body_projects (
    project text  NOT NULL,
    hash    bytea NOT NULL,
    PRIMARY KEY (hash, project)
);

CREATE TABLE nodes (
    name              text        PRIMARY KEY,
    site              text        NOT NULL,
    role              text        NOT NULL CHECK (role IN ('active', 'standby', 'worker')),
    signing_key       bytea       CHECK (octet_length(signing_key) = 32),
    sealing_key       bytea       CHECK (octet_length(sealing_key) = 32),
    enrolled_at       timestamptz,
    revoked_at        timestamptz,
    seen_at           timestamptz,
    start_id          text,
    started_at        timestamptz,
    removed_at        timestamptz,
    -- When a node began to say what it holds after its start: what it said before is forgotten.
    starting_at       timestamptz,
    cordoned_at       timestamptz,
    cordon_reason     text        NOT NULL DEFAULT '',
    peer_address      text        NOT NULL DEFAULT '', -- host:port of its Leases
    counters          jsonb       NOT NULL DEFAULT '{}', -- what it counted since it started
    counted_at        timestamptz,
    -- A node's key is rotated in three steps: asked for by an administrator, offered by the node
    -- (both keys open doors), used by the node (the old one is void). The region knows public halves
    -- only.
    rotation_asked_at timestamptz,
    next_signing_key  bytea       CHECK (octet_length(next_signing_key) = 32),
    next_sealing_key  bytea       CHECK (octet_length(next_sealing_key) = 32),
    rotated_at        timestamptz,
    -- What a node tells of its machine when it registers (NodeFacts).
    facts             jsonb       NOT NULL DEFAULT '{}',
    -- The first key that was ever enrolled under a name: who comes with that one, also once more, has not voted under
    -- another (X21).
    first_signing_key bytea       CHECK (octet_length(first_signing_key) = 32),
    CONSTRAINT nodes_next_key_is_whole CHECK ((next_signing_key IS NULL) = (next_sealing_key IS NULL)),
    CONSTRAINT nodes_next_key_was_asked CHECK (next_signing_key IS NULL OR rotation_asked_at IS NOT NULL),
    CONSTRAINT nodes_rotation_needs_key CHECK (rotation_asked_at IS NULL OR signing_key IS NOT NULL)
);
CREATE INDEX nodes_site ON nodes (site);

-- The region's vote on who is a site's active node: holder and epoch are what it granted, or was told by a site
-- whose votes decided without it.
CREATE TABLE site_leases (
    site        text        PRIMARY KEY,
    holder      text        NOT NULL REFERENCES nodes (name),
    epoch       bigint      NOT NULL CHECK (epoch > 0),
    -- The epoch of a site only rises, also when the site has no node for a while.
    dropped     boolean     NOT NULL DEFAULT false,
    promised    bigint      NOT NULL DEFAULT 0,
    promised_to text        NOT NULL DEFAULT '',
    counter     bigint      NOT NULL DEFAULT 0,
    ttl         interval    NOT NULL DEFAULT '00:00:00',
    released    boolean     NOT NULL DEFAULT false, -- the holder gave it back
    target      text        NOT NULL DEFAULT '', -- of a forced hand-over under way
    lost        boolean     NOT NULL DEFAULT false, -- restored: it may have answered otherwise
    granted_at  timestamptz NOT NULL DEFAULT now(), -- for people: the voter's clock decides
    -- The last reset of a site's votes by an operator: its number, which only rises, and the epoch that it set. A node
    -- follows a number that is above the last one that it followed.
    resets      bigint      NOT NULL DEFAULT 0,
    reset_epoch bigint      NOT NULL DEFAULT 0,
    CHECK (promised >= epoch)
);

-- Permanent per (site, name): the counter of its revisions, and its tombstone.
CREATE TABLE subjects (
    site             text    NOT NULL,
    name             text    NOT NULL,
    last_revision    bigint  NOT NULL DEFAULT 0,
    desired_revision bigint  NOT NULL DEFAULT 0,
    attempts         bigint  NOT NULL DEFAULT 0,
    deleted          boolean NOT NULL DEFAULT false,
    entity_run       text    NOT NULL DEFAULT '',
    -- Whose an instance was, for when its operations are gone.
    project          text    NOT NULL DEFAULT '',
    PRIMARY KEY (site, name),
    CHECK (desired_revision <= last_revision)
) WITH (fillfactor = 50);

CREATE TABLE revisions (
    site         text        NOT NULL,
    name         text        NOT NULL,
    revision     bigint      NOT NULL CHECK (revision > 0),
    era          bigint      NOT NULL,
    action       text        NOT NULL CHECK (action IN ('deploy', 'enable', 'disable', 'delete')),
    content_kind text        NOT NULL DEFAULT '' CHECK (content_kind IN ('', 'json', 'artifact')),
    body_hash    bytea,
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
    CHECK ((action = 'delete') = (body_hash IS NULL)),
    CHECK ((run IS NULL) = (run_hash IS NULL))
);
-- Who refers to a body. A revision's config or artifact is its body; its overrides are a
-- body of their own. Of declared objects every "hash" counts, so that a new kind is safe.
CREATE INDEX revisions_body ON revisions (body_hash) WHERE body_hash IS NOT NULL;
CREATE INDEX revisions_overrides ON revisions ((spec #>> '{overrides,hash}'))
    WHERE (spec #>> '{overrides,hash}') IS NOT NULL;

CREATE TABLE deliveries (
    id              text        PRIMARY KEY CHECK (octet_length(id) = 32),
    site            text        NOT NULL,
    name            text        NOT NULL,
    revision        bigint      NOT NULL,
    attempt         bigint      NOT NULL,
    claim           text        NOT NULL, -- entity run and step: the same claim again, not a second one
    node            text        NOT NULL, -- the active that it was claimed for
    epoch           bigint      NOT NULL,
    from_revision   bigint      NOT NULL DEFAULT 0,
    state           text        NOT NULL CHECK (state IN ('open', 'unknown', 'succeeded', 'failed', 'superseded', 'cancelled', 'staged')),
    phase           text        NOT NULL,
    reason          text        NOT NULL DEFAULT '',
    message         text        NOT NULL DEFAULT '',
    settled_as      text        CHECK (settled_as IN ('applied', 'not_applied')),
    requested_by    text        NOT NULL,
    workflow_id     text        NOT NULL,
    run_id          text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    deadline_at     timestamptz NOT NULL,
    ended_at        timestamptz,
    batch_id        text        NOT NULL DEFAULT '', -- '' of one that travels alone
    -- Which generation a delivery came from, as the revision may be gone (N105): 0 where nothing was
    -- deployed before.
    from_generation bigint      NOT NULL DEFAULT 0,
    UNIQUE (site, name, attempt)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX one_open_delivery ON deliveries (site, name) WHERE state = 'open';
-- Who refers to a revision.
CREATE INDEX deliveries_revision ON deliveries (site, name, revision);
CREATE INDEX unsettled_deliveries ON deliveries (site, name, attempt)
    WHERE state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL;
CREATE UNIQUE INDEX one_staged_delivery ON deliveries (site, name) WHERE state = 'staged' AND settled_as IS NULL;
CREATE UNIQUE INDEX deliveries_claim ON deliveries (claim) WHERE batch_id = '';
CREATE UNIQUE INDEX deliveries_batch ON deliveries (batch_id, name) WHERE batch_id <> '';

-- What each node made of a delivery; one row a node, never one blob.
CREATE TABLE delivery_nodes (
    delivery_id text        NOT NULL,
    node        text        NOT NULL,
    role        text        NOT NULL,
    state       text        NOT NULL CHECK (state IN ('waiting', 'notified', 'applied', 'failed', 'unknown', 'staged')),
    already     boolean     NOT NULL DEFAULT false,
    tries       integer     NOT NULL DEFAULT 0,
    fetched     bigint      NOT NULL DEFAULT 0,
    total       bigint      NOT NULL DEFAULT 0,
    reason      text        NOT NULL DEFAULT '',
    message     text        NOT NULL DEFAULT '',
    updated_at  timestamptz NOT NULL DEFAULT now(),
    -- The notify of its batch that named the item last, so that its digest stays what it was.
    notice      bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (delivery_id, node)
) WITH (fillfactor = 50);

-- Governs fetching only. Unique per subject: at most one, the newest (N17).
CREATE TABLE pending (
    deployment_id text        PRIMARY KEY,
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
CREATE INDEX snapshot_tickets_instance ON snapshot_tickets (site, name);

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
    -- What is deployed, beside its number: a comparison of thousands reads one table in order
    -- instead of as many revisions. The trigger keeps the two from ever disagreeing.
    era         bigint      NOT NULL,
    action      text        NOT NULL,
    body_hash   bytea,
    run_hash    bytea,
    enabled     boolean     NOT NULL,
    PRIMARY KEY (site, name)
) WITH (fillfactor = 50);

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
    PRIMARY KEY (site, name, node)
);
CREATE INDEX owed_due ON owed (site, name) WHERE due;
CREATE INDEX owed_node ON owed (node, site, name);

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
) WITH (fillfactor = 70);
CREATE INDEX node_held_node ON node_held (node, name, site);

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
    -- What FailoverSite was asked to do.
    forced           boolean     NOT NULL DEFAULT false,
    -- What an operation on a deployment waits for.
    process_version  bigint      NOT NULL DEFAULT 0,
    target           integer     NOT NULL DEFAULT 0,
    -- The node whose drain asked for a failover.
    drain_of         text        NOT NULL DEFAULT '',
    CHECK ((state = 'running') = (ended_at IS NULL))
) WITH (fillfactor = 60);
CREATE INDEX operations_open ON operations (subject) WHERE state = 'running';
-- A door that runs its activity twice asks once.
CREATE UNIQUE INDEX operations_door ON operations (door_workflow, door_run) WHERE door_run <> '';
-- What the sweeps look for among all that ever was.
CREATE INDEX operations_untold ON operations (ended_at) WHERE state <> 'running' AND door_run <> '' AND NOT door_told;
CREATE INDEX operations_listing ON operations (created_at DESC, id DESC);
CREATE INDEX operations_of_instance ON operations (site, name, created_at DESC, id DESC);
-- A walk asks whether a door of its subject waits for word.
CREATE INDEX operations_untold_of ON operations (subject) WHERE state <> 'running' AND door_run <> '' AND NOT door_told;
CREATE INDEX operations_told ON operations (ended_at) WHERE state <> 'running' AND (door_run = '' OR door_told);
CREATE INDEX operations_of_drain ON operations (drain_of, created_at) WHERE drain_of <> '';

-- A repeated request is answered from what the first one started.
CREATE TABLE idempotency (
    actor        text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    operation_id text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (actor, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE api_tokens (
    id                text        PRIMARY KEY,
    hash              bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    role              text        NOT NULL CHECK (role IN ('admin', 'operator', 'viewer', 'provider')),
    project           text        NOT NULL DEFAULT '', -- '' is every project
    note              text        NOT NULL DEFAULT '',
    created_by        text        NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    expires_at        timestamptz,
    revoked_at        timestamptz,
    -- The module namespaces that a provider's token may claim, with what lies below them.
    module_namespaces text[]      NOT NULL DEFAULT '{}',
    CHECK (role = 'provider' OR module_namespaces = '{}')
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
    -- Output is kept in the order in which it came, whatever a node says of its place: log_offset counts
    -- what the region took, node_offset is the node's own count of the piece.
    node_offset bigint      NOT NULL,
    PRIMARY KEY (site, name, node, log_offset)
);

-- The number of each site's expected set, raised by every change to it. It is raised at
-- commit, so that deliveries of one site wait for each other no longer than their flush,
-- and once a transaction.
CREATE TABLE site_sets (
    site       text   PRIMARY KEY,
    version    bigint NOT NULL CHECK (version > 0),
    changed_in xid8   NOT NULL
);

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

-- The last event that was collected: a watch goes on from here or later, not from before.
CREATE TABLE feed_horizon (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    era      bigint  NOT NULL DEFAULT 0,
    xid      xid8    NOT NULL DEFAULT '0'::xid8,
    seq      bigint  NOT NULL DEFAULT 0
);

-- Where a walk over all instances goes on, in the next page or the next run.
CREATE TABLE collection_places (
    kind text PRIMARY KEY CHECK (kind IN ('deliveries', 'revisions')),
    site text NOT NULL DEFAULT '',
    name text NOT NULL DEFAULT ''
);

-- Many deliveries of one site that travel together (N98).
CREATE TABLE batches (
    id          text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'),
    site        text        NOT NULL,
    fleet       text        NOT NULL DEFAULT '',
    fleet_run   bigint      NOT NULL DEFAULT 0,
    stage       boolean     NOT NULL DEFAULT false, -- fetched now, switched to by a later delivery
    node        text        NOT NULL, -- the active that it was claimed for
    epoch       bigint      NOT NULL,
    state       text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'ended', 'lost')),
    reason      text        NOT NULL DEFAULT '',
    workflow_id text        NOT NULL,
    run_id      text        NOT NULL,
    actor       text        NOT NULL,
    claimed     integer     NOT NULL DEFAULT 0, -- how many deliveries it began with
    nodes       text[]      NOT NULL DEFAULT '{}', -- that are told, the active first
    created_at  timestamptz NOT NULL DEFAULT now(),
    deadline_at timestamptz NOT NULL,
    ended_at    timestamptz,
    CHECK ((state = 'open') = (ended_at IS NULL))
);
CREATE INDEX batches_open ON batches (created_at, id) WHERE state = 'open';
CREATE INDEX batches_ended ON batches (ended_at) WHERE state <> 'open';

-- One going of a declared fleet change over its instances. What it does is read from spec,
-- the declared one at its start; a rollback takes back what another run released.
CREATE TABLE fleet_runs (
    fleet            text        NOT NULL,
    run              bigint      NOT NULL CHECK (run > 0),
    uid              uuid        NOT NULL DEFAULT gen_random_uuid(), -- of the object: one of the same name that was deleted had other runs
    project          text        NOT NULL,
    generation       bigint      NOT NULL,
    spec             jsonb       NOT NULL,
    rollback_of      bigint      NOT NULL DEFAULT 0,
    state            text        NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'succeeded', 'cancelled', 'superseded')),
    reason           text        NOT NULL DEFAULT '',
    message          text        NOT NULL DEFAULT '',
    cancel_requested boolean     NOT NULL DEFAULT false,
    wave             integer     NOT NULL DEFAULT 1 CHECK (wave > 0),
    waves            integer     NOT NULL,
    until_wave       integer     NOT NULL,
    retrying         boolean     NOT NULL DEFAULT false, -- only targets that are marked as retried
    turn             bigint      NOT NULL DEFAULT 1, -- raised by people: what was decided before counts no more
    entity_run       text        NOT NULL DEFAULT '',
    requested_by     text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    deadline_at      timestamptz NOT NULL,
    ended_at         timestamptz,
    PRIMARY KEY (fleet, run),
    CHECK (rollback_of < run),
    CHECK (waves >= wave),
    CHECK (until_wave <= waves),
    CHECK ((state IN ('running', 'paused')) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX one_live_fleet_run ON fleet_runs (fleet) WHERE state IN ('running', 'paused');
CREATE INDEX fleet_runs_ended ON fleet_runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX fleet_runs_patches ON fleet_runs ((spec #>> '{change,patch,hash}'))
    WHERE (spec #>> '{change,patch,hash}') IS NOT NULL;

CREATE TABLE fleet_targets (
    fleet           text        NOT NULL,
    run             bigint      NOT NULL,
    site            text        NOT NULL,
    name            text        NOT NULL,
    wave            integer     NOT NULL CHECK (wave > 0),
    state           text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivering', 'staged', 'succeeded', 'unchanged', 'superseded', 'failed')),
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
    FOREIGN KEY (fleet, run) REFERENCES fleet_runs (fleet, run) ON DELETE CASCADE
) WITH (fillfactor = 60);

-- The link: who registered, with what, and how that ended. A connection is one registration:
-- modules, executors and the ownership of module namespaces are read from the live ones, so
-- one update takes everything of it away.
CREATE TABLE connections (
    id                   text        PRIMARY KEY CHECK (length(id) = 32),
    state                text        NOT NULL CHECK (state IN ('Registered', 'Active', 'Draining', 'Disconnected')),
    reason               text        NOT NULL DEFAULT '', -- the event that ended it
    identity             text        NOT NULL, -- who has proven to be it: node:NAME or token:ID
    node                 text, -- NULL: a provider that is no node
    provider             text        NOT NULL,
    module_namespace     text        NOT NULL DEFAULT '',
    group_id             text        NOT NULL DEFAULT '',
    executor             text        NOT NULL DEFAULT '', -- host:port
    protocol             integer     NOT NULL CHECK (protocol > 0),
    server               text        NOT NULL, -- which holds its stream, or took its registration
    registered_at        timestamptz NOT NULL DEFAULT now(),
    active_at            timestamptz,
    heartbeat_at         timestamptz, -- written now and then, for people: the server's memory decides
    in_flight            integer     NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    drain_reason         text        NOT NULL DEFAULT '',
    drain_asked_at       timestamptz,
    drain_deadline       timestamptz,
    drain_acked_at       timestamptz,
    ended_at             timestamptz,
    -- How the region speaks to a provider's executor: in the clear unless its provider says otherwise.
    executor_tls         boolean     NOT NULL DEFAULT false,
    executor_server_name text        NOT NULL DEFAULT '', -- in its certificate; '' is the address's host
    -- The key that was its node's when a connection was registered: once the node has another, the connection ends. What
    -- is compared is the key, for the clock of the database may have been set back between the two. NULL: no node.
    signed_by            bytea,
    -- The IP address that a provider registered from, by which its executor may be dialed; NULL where there was none.
    caller               inet,
    CHECK ((state = 'Disconnected') = (ended_at IS NOT NULL)),
    CHECK ((state IN ('Registered', 'Disconnected')) OR active_at IS NOT NULL),
    CHECK (state <> 'Draining' OR drain_acked_at IS NOT NULL),
    CHECK ((drain_asked_at IS NULL) = (drain_deadline IS NULL)),
    CONSTRAINT connections_server_name_needs_tls CHECK (executor_tls OR executor_server_name = '')
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX connections_live ON connections (identity, provider) WHERE ended_at IS NULL;
CREATE INDEX connections_of_server ON connections (server) WHERE ended_at IS NULL;
CREATE INDEX connections_of_namespace ON connections (module_namespace)
    WHERE ended_at IS NULL AND module_namespace <> '';
CREATE INDEX connections_of_node ON connections (node) WHERE ended_at IS NULL AND node IS NOT NULL;
CREATE INDEX connections_ended ON connections (ended_at) WHERE ended_at IS NOT NULL;
-- A drain reads also what of its node has ended since.
CREATE INDEX connections_ended_of_node ON connections (node, ended_at) WHERE node IS NOT NULL AND ended_at IS NOT NULL;

CREATE TABLE modules (
    connection       text NOT NULL REFERENCES connections (id) ON DELETE CASCADE,
    module_namespace text NOT NULL,
    name             text NOT NULL,
    description      text NOT NULL DEFAULT '',
    input_schema     text NOT NULL DEFAULT '',
    output_schema    text NOT NULL DEFAULT '',
    PRIMARY KEY (connection, name)
);
CREATE INDEX modules_by_name ON modules (module_namespace, name);

-- Each refusal of something that an identity may not do, for an auditor. No secret is in it.
CREATE TABLE refusals (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    door       text        NOT NULL, -- link, tasks, leases, http
    identity   text        NOT NULL, -- as proven, or as claimed with a "?" before it
    reason     text        NOT NULL, -- a stable word
    what       text        NOT NULL, -- the method, queue or object that was asked for
    -- What repeats is counted in one row.
    times      bigint      NOT NULL DEFAULT 1 CHECK (times > 0),
    -- The node that refused; '' is the region.
    refused_by text        NOT NULL DEFAULT ''
);
CREATE INDEX refusals_at ON refusals (at);

-- The servers that hold streams say here that they live, whether they run workers or not.
CREATE TABLE link_servers (
    id              text             PRIMARY KEY,
    seen_at         timestamptz      NOT NULL DEFAULT now(),
    -- Since when a server of the link has lived without a gap, and for how long it may be silent. Where none could
    -- be reached, no node is missed: what runs there is not given up because the region itself was away.
    since           timestamptz      NOT NULL DEFAULT now(),
    silence_seconds double precision NOT NULL DEFAULT 30
);

-- What all servers of a region must share to tell a true task token from a made-up one. Made
-- once, by whichever server comes first; never shown.
CREATE TABLE region_secrets (
    name       text        PRIMARY KEY,
    secret     bytea       NOT NULL CHECK (length(secret) >= 32),
    created_at timestamptz NOT NULL DEFAULT now()
);

-- What durable executions of modules are given and give back, and the answers of direct ones
-- that came with an idempotency key. Temporal sees ids only; rows go when they expire.
CREATE TABLE executions (
    id               text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{32}$'), -- the operation's, where there is one
    module_namespace text        NOT NULL,
    module           text        NOT NULL,
    input            bytea       CHECK (octet_length(input) <= 65536), -- NULL of a direct one
    input_hash       text        NOT NULL CHECK (length(input_hash) = 64),
    output           bytea       CHECK (octet_length(output) <= 1048576),
    output_hash      text        CHECK (length(output_hash) = 64),
    failure          text        NOT NULL DEFAULT '', -- what the module said
    connection       text        NOT NULL DEFAULT '', -- who answered
    created_at       timestamptz NOT NULL DEFAULT now(),
    expires_at       timestamptz NOT NULL,
    CHECK ((output IS NULL) = (output_hash IS NULL))
);
CREATE INDEX executions_expiry ON executions (expires_at);

-- The last drain of each node. One entity (drain.NODE) serves all operations that ask for it;
-- a second one joins, and the earlier deadline counts.
CREATE TABLE node_drains (
    node     text        PRIMARY KEY REFERENCES nodes (name),
    newest   text        NOT NULL, -- the operation that asked last
    reason   text        NOT NULL,
    forced   boolean     NOT NULL DEFAULT false,
    phase    text        NOT NULL CHECK (phase IN ('moving', 'draining', 'ended')),
    rule     text        NOT NULL DEFAULT '', -- why it waits, or how it ended
    message  text        NOT NULL DEFAULT '',
    asked_at timestamptz NOT NULL DEFAULT now(),
    deadline timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK ((phase = 'ended') = (ended_at IS NOT NULL))
);

-- Nodes that have, or are about to have, tasks on their queues. Each time that is said the number
-- rises; the servers of the link wake a node for each number that it was not told of.
CREATE TABLE wakes (
    node   text        PRIMARY KEY REFERENCES nodes (name),
    number bigint      NOT NULL CHECK (number > 0),
    at     timestamptz NOT NULL
) WITH (fillfactor = 50);

-- What the region finds out and adjusts by itself of each deployment; what is declared is in
-- objects. A row stays after the end, until the collection takes it.
CREATE TABLE deployments (
    name            text        PRIMARY KEY,
    uid             uuid        NOT NULL, -- of the declaration that replicas run for, or did last
    next_uid        uuid, -- of one that waits for the end of this
    project         text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('PENDING', 'PROVISIONING', 'RUNNING', 'DESTROYING', 'TERMINATED', 'ERROR')),
    reason          text        NOT NULL DEFAULT '', -- the rule of the last decision
    message         text        NOT NULL DEFAULT '',
    since           timestamptz NOT NULL DEFAULT now(), -- of the state
    target          integer     NOT NULL DEFAULT 0 CHECK (target >= 0),
    last_revision   bigint      NOT NULL DEFAULT 0,
    revision        bigint      NOT NULL DEFAULT 0, -- released last, 0: nothing was
    process_version bigint      NOT NULL DEFAULT 0, -- raised by each release of another definition, and by a restart
    began           bigint      NOT NULL DEFAULT 0,
    began_version   bigint      NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    crashes         integer     NOT NULL DEFAULT 0,
    next_attempt    timestamptz,
    conditions      jsonb       NOT NULL DEFAULT '[]',
    awaited         text        NOT NULL DEFAULT '', -- what it waits for, in words
    wake_at         timestamptz, -- when its entity looks again by itself
    entity_run      text        NOT NULL DEFAULT '',
    updated_at      timestamptz NOT NULL DEFAULT now(),
    -- When its entity looked last: the sweep leaves alone what was looked at a moment ago.
    seen_at         timestamptz NOT NULL DEFAULT now(),
    -- How many of those that failed are not made anew before next_attempt: others are, meanwhile.
    owed            integer     NOT NULL DEFAULT 0,
    CHECK (revision <= last_revision)
) WITH (fillfactor = 70);

CREATE TABLE deployment_revisions (
    deployment      text        NOT NULL REFERENCES deployments (name) ON DELETE CASCADE,
    revision        bigint      NOT NULL CHECK (revision > 0),
    uid             uuid        NOT NULL,
    generation      bigint      NOT NULL,
    process_version bigint      NOT NULL,
    spec            jsonb       NOT NULL, -- bodies by hash
    definition      bytea       NOT NULL REFERENCES bodies (hash),
    created_by      text        NOT NULL,
    reason          text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- What the region has to know of a definition without reading it: how long a replica may take to
    -- start and to stop, the ports that are not the node's to choose, and what it takes.
    terms           jsonb       NOT NULL DEFAULT '{}',
    -- A name may be had by one project after the other: each is shown its own lines only.
    project         text        NOT NULL DEFAULT '',
    PRIMARY KEY (deployment, revision)
);
CREATE INDEX deployment_revisions_definition ON deployment_revisions (definition);
-- What revisions of deployments refer to is looked up by the collection.
CREATE INDEX deployment_revisions_bodies ON deployment_revisions USING gin (jsonb_path_query_array(spec, '$.**."hash"'::jsonpath) jsonb_path_ops) WITH (fastupdate = off);

CREATE TABLE replicas (
    id              text             PRIMARY KEY CHECK (id ~ '^[0-9a-f]{12}$'),
    deployment      text             NOT NULL REFERENCES deployments (name) ON DELETE CASCADE,
    uid             uuid             NOT NULL, -- of the declaration
    node            text             NOT NULL REFERENCES nodes (name),
    site            text             NOT NULL,
    revision        bigint           NOT NULL,
    process_version bigint           NOT NULL,
    definition      bytea            NOT NULL,
    cpu             double precision NOT NULL DEFAULT 0,
    memory          bigint           NOT NULL DEFAULT 0,
    gpus            integer          NOT NULL DEFAULT 0,
    fixed_ports     integer[]        NOT NULL DEFAULT '{}',
    stop_seconds    integer          NOT NULL,
    state           text             NOT NULL CHECK (state IN ('STARTING', 'HEALTHY', 'UNHEALTHY', 'TERMINATING', 'TERMINATED')),
    health          text             NOT NULL DEFAULT 'NOT_CHECKED' CHECK (health IN ('NOT_CHECKED', 'HEALTHY', 'UNHEALTHY')),
    phase           text             NOT NULL DEFAULT '' CHECK (phase IN ('', 'preparing', 'running', 'stopping', 'exited', 'failed', 'stopped')),
    restarts        integer          NOT NULL DEFAULT 0,
    endpoint        text             NOT NULL DEFAULT '',
    ports           jsonb            NOT NULL DEFAULT '{}',
    pid             integer          NOT NULL DEFAULT 0,
    reason          text             NOT NULL DEFAULT '',
    message         text             NOT NULL DEFAULT '',
    lost            boolean          NOT NULL DEFAULT false,
    listed          bigint           NOT NULL, -- the version of its node's set since which it is in it as it is
    created_at      timestamptz      NOT NULL DEFAULT now(),
    since           timestamptz      NOT NULL DEFAULT now(), -- of the state
    stop_by         timestamptz,
    ended_at        timestamptz,
    -- When it failed last: what failed on a node lately is placed elsewhere first.
    failed_at       timestamptz,
    -- When the process of a replica began to run: its first success is due by then and the start-up time. Preparing,
    -- which comes before, is in the same state.
    running_since   timestamptz,
    CHECK ((state = 'TERMINATED') = (ended_at IS NOT NULL)),
    CHECK (state <> 'TERMINATING' OR stop_by IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX replicas_of_deployment ON replicas (deployment) WHERE ended_at IS NULL;
CREATE INDEX replicas_ended ON replicas (deployment, ended_at) WHERE ended_at IS NOT NULL;
-- What is taken of nodes is summed up of all there is, by the index alone where that is possible.
CREATE INDEX replicas_taken ON replicas (node) INCLUDE (cpu, memory, gpus) WHERE ended_at IS NULL;
CREATE INDEX replicas_with_ports ON replicas (node) WHERE ended_at IS NULL AND fixed_ports <> '{}';
CREATE INDEX replicas_failed ON replicas (deployment, failed_at) WHERE failed_at IS NOT NULL;

-- The number of each node's set of replicas, raised by each change to it.
CREATE TABLE node_sets (
    node       text        PRIMARY KEY REFERENCES nodes (name),
    version    bigint      NOT NULL CHECK (version > 0),
    held       bigint      NOT NULL DEFAULT 0, -- the newest that the node reported by
    changed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- What became of deployments and replicas, newest first for people (S135). A line that repeats the
-- one before it is counted.
CREATE TABLE deployment_history (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    deployment text        NOT NULL REFERENCES deployments (name) ON DELETE CASCADE,
    uid        uuid        NOT NULL,
    replica    text        NOT NULL DEFAULT '',
    node       text        NOT NULL DEFAULT '',
    at         timestamptz NOT NULL DEFAULT now(),
    last_at    timestamptz NOT NULL DEFAULT now(),
    times      integer     NOT NULL DEFAULT 1,
    from_state text        NOT NULL DEFAULT '',
    to_state   text        NOT NULL DEFAULT '',
    reason     text        NOT NULL,
    message    text        NOT NULL DEFAULT '',
    actor      text        NOT NULL DEFAULT '',
    project    text        NOT NULL DEFAULT ''
);
CREATE INDEX deployment_history_of ON deployment_history (deployment, id DESC);

-- The newest output of each replica; a piece that came twice is kept once, the longer one.
CREATE TABLE replica_logs (
    replica     text        NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    log_offset  bigint      NOT NULL CHECK (log_offset >= 0),
    data        bytea       NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    node_offset bigint      NOT NULL, -- the node's own count of the piece; log_offset is the region's
    PRIMARY KEY (replica, log_offset)
);

-- The last sample of each replica: for people, and lost with a crash of the database.
CREATE UNLOGGED TABLE replica_samples (
    replica text             PRIMARY KEY,
    cpu     double precision NOT NULL, -- cores
    memory  bigint           NOT NULL, -- bytes
    at      timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- The numbers of a deployment whose record was collected: they go on when its name is declared again.
CREATE TABLE deployment_numbers (
    name            text   PRIMARY KEY,
    last_revision   bigint NOT NULL,
    process_version bigint NOT NULL
);

-- What a node is to end by name although the row has ended: it has not said yet that nothing of it
-- runs. It outlives the row.
CREATE TABLE replica_tombstones (
    node            text        NOT NULL REFERENCES nodes (name),
    replica         text        NOT NULL CHECK (replica ~ '^[0-9a-f]{12}$'),
    deployment      text        NOT NULL,
    stop_seconds    integer     NOT NULL, -- 0: as the node knows it
    listed          bigint      NOT NULL, -- the version of the node's set since which it is in it
    since           timestamptz NOT NULL DEFAULT now(),
    -- Of which declaration, and of which process version, a tombstone is, and whether its node had said before
    -- that nothing of it runs: what is neither confirmed nor said may run on, and an operation says so.
    uid             uuid, -- NULL: of none that is known
    process_version bigint      NOT NULL DEFAULT 0,
    ended           boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (node, replica)
);
CREATE INDEX replica_tombstones_of ON replica_tombstones (deployment);

-- What a node runs, and the region does not know or may not end by itself, waiting for an operator.
CREATE TABLE orphan_replicas (
    node        text        NOT NULL REFERENCES nodes (name),
    replica     text        NOT NULL CHECK (replica ~ '^[0-9a-f]{12}$'),
    deployment  text        NOT NULL, -- that its node knows it by, '' when it knows none
    revision    bigint      NOT NULL,
    phase       text        NOT NULL, -- that its node told last
    reason      text        NOT NULL CHECK (reason IN ('never_known', 'over_cap')),
    since       timestamptz NOT NULL DEFAULT now(),
    approved_by text,
    approved_at timestamptz,
    PRIMARY KEY (node, replica),
    CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);
CREATE INDEX orphan_replicas_of ON orphan_replicas (deployment);

-- By which the region signs what its nodes are asked through Temporal (docs/node-access.md): the
-- newest key whose time has come. Nodes learn a key before that, and take its commands until it
-- is retired.
CREATE TABLE signing_keys (
    number     bigint      PRIMARY KEY CHECK (number >= 1),
    seed       bytea       NOT NULL CHECK (length(seed) = 32),
    public     bytea       NOT NULL CHECK (length(public) = 32),
    use_at     timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz
);

INSERT INTO feed_horizon DEFAULT VALUES;
INSERT INTO collection_places (kind) VALUES ('deliveries'), ('revisions');

ALTER TABLE body_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- A revision as fleet.Revision reads it, so that an entity's step sees all in one query.
CREATE FUNCTION seen_revision(r revisions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'era', r.era, 'revision', r.revision, 'action', r.action, 'enabled', r.enabled,
        'content', jsonb_build_object('kind', r.content_kind, 'hash', coalesce(encode(r.body_hash, 'hex'), ''), 'size', r.size),
        'runHash', coalesce(encode(r.run_hash, 'hex'), ''))
$$;

-- Whether a node holds a revision, by what it reported: decide.Applied for many rows.
CREATE FUNCTION holds(held_era bigint, held_revision bigint, held_hash bytea, era bigint, revision bigint, hash bytea)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (held_era, held_revision) IS NOT DISTINCT FROM (era, revision) AND held_hash IS NOT DISTINCT FROM hash
$$;

-- Whether a node refuses a revision for ever, because it took a higher one.
CREATE FUNCTION refuses(high_era bigint, high_revision bigint, era bigint, revision bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (high_era, high_revision) > (era, revision)
$$;

-- The first snapshot of a transaction raises its site's set; the rest only see that it did.
CREATE FUNCTION raise_site_set() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION fill_snapshot() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT r.era, r.action, r.body_hash, r.run_hash, r.enabled
    INTO NEW.era, NEW.action, NEW.body_hash, NEW.run_hash, NEW.enabled
    FROM revisions r WHERE r.site = NEW.site AND r.name = NEW.name AND r.revision = NEW.revision;
    RETURN NEW;
END $$;

CREATE FUNCTION drop_with_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids text[] := ARRAY(SELECT g.id FROM gone g);
BEGIN
    DELETE FROM delivery_nodes WHERE delivery_id = ANY(ids);
    DELETE FROM pending WHERE deployment_id = ANY(ids);
    RETURN NULL;
END $$;

CREATE FUNCTION drop_with_bodies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM body_projects WHERE hash = ANY(ARRAY(SELECT g.hash FROM gone g WHERE g.hash IS NOT NULL));
    DELETE FROM body_chunks WHERE body_id = ANY(ARRAY(SELECT g.id FROM gone g));
    RETURN NULL;
END $$;

-- Takes the advisory locks of a transaction in the order given, without a statement for each.
CREATE FUNCTION lock_keys(keys bigint[], shared boolean[]) RETURNS void LANGUAGE sql AS $$
    SELECT count(CASE WHEN k.shared THEN pg_advisory_xact_lock_shared(k.key) ELSE pg_advisory_xact_lock(k.key) END)
    FROM unnest(keys, shared) AS k(key, shared)
$$;

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

-- The project whose deployment a replica is of by its node's word. Nodes know names and revisions only, and a
-- name may be another project's by now: a revision that is kept says whose it was, and one above all
-- that are known was made since the backup. NULL where nobody can say.
CREATE FUNCTION replica_project(of_deployment text, of_revision bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT d.project FROM deployments d
    WHERE d.name = of_deployment AND (of_revision > d.last_revision OR EXISTS (
        SELECT 1 FROM deployment_revisions v WHERE v.deployment = d.name AND v.revision = of_revision AND v.project = d.project))
$$;

-- What is owed and can be served now: to a node of the pair that is there, and either
-- deployed, or owed to the node that may deploy it.
-- Who holds the lease is active, and nobody else: the declared role says only who may be.
CREATE VIEW owed_now AS
SELECT o.site, o.name, o.node,
       CASE WHEN o.node = l.holder THEN 'active' WHEN n.role = 'active' THEN 'standby' ELSE n.role END AS role, o.revision,
       (SELECT r.era FROM revisions r WHERE r.site = o.site AND r.name = o.name AND r.revision = o.revision) AS era, o.since
FROM owed o
JOIN nodes n ON n.name = o.node
LEFT JOIN site_leases l ON l.site = o.site AND NOT l.dropped
LEFT JOIN snapshots p ON p.site = o.site AND p.name = o.name
WHERE o.due AND n.removed_at IS NULL AND n.role <> 'worker' AND (o.node = l.holder OR o.revision <= p.revision);

-- Deliveries that are open, or of which nobody knows yet what became of them.
CREATE VIEW under_way AS
SELECT site, name FROM deliveries WHERE state = 'open'
UNION ALL
SELECT site, name FROM deliveries WHERE state NOT IN ('open', 'succeeded', 'staged') AND settled_as IS NULL;

-- How the targets of each wave stand.
CREATE VIEW fleet_waves AS
SELECT fleet, run, wave, state, count(*) AS targets FROM fleet_targets GROUP BY fleet, run, wave, state;

-- What a node is told of its site is another whenever this is. The peer of a node learns its next key before that is
-- used. Nodes are told of a cordon: a cordoned one does not stand for the lease by itself.
CREATE VIEW site_marks AS
SELECT n.site,
       md5((SELECT coalesce(max(o.generation), 0)::text FROM objects o WHERE o.kind = 'site' AND o.scope = '' AND o.name = n.site)
           || (SELECT coalesce(' reset ' || max(l.resets), '') FROM site_leases l WHERE l.site = n.site AND l.resets > 0)
           || coalesce(string_agg(n.name || ' ' || n.role || ' ' || n.peer_address
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.signing_key END, 'hex'), '')
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.next_signing_key END, 'hex'), '')
                                  || CASE WHEN n.cordoned_at IS NULL THEN '' ELSE ' cordoned' END, ','
                                  ORDER BY n.name) FILTER (WHERE n.removed_at IS NULL), '')) AS mark
FROM nodes n GROUP BY n.site;

-- Since when every node that is there has had a server to speak to, and the time to come back to it (it tries at
-- least every 15 s, for 10 s each time); later than now() where that is not so yet.
CREATE VIEW link_there AS
SELECT (least(min(l.since) FILTER (WHERE l.seen_at > now() - make_interval(secs => l.silence_seconds)), now()) + interval '30 seconds')::timestamptz AS since
FROM link_servers l;

-- A node as replicas see it: whether it is connected, and since when it is not; whether what runs
-- there is to run elsewhere, and whether nobody will say any more that it ended. A drain counts while
-- it is open and while the node stays cordoned for it, unless it was given up.
-- A node is heard by a server that lives, and since that one hears: deadlines by which nodes have to say something
-- begin anew after the region was away. One that holds the stream of a node and is silent itself has not ended
-- it: the node may be about to go elsewhere, and nobody has missed it yet.
CREATE VIEW replica_nodes AS
SELECT n.name, h.heard,
       CASE WHEN h.heard THEN 'epoch'::timestamptz
            WHEN h.held THEN greatest((SELECT l.since FROM link_there l), now())
            ELSE greatest((SELECT l.since FROM link_there l),
                          coalesce((SELECT max(c.ended_at) FROM connections c WHERE c.node = n.name AND c.ended_at IS NOT NULL),
                                   n.seen_at, n.enrolled_at)) END::timestamptz AS unheard,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM node_drains d WHERE d.node = n.name
                   AND (d.ended_at IS NULL OR d.asked_at >= n.cordoned_at AND d.rule <> 'nobody_waits') OFFSET 0))::boolean AS leaves,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL)::boolean AS gone,
       coalesce(h.since, 'epoch'::timestamptz)::timestamptz AS heard_since
FROM nodes n
CROSS JOIN LATERAL (SELECT count(l.id) > 0 AS heard, count(*) > 0 AS held, max(least(greatest(c.active_at, l.since), now())) FILTER (WHERE l.id IS NOT NULL) AS since
                    FROM connections c LEFT JOIN link_servers l ON l.id = c.server AND l.seen_at > now() - make_interval(secs => l.silence_seconds)
                    WHERE c.node = n.name AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') OFFSET 0) h;

-- What waits for an operator, of both kinds.
CREATE VIEW waiting_orphans AS
SELECT x.node, x.since FROM orphans x JOIN nodes n ON n.name = x.node WHERE x.approved_at IS NULL AND n.removed_at IS NULL
UNION ALL
SELECT y.node, y.since FROM orphan_replicas y JOIN nodes n ON n.name = y.node WHERE y.approved_at IS NULL AND n.removed_at IS NULL;

CREATE CONSTRAINT TRIGGER snapshots_raise_set AFTER INSERT OR UPDATE ON snapshots
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION raise_site_set();

CREATE TRIGGER snapshots_fill BEFORE INSERT ON snapshots FOR EACH ROW WHEN (NEW.era IS NULL) EXECUTE FUNCTION fill_snapshot();

CREATE TRIGGER snapshots_refill BEFORE UPDATE ON snapshots FOR EACH ROW
    WHEN (NEW.revision <> OLD.revision AND (NEW.era, NEW.action, NEW.body_hash, NEW.run_hash, NEW.enabled)
          IS NOT DISTINCT FROM (OLD.era, OLD.action, OLD.body_hash, OLD.run_hash, OLD.enabled))
    EXECUTE FUNCTION fill_snapshot();

CREATE TRIGGER deliveries_drop AFTER DELETE ON deliveries REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drop_with_deliveries();

CREATE TRIGGER bodies_drop AFTER DELETE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION drop_with_bodies();

CREATE TRIGGER revisions_referred AFTER DELETE ON revisions REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_revisions();

CREATE TRIGGER bodies_referred AFTER DELETE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_bodies();

CREATE TRIGGER bodies_unnamed AFTER UPDATE ON bodies REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION keep_referred_bodies();
