-- Regions that share. Nothing here is written by a change of a local object, except events.

-- An era that ended, and where: what a watcher has from beyond that place was undone by a restore.
ALTER TABLE region ADD COLUMN era_id uuid NOT NULL DEFAULT gen_random_uuid();
CREATE TABLE eras (
    era      bigint      PRIMARY KEY,
    id       uuid        NOT NULL,
    xid      xid8        NOT NULL,
    seq      bigint      NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT now()
);

-- An event of a copy names the region that created the object; '' is this one.
ALTER TABLE events ADD COLUMN region text NOT NULL DEFAULT '';

-- Read-only copies of what other regions own. An object's name begins with the region that created it, for life.
CREATE TABLE copies (
    region         text        NOT NULL,
    kind           text        NOT NULL,
    scope          text        NOT NULL,
    name           text        NOT NULL,
    owner          text        NOT NULL,
    -- The order of its states: the owner's epoch, then the number of the owner's event, which rises over eras too.
    owner_epoch    bigint      NOT NULL,
    number         bigint      NOT NULL,
    uid            uuid        NOT NULL,
    project        text        NOT NULL,
    service        text        NOT NULL,
    labels         jsonb       NOT NULL,
    generation     bigint      NOT NULL,
    spec           jsonb       NOT NULL,
    syncing        jsonb       NOT NULL,
    created_by     text        NOT NULL,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    deleting_since timestamptz,
    event          bigint      NOT NULL, -- the local event of its last change
    PRIMARY KEY (kind, scope, name, region)
);
CREATE INDEX copies_owner ON copies (owner, kind, scope, name, region);

-- What is no longer copied, so that an older state that arrives late does not bring it back (M31).
CREATE TABLE copy_markers (
    region      text        NOT NULL,
    kind        text        NOT NULL,
    scope       text        NOT NULL,
    name        text        NOT NULL,
    owner       text        NOT NULL,
    owner_epoch bigint      NOT NULL,
    number      bigint      NOT NULL,
    reason      text        NOT NULL CHECK (reason IN ('deleted', 'removed', 'moved')),
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, scope, name, region)
);
CREATE INDEX copy_markers_age ON copy_markers (at);

-- How far this region follows each peer. The position moves in the transaction that writes the copies, for the claim
-- that holds it only.
CREATE TABLE region_streams (
    peer       text        PRIMARY KEY,
    claim      bigint      NOT NULL DEFAULT 1, -- the number of the newest
    run        text        NOT NULL,           -- that made it
    position   text        NOT NULL DEFAULT '',
    began      text        NOT NULL DEFAULT '', -- where the first snapshot began that did not end
    applied    bigint      NOT NULL DEFAULT 0, -- changes since the first
    seen_at    timestamptz NOT NULL DEFAULT now(), -- the claim's holder lived
    current_at timestamptz                         -- all that the peer had was applied
);

-- What a peer sent that could not be taken. It holds up nothing else.
CREATE TABLE quarantine (
    peer   text        NOT NULL,
    region text        NOT NULL,
    kind   text        NOT NULL,
    scope  text        NOT NULL,
    name   text        NOT NULL,
    reason text        NOT NULL,
    -- The version that was not taken.
    owner_epoch bigint NOT NULL,
    number      bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    waiting jsonb, -- the change, if it waits for a newer policy
    PRIMARY KEY (peer, kind, scope, name, region)
);
CREATE INDEX quarantine_waiting ON quarantine (peer) WHERE waiting IS NOT NULL;

-- Policies over objects: which service of its project an object belongs to, and how far a changed policy is applied.

ALTER TABLE objects ADD COLUMN service text NOT NULL DEFAULT '';
-- The number of the event that last changed who has the object, and nothing that a person declares.
ALTER TABLE objects ADD COLUMN refreshed bigint NOT NULL DEFAULT 0;
-- The number that the owner gave to the state of an object that another region owns, 0 for an object of this region.
ALTER TABLE objects ADD COLUMN owner_number bigint NOT NULL DEFAULT 0;
-- What a policy holder governs, in the order in which a policy is applied. No write of a spec changes these columns, and
-- nothing of the project default is governed.
CREATE INDEX objects_governed ON objects (project, service, kind, scope, name) WHERE project <> 'default';

-- How far each policy holder's policy is applied to what it governs. The entity policy.KIND.NAME works through that in
-- pages. at is the last object of the last page ({} before the first); a newer policy restarts the turn there (began),
-- and after the end it goes on from the beginning (wrapped), up to where it began.
CREATE TABLE policy_turns (
    kind       text        NOT NULL CHECK (kind IN ('organization', 'project', 'service')),
    name       text        NOT NULL,
    generation bigint      NOT NULL, -- of the holder, that is being applied
    wanted     bigint      NOT NULL DEFAULT 1, -- how many turns were asked for
    at         text[]      NOT NULL DEFAULT '{}' CHECK (cardinality(at) IN (0, 5)), -- project, service, kind, scope, name
    began      text[]      NOT NULL DEFAULT '{}' CHECK (cardinality(began) IN (0, 5)),
    wrapped    boolean     NOT NULL DEFAULT false,
    visited    bigint      NOT NULL DEFAULT 0, -- objects in this turn
    refreshed  bigint      NOT NULL DEFAULT 0, -- those whose syncing changed
    started_at timestamptz NOT NULL DEFAULT now(),
    moved_at   timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    PRIMARY KEY (kind, name)
);

-- Regions that know each other (docs/regions.md): this region (self) and its peers. A removed peer keeps its row, so that an
-- old record does not bring it back.
CREATE TABLE peers (
    name              text        PRIMARY KEY,
    self              boolean     NOT NULL DEFAULT false,
    public_key        bytea       NOT NULL UNIQUE CHECK (octet_length(public_key) = 32),
    number            bigint      NOT NULL CHECK (number > 0),
    admitted_by       text        NOT NULL,
    admission         bytea       NOT NULL CHECK (octet_length(admission) = 64),
    address           text        NOT NULL,
    address_number    bigint      NOT NULL CHECK (address_number > 0),
    address_signature bytea       NOT NULL CHECK (octet_length(address_signature) = 64),
    added_at          timestamptz NOT NULL DEFAULT now(),
    seen_at           timestamptz,
    problem           text        NOT NULL DEFAULT '', -- why the last call failed
    disabled_at       timestamptz,
    removed_at        timestamptz,
    CHECK (NOT self OR disabled_at IS NULL AND removed_at IS NULL)
);
CREATE UNIQUE INDEX peers_self ON peers (self) WHERE self;

-- A token that lets one region join once. The key that used it may use it again until it expires: an answer can be lost.
CREATE TABLE region_invitations (
    id         text        PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    region     text        NOT NULL,
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    used_by    bytea       CHECK (octet_length(used_by) = 32),
    CHECK ((used_at IS NULL) = (used_by IS NULL))
);
CREATE INDEX region_invitations_newest ON region_invitations (created_at DESC, id DESC);

-- Shared objects that another region created, in the order in which a policy is applied.
CREATE INDEX copies_governed ON copies (project, service, kind, scope, name) WHERE kind IN ('organization', 'project', 'service', 'template');

-- The highest epoch of each holder that this region promised not to claim (docs/policy.md). region created the holder.
CREATE TABLE renounced (
    region text        NOT NULL,
    kind   text        NOT NULL,
    name   text        NOT NULL,
    epoch  bigint      NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name, region)
);

-- Writes that the new owner of an object never had, as this region had them.
CREATE TABLE lost_writes (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    peer        text        NOT NULL, -- that owns the object now
    region      text        NOT NULL, -- that created it
    kind        text        NOT NULL,
    scope       text        NOT NULL,
    name        text        NOT NULL,
    owner_epoch bigint      NOT NULL,
    number      bigint      NOT NULL,
    reason      text        NOT NULL,
    object      jsonb, -- NULL: it was deleted
    at          timestamptz NOT NULL DEFAULT now()
);

-- What governs other objects: those of this region, and copies whose name means only one.
CREATE VIEW holders AS
SELECT o.kind, o.name, o.project, o.spec, o.syncing ->> 'owningRegion' AS owner, o.owner_epoch
FROM objects o WHERE o.kind IN ('organization', 'project', 'service') AND o.scope = ''
UNION ALL
SELECT c.kind, c.name, c.project, c.spec, c.owner, c.owner_epoch FROM copies c
WHERE c.kind IN ('organization', 'project', 'service') AND c.scope = ''
  AND NOT EXISTS (SELECT FROM objects o WHERE o.kind = c.kind AND o.scope = '' AND o.name = c.name)
  AND NOT EXISTS (SELECT FROM copies d WHERE d.kind = c.kind AND d.scope = '' AND d.name = c.name AND d.region <> c.region);
