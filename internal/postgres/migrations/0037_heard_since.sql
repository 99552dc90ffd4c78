-- Deadlines of what runs on a node that was away begin anew when it is heard again.
CREATE OR REPLACE VIEW replica_nodes AS
SELECT n.name, h.heard,
       CASE WHEN h.heard THEN 'epoch'::timestamptz
            ELSE coalesce((SELECT max(c.ended_at) FROM connections c WHERE c.node = n.name AND c.ended_at IS NOT NULL),
                          n.seen_at, n.enrolled_at, 'epoch'::timestamptz) END::timestamptz AS unheard,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM node_drains d WHERE d.node = n.name
                   AND (d.ended_at IS NULL OR d.asked_at >= n.cordoned_at AND d.rule <> 'nobody_waits') OFFSET 0))::boolean AS leaves,
       (n.removed_at IS NOT NULL OR n.revoked_at IS NOT NULL)::boolean AS gone,
       coalesce(h.since, 'epoch'::timestamptz)::timestamptz AS heard_since
FROM nodes n
CROSS JOIN LATERAL (SELECT count(*) > 0 AS heard, max(c.active_at) AS since FROM connections c
                    WHERE c.node = n.name AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') OFFSET 0) h;

-- The numbers of a deployment whose record was collected: they go on when its name is declared again.
CREATE TABLE deployment_numbers (
    name            text   PRIMARY KEY,
    last_revision   bigint NOT NULL,
    process_version bigint NOT NULL
);
