-- Since when a server of the link has lived without a gap, and for how long it may be silent. Where none could
-- be reached, no node is missed: what runs there is not given up because the region itself was away.
ALTER TABLE link_servers
    ADD COLUMN since timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN silence_seconds float8 NOT NULL DEFAULT 30;

-- Since when every node that is there has had a server to speak to, and the time to come back to it (it tries at
-- least every 15 s, for 10 s each time); later than now() where that is not so yet.
CREATE VIEW link_there AS
SELECT (least(min(l.since) FILTER (WHERE l.seen_at > now() - make_interval(secs => l.silence_seconds)), now()) + interval '30 seconds')::timestamptz AS since
FROM link_servers l;

-- A node is heard by a server that lives, and since that one hears: deadlines by which nodes have to say something
-- begin anew after the region was away. One that holds the stream of a node and is silent itself has not ended
-- it: the node may be about to go elsewhere, and nobody has missed it yet.
CREATE OR REPLACE VIEW replica_nodes AS
SELECT n.name, h.heard,
       CASE WHEN h.heard THEN 'epoch'::timestamptz
            WHEN h.held THEN greatest((SELECT l.since FROM link_there l), now())
            ELSE greatest((SELECT l.since FROM link_there l),
                          coalesce((SELECT max(c.ended_at) FROM connections c WHERE c.node = n.name AND c.ended_at IS NOT NULL),
                                   n.seen_at, n.enrolled_at)) END::timestamptz AS unheard,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM node_drains d WHERE d.node = n.name
                   AND (d.ended_at IS NULL OR d.asked_at >= n.cordoned_at AND d.rule <> 'nobody_waits') OFFSET 0))::boolean AS leaves,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL)::boolean AS gone,
       coalesce(h.since, 'epoch'::timestamptz)::timestamptz AS heard_since
FROM nodes n
CROSS JOIN LATERAL (SELECT count(l.id) > 0 AS heard, count(*) > 0 AS held, max(least(greatest(c.active_at, l.since), now())) FILTER (WHERE l.id IS NOT NULL) AS since
                    FROM connections c LEFT JOIN link_servers l ON l.id = c.server AND l.seen_at > now() - make_interval(secs => l.silence_seconds)
                    WHERE c.node = n.name AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') OFFSET 0) h;
