-- Policies over objects: which service of its project an object belongs to, and how far a changed policy is applied.

ALTER TABLE objects ADD COLUMN service text NOT NULL DEFAULT '';
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
