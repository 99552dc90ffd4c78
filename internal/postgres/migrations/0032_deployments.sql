-- What a node tells of its machine when it registers (NodeFacts).
ALTER TABLE nodes ADD COLUMN facts jsonb NOT NULL DEFAULT '{}';

-- What the region finds out and adjusts by itself of each deployment; what is declared is in
-- objects. A row stays after the end, until the collection takes it.
CREATE TABLE deployments (
    name            text        PRIMARY KEY,
    uid             uuid        NOT NULL, -- of the declaration that replicas run for, or did last
    next_uid        uuid,                 -- of one that waits for the end of this
    project         text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('PENDING', 'PROVISIONING', 'RUNNING', 'DESTROYING', 'TERMINATED', 'ERROR')),
    reason          text        NOT NULL DEFAULT '', -- the rule of the last decision
    message         text        NOT NULL DEFAULT '',
    since           timestamptz NOT NULL DEFAULT now(), -- of the state
    target          integer     NOT NULL DEFAULT 0 CHECK (target >= 0),
    last_revision   bigint      NOT NULL DEFAULT 0,
    revision        bigint      NOT NULL DEFAULT 0 CHECK (revision <= last_revision), -- released last, 0: nothing was
    process_version bigint      NOT NULL DEFAULT 0, -- raised by each release of another definition, and by a restart
    began           bigint      NOT NULL DEFAULT 0,
    began_version   bigint      NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    crashes         integer     NOT NULL DEFAULT 0,
    next_attempt    timestamptz,
    conditions      jsonb       NOT NULL DEFAULT '[]',
    awaited         text        NOT NULL DEFAULT '', -- what it waits for, in words
    wake_at         timestamptz,                     -- when its entity looks again by itself
    entity_run      text        NOT NULL DEFAULT '',
    updated_at      timestamptz NOT NULL DEFAULT now()
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
    PRIMARY KEY (deployment, revision)
);
CREATE INDEX deployment_revisions_definition ON deployment_revisions (definition);

CREATE TABLE replicas (
    id              text        PRIMARY KEY CHECK (id ~ '^[0-9a-f]{12}$'),
    deployment      text        NOT NULL REFERENCES deployments (name) ON DELETE CASCADE,
    uid             uuid        NOT NULL, -- of the declaration
    node            text        NOT NULL REFERENCES nodes (name),
    site            text        NOT NULL,
    revision        bigint      NOT NULL,
    process_version bigint      NOT NULL,
    definition      bytea       NOT NULL,
    cpu             double precision NOT NULL DEFAULT 0,
    memory          bigint      NOT NULL DEFAULT 0,
    gpus            integer     NOT NULL DEFAULT 0,
    fixed_ports     integer[]   NOT NULL DEFAULT '{}',
    stop_seconds    integer     NOT NULL,
    state           text        NOT NULL CHECK (state IN ('STARTING', 'HEALTHY', 'UNHEALTHY', 'TERMINATING', 'TERMINATED')),
    health          text        NOT NULL DEFAULT 'NOT_CHECKED' CHECK (health IN ('NOT_CHECKED', 'HEALTHY', 'UNHEALTHY')),
    phase           text        NOT NULL DEFAULT '' CHECK (phase IN ('', 'preparing', 'running', 'stopping', 'exited', 'failed', 'stopped')),
    restarts        integer     NOT NULL DEFAULT 0,
    endpoint        text        NOT NULL DEFAULT '',
    ports           jsonb       NOT NULL DEFAULT '{}',
    pid             integer     NOT NULL DEFAULT 0,
    reason          text        NOT NULL DEFAULT '',
    message         text        NOT NULL DEFAULT '',
    lost            boolean     NOT NULL DEFAULT false,
    listed          bigint      NOT NULL, -- the version of its node's set since which it is in it as it is
    created_at      timestamptz NOT NULL DEFAULT now(),
    since           timestamptz NOT NULL DEFAULT now(), -- of the state
    stop_by         timestamptz,
    ended_at        timestamptz,
    CHECK ((state = 'TERMINATED') = (ended_at IS NOT NULL)),
    CHECK (state <> 'TERMINATING' OR stop_by IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX replicas_of_deployment ON replicas (deployment) WHERE ended_at IS NULL;
CREATE INDEX replicas_of_node ON replicas (node) WHERE ended_at IS NULL;
CREATE INDEX replicas_ended ON replicas (deployment, ended_at) WHERE ended_at IS NOT NULL;

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
    actor      text        NOT NULL DEFAULT ''
);
CREATE INDEX deployment_history_of ON deployment_history (deployment, id DESC);

-- The newest output of each replica; a piece that came twice is kept once, the longer one.
CREATE TABLE replica_logs (
    replica    text   NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    log_offset bigint NOT NULL CHECK (log_offset >= 0),
    data       bytea  NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (replica, log_offset)
);

-- The last sample of each replica: for people, and lost with a crash of the database.
CREATE UNLOGGED TABLE replica_samples (
    replica text             PRIMARY KEY,
    cpu     double precision NOT NULL, -- cores
    memory  bigint           NOT NULL, -- bytes
    at      timestamptz      NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- What an operation on a deployment waits for.
ALTER TABLE operations ADD COLUMN process_version bigint NOT NULL DEFAULT 0, ADD COLUMN target integer NOT NULL DEFAULT 0;
