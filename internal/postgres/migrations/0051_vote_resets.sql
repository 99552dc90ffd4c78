-- The last reset of a site's votes by an operator: its number, which only rises, and the epoch that it set. A node
-- follows a number that is above the last one that it followed.
ALTER TABLE site_leases
    ADD COLUMN resets      bigint NOT NULL DEFAULT 0,
    ADD COLUMN reset_epoch bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW site_marks AS
SELECT n.site,
       md5((SELECT coalesce(max(o.generation), 0)::text FROM objects o WHERE o.kind = 'site' AND o.scope = '' AND o.name = n.site)
           || (SELECT coalesce(' reset ' || max(l.resets), '') FROM site_leases l WHERE l.site = n.site AND l.resets > 0)
           || coalesce(string_agg(n.name || ' ' || n.role || ' ' || n.peer_address
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.signing_key END, 'hex'), '')
                                  || ' ' || coalesce(encode(CASE WHEN n.revoked_at IS NULL THEN n.next_signing_key END, 'hex'), '')
                                  || CASE WHEN n.cordoned_at IS NULL THEN '' ELSE ' cordoned' END, ','
                                  ORDER BY n.name) FILTER (WHERE n.removed_at IS NULL), '')) AS mark
FROM nodes n GROUP BY n.site;
