-- When the process started that was healthy last, NULL if none was: only such failures count against a rollout, each wave of them
-- once (docs/rollouts.md).
ALTER TABLE replicas ADD COLUMN worked timestamptz;
ALTER TABLE rollouts ADD COLUMN failures integer NOT NULL DEFAULT 0;
ALTER TABLE rollouts ADD COLUMN failed_at timestamptz;
-- How long a replica must be routable to be proven, in seconds, for people; NULL for one that a server of the build before began.
ALTER TABLE rollouts ADD COLUMN min_healthy double precision;

-- As before, and until when the node's drain moves what runs there.
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
       coalesce(h.since, 'epoch'::timestamptz)::timestamptz AS heard_since,
       coalesce((SELECT d.deadline FROM node_drains d WHERE d.node = n.name AND d.ended_at IS NULL), 'epoch'::timestamptz)::timestamptz AS leave_by
FROM nodes n
CROSS JOIN LATERAL (SELECT count(l.id) > 0 AS heard, count(*) > 0 AS held, max(least(greatest(c.active_at, l.since), now())) FILTER (WHERE l.id IS NOT NULL) AS since
                    FROM connections c LEFT JOIN link_servers l ON l.id = c.server AND l.seen_at > now() - make_interval(secs => l.silence_seconds)
                    WHERE c.node = n.name AND c.ended_at IS NULL AND c.state IN ('Active', 'Draining') OFFSET 0) h;
