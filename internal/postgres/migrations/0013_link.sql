-- The link: who registered, with what, and how that ended. A connection is one registration:
-- modules, executors and the ownership of module namespaces are read from the live ones, so
-- one update takes everything of it away.
CREATE TABLE connections (
    id               text        PRIMARY KEY CHECK (length(id) = 32),
    state            text        NOT NULL CHECK (state IN ('Registered', 'Active', 'Draining', 'Disconnected')),
    reason           text        NOT NULL DEFAULT '', -- the event that ended it
    identity         text        NOT NULL, -- who has proven to be it: node:NAME or token:ID
    node             text,                 -- NULL: a provider that is no node
    provider         text        NOT NULL,
    module_namespace text        NOT NULL DEFAULT '',
    group_id         text        NOT NULL DEFAULT '',
    executor         text        NOT NULL DEFAULT '', -- host:port
    protocol         integer     NOT NULL CHECK (protocol > 0),
    server           text        NOT NULL, -- which holds its stream, or took its registration
    registered_at    timestamptz NOT NULL DEFAULT now(),
    active_at        timestamptz,
    heartbeat_at     timestamptz, -- written now and then, for people: the server's memory decides
    in_flight        integer     NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    drain_reason     text        NOT NULL DEFAULT '',
    drain_asked_at   timestamptz,
    drain_deadline   timestamptz,
    drain_acked_at   timestamptz,
    ended_at         timestamptz,
    CHECK ((state = 'Disconnected') = (ended_at IS NOT NULL)),
    CHECK (state IN ('Registered', 'Disconnected') OR active_at IS NOT NULL),
    CHECK (state <> 'Draining' OR drain_acked_at IS NOT NULL),
    CHECK ((drain_asked_at IS NULL) = (drain_deadline IS NULL))
);
CREATE UNIQUE INDEX connections_live ON connections (identity, provider) WHERE ended_at IS NULL;
CREATE INDEX connections_of_server ON connections (server) WHERE ended_at IS NULL;
CREATE INDEX connections_of_namespace ON connections (module_namespace) WHERE ended_at IS NULL AND module_namespace <> '';
CREATE INDEX connections_of_node ON connections (node) WHERE ended_at IS NULL AND node IS NOT NULL;
CREATE INDEX connections_ended ON connections (ended_at) WHERE ended_at IS NOT NULL;

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
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT now(),
    door     text        NOT NULL, -- link, tasks, leases, http
    identity text        NOT NULL, -- as proven, or as claimed with a "?" before it
    reason   text        NOT NULL, -- a stable word
    what     text        NOT NULL  -- the method, queue or object that was asked for
);
CREATE INDEX refusals_at ON refusals (at);

ALTER TABLE nodes ADD COLUMN cordoned_at timestamptz, ADD COLUMN cordon_reason text NOT NULL DEFAULT '';

ALTER TABLE api_tokens DROP CONSTRAINT api_tokens_role_check;
ALTER TABLE api_tokens ADD CONSTRAINT api_tokens_role_check CHECK (role IN ('admin', 'operator', 'viewer', 'provider'));
-- The module namespaces that a provider's token may claim, with what lies below them.
ALTER TABLE api_tokens ADD COLUMN module_namespaces text[] NOT NULL DEFAULT '{}'
    CHECK (role = 'provider' OR module_namespaces = '{}');
