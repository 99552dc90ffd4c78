-- What all servers of a region must share to tell a true task token from a made-up one. Made
-- once, by whichever server comes first; never shown.
CREATE TABLE region_secrets (
    name       text        PRIMARY KEY,
    secret     bytea       NOT NULL CHECK (length(secret) >= 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
