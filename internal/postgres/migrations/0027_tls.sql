-- How the region speaks to a provider's executor: in the clear unless its provider says otherwise.
ALTER TABLE connections
    ADD COLUMN executor_tls         boolean NOT NULL DEFAULT false,
    ADD COLUMN executor_server_name text    NOT NULL DEFAULT '', -- in its certificate; '' is the address's host
    ADD CONSTRAINT connections_server_name_needs_tls CHECK (executor_tls OR executor_server_name = '');

-- The peer of a node learns its next key before that is used.
CREATE OR REPLACE VIEW site_marks AS
SELECT n.site,
       md5((SELECT coalesce(max(o.generation), 0)::text FROM objects o WHERE o.kind = 'site' AND o.scope = '' AND o.name = n.site)
           || coalesce(string_agg(n.name || ' ' || n.role || ' ' || n.peer_address
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.signing_key END, 'hex'), '')
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.next_signing_key END, 'hex'), ''), ','
                                  ORDER BY n.name) FILTER (WHERE n.removed_at IS NULL), '')) AS mark
FROM nodes n GROUP BY n.site;
