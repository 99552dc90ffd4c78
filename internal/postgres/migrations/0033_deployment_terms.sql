-- What the region has to know of a definition without reading it: how long a replica may take to
-- start and to stop, the ports that are not the node's to choose, and what it takes.
ALTER TABLE deployment_revisions ADD COLUMN terms jsonb NOT NULL DEFAULT '{}';

-- When it failed last: what failed on a node lately is placed elsewhere first.
ALTER TABLE replicas ADD COLUMN failed_at timestamptz;

-- When its entity looked last: the sweep leaves alone what was looked at a moment ago.
ALTER TABLE deployments ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();

-- A node as replicas see it: whether it is connected, and since when it is not; whether what runs
-- there is to run elsewhere, and whether nobody will say any more that it ended. A drain counts while
-- it is open and while the node stays cordoned for it, unless it was given up.
CREATE VIEW replica_nodes AS
SELECT n.name, h.heard,
       CASE WHEN h.heard THEN 'epoch'::timestamptz
            ELSE coalesce((SELECT max(c.ended_at) FROM connections c WHERE c.node = n.name AND c.ended_at IS NOT NULL),
                          n.seen_at, n.enrolled_at, 'epoch'::timestamptz) END::timestamptz AS unheard,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM node_drains d WHERE d.node = n.name
                   AND (d.ended_at IS NULL OR d.asked_at >= n.cordoned_at AND d.rule <> 'nobody_waits') OFFSET 0))::boolean AS leaves,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL)::boolean AS gone
FROM nodes n
CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM connections c WHERE c.node = n.name AND c.ended_at IS NULL
                                   AND c.state IN ('Active', 'Draining'))::boolean AS heard OFFSET 0) h;
