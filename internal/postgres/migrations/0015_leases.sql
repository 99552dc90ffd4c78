-- The region's vote on who is a site's active node: holder and epoch are what it granted, or
-- was told by a site whose votes decided without it.
ALTER TABLE nodes ADD COLUMN peer_address text NOT NULL DEFAULT ''; -- host:port of its Leases
ALTER TABLE site_leases
    ADD COLUMN promised    bigint      NOT NULL DEFAULT 0,
    ADD COLUMN promised_to text        NOT NULL DEFAULT '',
    ADD COLUMN counter     bigint      NOT NULL DEFAULT 0,
    ADD COLUMN ttl         interval    NOT NULL DEFAULT '0',
    ADD COLUMN released    boolean     NOT NULL DEFAULT false, -- the holder gave it back
    ADD COLUMN target      text        NOT NULL DEFAULT '',    -- of a forced hand-over under way
    ADD COLUMN lost        boolean     NOT NULL DEFAULT false, -- restored: it may have answered otherwise
    ADD COLUMN granted_at  timestamptz NOT NULL DEFAULT now(); -- for people: the voter's clock decides
UPDATE site_leases SET promised = epoch;
ALTER TABLE site_leases ADD CHECK (promised >= epoch);
