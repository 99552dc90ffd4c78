-- Nodes are told of a cordon: a cordoned one does not stand for the lease by itself.
CREATE OR REPLACE VIEW site_marks AS
SELECT n.site,
       md5((SELECT coalesce(max(o.generation), 0)::text FROM objects o WHERE o.kind = 'site' AND o.scope = '' AND o.name = n.site)
           || coalesce(string_agg(n.name || ' ' || n.role || ' ' || n.peer_address
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.signing_key END, 'hex'), '')
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.next_signing_key END, 'hex'), '')
                                  || CASE WHEN n.cordoned_at IS NULL THEN '' ELSE ' cordoned' END, ','
                                  ORDER BY n.name) FILTER (WHERE n.removed_at IS NULL), '')) AS mark
FROM nodes n GROUP BY n.site;
