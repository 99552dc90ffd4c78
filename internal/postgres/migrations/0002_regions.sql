-- Regions that share. Nothing here is written by a change of a local object, except events.

-- An era that ended, and where: what a watcher has from beyond that place was undone by a restore.
ALTER TABLE region ADD COLUMN era_id uuid NOT NULL DEFAULT gen_random_uuid();
-- Restored: it first compares with its peers.
ALTER TABLE region ADD COLUMN recovering boolean NOT NULL DEFAULT false;
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
-- The order in which regions compare: that of bytes everywhere, whatever the collation.
CREATE INDEX copies_compared ON copies (owner, uid);
-- The owner's answer about an object that is gone.
CREATE INDEX events_deleted ON events (kind, scope, name, seq) WHERE type = 'deleted';

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
    current_at timestamptz,                        -- all that the peer had was applied
    -- How far the copies are behind, on the clock of the run that follows the peer, and how often it said so.
    lag_ms     bigint      NOT NULL DEFAULT 0,
    reports    bigint      NOT NULL DEFAULT 0
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

-- A newer state of a copy that waits for the template generations and bodies that it names. At most one for an object and the peer that sent it: two may claim the object.
CREATE TABLE copies_waiting (
    region      text        NOT NULL,
    kind        text        NOT NULL,
    scope       text        NOT NULL,
    name        text        NOT NULL,
    owner       text        NOT NULL,
    owner_epoch bigint      NOT NULL,
    number      bigint      NOT NULL,
    change      jsonb       NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    failures    integer     NOT NULL DEFAULT 0,
    problem     text        NOT NULL DEFAULT '', -- of the last attempt
    retry_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, scope, name, region, owner)
);
CREATE INDEX copies_waiting_due ON copies_waiting (owner, retry_at);

-- A generation of a copied template is named with the region before it: eu/base. What eu has from ap is eu/ap/base here, so
-- that nothing that a region says changes what another one says. used_at: see bodies.
ALTER TABLE template_generations ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX template_generations_copied ON template_generations (used_at) WHERE name LIKE '%/%';

-- How far this region's copies of each peer's objects are compared with the peer. A request during a comparison causes
-- one more (wanted is above pass).
CREATE TABLE region_syncs (
    peer       text        PRIMARY KEY,
    wanted     bigint      NOT NULL DEFAULT 1,
    pass       bigint      NOT NULL DEFAULT 0, -- the last that was wanted when this comparison began; 0 before the first
    accepting  boolean     NOT NULL DEFAULT false, -- the operator accepts all removals
    bits       integer     NOT NULL DEFAULT 0 CHECK (bits BETWEEN 0 AND 32), -- how many first bits of a uid name a range
    at         bigint      NOT NULL DEFAULT 0, -- the next range
    objects    bigint      NOT NULL DEFAULT 0, -- in the region that has more
    compared   bigint      NOT NULL DEFAULT 0, -- objects of the peer, and copies, whichever were more in a range
    differed   bigint      NOT NULL DEFAULT 0,
    written    bigint      NOT NULL DEFAULT 0,
    removed    bigint      NOT NULL DEFAULT 0,
    lost       bigint      NOT NULL DEFAULT 0,
    waiting    bigint      NOT NULL DEFAULT 0, -- set aside
    wanted_at  timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    moved_at   timestamptz,
    ended_at   timestamptz,
    -- When the last one began that came to its end.
    completed_at timestamptz
);

-- States of objects that their owner does not know: after a restore, or a claim by force, it continues from an earlier
-- place. They were replaced by what the owner has. One without an object was a deletion.
CREATE TABLE lost_writes (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    peer        text        NOT NULL,
    region      text        NOT NULL,
    kind        text        NOT NULL,
    scope       text        NOT NULL,
    name        text        NOT NULL,
    owner_epoch bigint      NOT NULL,
    number      bigint      NOT NULL,
    reason      text        NOT NULL,
    object      jsonb,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX lost_writes_objects ON lost_writes (peer, kind, scope, name);

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
    about             jsonb       NOT NULL DEFAULT '{}', -- what it tells of itself
    disabled_at       timestamptz,
    removed_at        timestamptz,
    -- Of its database: a lower one, or another id of the same, is a database that goes back.
    era               bigint      NOT NULL DEFAULT 0,
    era_id            text        NOT NULL DEFAULT '',
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

-- The comparison with the old owner that each claim of a holder waits for: the first that begins after its fence arrived.
CREATE TABLE claim_comparisons (
    region text   NOT NULL,
    kind   text   NOT NULL,
    name   text   NOT NULL,
    epoch  bigint NOT NULL,
    peer   text   NOT NULL,
    wanted bigint NOT NULL,
    PRIMARY KEY (kind, name, region)
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

-- What two regions compare of an object: 16 bytes of its name, version and content. It is the same wherever that is. As
-- stable as what it calls: the planner would not put it in place of its calls otherwise, and each would take three times as long.
CREATE FUNCTION copy_sum(c copies) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT substr(sha256(convert_to(concat_ws(E'\n', c.region, c.kind, c.scope, c.name, c.owner_epoch, c.number, c.uid, c.project, c.service,
    c.labels, c.generation, c.spec, c.syncing, c.created_by, extract(epoch FROM c.created_at), extract(epoch FROM c.updated_at),
    coalesce(extract(epoch FROM c.deleting_since), 0)), 'UTF8')), 1, 16)
$$;

-- Every object that regions share as the table of copies has it, with the region that owns it.
CREATE VIEW shared AS
SELECT (SELECT r.name FROM region r) AS region, o.kind, o.scope, o.name, o.syncing ->> 'owningRegion' AS owner, o.owner_epoch,
    CASE WHEN o.owner_number > 0 THEN o.owner_number ELSE greatest(o.resource_version, o.refreshed) END AS number, o.uid, o.project, o.service,
    CASE WHEN o.labels = 'null' THEN '{}' ELSE o.labels END AS labels, o.generation, o.spec, o.syncing, o.created_by, o.created_at, o.updated_at,
    o.deleting_since, o.resource_version AS event
FROM objects o
UNION ALL
SELECT c.* FROM copies c;
