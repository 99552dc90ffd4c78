-- What nodes believe of their replicas. The row of a node is locked after its replicas and its set.

-- The digest of a live connection; it comes after all reports that were written.
-- name: KeepDigest :execrows
INSERT INTO node_digests AS d (node, connection, era, version, marks)
SELECT c.node, c.id, @era, @version, @marks::text FROM connections c
WHERE c.id = @connection AND c.node = @node::text AND c.ended_at IS NULL FOR SHARE
ON CONFLICT (node) DO UPDATE SET connection = excluded.connection, era = excluded.era, version = excluded.version,
    after = d.reports, marks = excluded.marks, at = now(), asked = d.asked AND d.connection = excluded.connection;

-- A report makes the digest before it void, and answers a request.
-- name: CountReport :exec
UPDATE node_digests SET reports = reports + 1, asked = false WHERE node = @node;

-- A page of the digests of a shard, a range of hashes, that may differ, each with its node's rows of the same instant. It leaves out those
-- that are equal line by line, of replicas that are healthy in every column: most are, and nothing can differ there.
-- name: DigestsWithRows :many
WITH differing AS MATERIALIZED (
    SELECT d.* FROM (SELECT w.* FROM node_digests w WHERE hashtext(w.node)::bigint >= @from_hash::bigint AND hashtext(w.node)::bigint < @below_hash::bigint OFFSET 0) d
    WHERE d.node > @after_node::text AND d.marks IS NOT NULL
      AND d.marks <> array_to_string(ARRAY(
          SELECT concat(x.id, ' ', x.revision, ' ', x.process_version, ' ', encode(substr(x.definition, 1, 8), 'hex'),
                        CASE WHEN NOT (x.state = 'HEALTHY' AND x.phase = 'running' AND x.health = 'HEALTHY' AND NOT x.lost) THEN E' differs\n'
                             WHEN x.unready THEN E' running HEALTHY unready\n' ELSE E' running HEALTHY\n' END)
          FROM replicas x WHERE x.node = d.node AND x.ended_at IS NULL ORDER BY x.id COLLATE "C"), '')
    ORDER BY d.node LIMIT @max_rows)
SELECT d.node, d.era, d.version, d.reports, d.after, d.asked, d.marks::text AS marks, d.at, g.era AS region_era, coalesce(s.version, 0)::bigint AS set_version,
       EXISTS (SELECT 1 FROM connections c WHERE c.id = d.connection AND c.ended_at IS NULL OFFSET 0)::boolean AS connected,
       r.ids::text[] AS ids, r.revisions::bigint[] AS revisions, r.process_versions::bigint[] AS process_versions, r.definitions::text[] AS definitions,
       r.phases::text[] AS phases, r.healths::text[] AS healths, r.unreadies::boolean[] AS unreadies, r.states::text[] AS states, r.losts::boolean[] AS losts, l.listed::text[] AS listed
FROM differing d
CROSS JOIN region g
LEFT JOIN node_sets s ON s.node = d.node
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(x.id), '{}') AS ids, array_agg(x.revision) AS revisions, array_agg(x.process_version) AS process_versions,
           array_agg(encode(substr(x.definition, 1, 8), 'hex')) AS definitions, array_agg(x.phase) AS phases, array_agg(x.health) AS healths, array_agg(x.unready) AS unreadies,
           array_agg(x.state) AS states, array_agg(x.lost) AS losts
    FROM (SELECT y.* FROM replicas y WHERE y.node = d.node AND y.ended_at IS NULL ORDER BY y.id COLLATE "C") x OFFSET 0) r
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(u.replica), '{}') AS listed
    FROM (SELECT t.replica FROM replica_tombstones t WHERE t.node = d.node
          UNION SELECT o.replica FROM orphan_replicas o WHERE o.node = d.node ORDER BY 1) u OFFSET 0) l
ORDER BY d.node;

-- The rows of a node lie all over the table. In this transaction they are fetched one by one in the order of an index: the planner
-- would make a bitmap of them for each node, and sort them.
-- name: FetchInOrder :exec
SELECT set_config('enable_bitmapscan', 'off', true);

-- Requests the complete reports of nodes, at the servers that have their streams. Each digest asks once.
-- name: RequestReports :exec
WITH asked AS (
    UPDATE node_digests x SET marks = NULL, asked = true WHERE x.node = ANY(ARRAY(
        SELECT d.node FROM node_digests d
        JOIN (SELECT unnest(@nodes::text[]) AS node, unnest(@ats::timestamptz[]) AS at) u ON u.node = d.node AND u.at = d.at
        ORDER BY d.node FOR UPDATE OF d))
    RETURNING x.node, x.version)
SELECT pg_notify('holdfast_link', 'report ' || a.node || ' ' || a.version) FROM asked a;

-- The age of the oldest of the newest digests of the nodes that are connected.
-- name: OldestDigest :one
SELECT coalesce(extract(epoch FROM now() - min(d.at)), 0)::float8 AS seconds
FROM node_digests d JOIN connections c ON c.id = d.connection AND c.ended_at IS NULL;
