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
