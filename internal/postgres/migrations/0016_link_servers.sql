-- The servers that hold streams say here that they live, whether they run workers or not.
CREATE TABLE link_servers (
    id      text        PRIMARY KEY,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- What repeats is counted in one row.
ALTER TABLE refusals ADD COLUMN times bigint NOT NULL DEFAULT 1 CHECK (times > 0);

-- Heartbeats change rows in place: none of what they write is indexed.
ALTER TABLE connections SET (fillfactor = 70);
