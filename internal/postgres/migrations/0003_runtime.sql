-- How desired state reaches what runs.

-- In place: the release whose terms a replica obeys, if that is not the one that it was created by. A server of the
-- build before leaves it NULL: its releases replace replicas.
ALTER TABLE replicas ADD COLUMN terms_revision bigint;

-- Rollouts: how a deployment moves from its stable revision to a newer one.

-- The highest process version that was given, and the lowest that replicas of the revision may have: a restart raises it.
ALTER TABLE deployments ADD COLUMN last_version bigint NOT NULL DEFAULT 0;
ALTER TABLE deployments ADD COLUMN from_version bigint NOT NULL DEFAULT 0;
-- What a running replica cannot become without a new process: the first definition that said so, NULL for the own one. Revisions of
-- one object differ in terms alone.
ALTER TABLE deployment_revisions ADD COLUMN object bytea;
UPDATE deployments SET last_version = process_version, from_version = process_version;

-- The deployment's own revision is the stable one until the rollout has ended DEPLOYED.
CREATE TABLE rollouts (
    deployment      text        NOT NULL REFERENCES deployments (name) ON DELETE CASCADE,
    number          bigint      NOT NULL CHECK (number > 0),
    uid             uuid        NOT NULL,
    project         text        NOT NULL,
    from_revision   bigint      NOT NULL,
    to_revision     bigint      NOT NULL,
    process_version bigint      NOT NULL,
    strategy        jsonb       NOT NULL,
    state           text        NOT NULL CHECK (state IN ('DEPLOYING', 'PREPAUSED', 'PAUSED', 'CANCELING', 'DEPLOYED', 'CANCELED', 'FAILED', 'SUPERSEDED')),
    reason          text        NOT NULL DEFAULT '', -- why it returns or returned
    message         text        NOT NULL DEFAULT '',
    failure         text        NOT NULL DEFAULT '', -- the newest of a replica of the new revision
    from_target     integer,                         -- that a return restores, NULL once somebody scaled
    step            integer     NOT NULL DEFAULT 0,
    step_at         timestamptz,                     -- when a canary reached it
    want            integer     NOT NULL DEFAULT 0,  -- replicas of the new revision
    proven          integer     NOT NULL DEFAULT 0,
    most            integer     NOT NULL DEFAULT 0,  -- the highest number that was proven
    at_start        integer     NOT NULL DEFAULT 0,  -- that were routable
    progress_at     timestamptz NOT NULL DEFAULT now(),
    progress        float8      NOT NULL,            -- seconds
    until           timestamptz,                     -- when it is given up without progress
    deadline_at     timestamptz NOT NULL,
    short           boolean     NOT NULL DEFAULT false,
    crashes         integer     NOT NULL DEFAULT 0,
    owed            integer     NOT NULL DEFAULT 0,
    next_attempt    timestamptz,
    created_by      text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    since           timestamptz NOT NULL DEFAULT now(), -- of the state
    ended_at        timestamptz,
    PRIMARY KEY (deployment, number),
    CHECK ((ended_at IS NULL) = (state IN ('DEPLOYING', 'PREPAUSED', 'PAUSED', 'CANCELING')))
);
CREATE UNIQUE INDEX rollouts_active ON rollouts (deployment) WHERE ended_at IS NULL;

-- A restart that ends all replicas before the first new one starts. One of process version 0 begins when the rollout under way ends.
ALTER TABLE operations ADD COLUMN stop_first boolean NOT NULL DEFAULT false;

-- Sync (docs/sync.md): the newest digest of each node, which is compared with the rows of its replicas. After a crash of
-- the database nodes send it again.
CREATE UNLOGGED TABLE node_digests (
    node       text        PRIMARY KEY REFERENCES nodes (name),
    connection text        NOT NULL, -- that sent it
    era        bigint      NOT NULL, -- of the set that the node followed
    version    bigint      NOT NULL,
    reports    bigint      NOT NULL DEFAULT 0, -- that were written since the node sent its first digest
    after      bigint      NOT NULL DEFAULT 0, -- those of them that were written before this digest
    marks      text, -- a line for each replica; NULL once the region has requested a report because of it
    at         timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Readiness: a replica that is HEALTHY and not unready is routable. A node of the build before, and a server, leave it false;
-- ready_since is when it was unready last, NULL if it never was.
ALTER TABLE replicas ADD COLUMN unready boolean NOT NULL DEFAULT false;
ALTER TABLE replicas ADD COLUMN ready_since timestamptz;
-- The newest revision, if it was released with process version 0, waits for a restart (docs/runtime.md).

-- Somebody set the target: the first release keeps it (F18).
ALTER TABLE deployments ADD COLUMN scaled boolean NOT NULL DEFAULT false;
