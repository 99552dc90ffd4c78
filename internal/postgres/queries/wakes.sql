-- It is a hurry, so its commit waits for no disk. Numbers are made of the time, so that one that a
-- crash took away is not given again.
-- name: WantNode :exec
WITH later AS (SELECT set_config('synchronous_commit', 'off', true)),
said AS (
    INSERT INTO wakes AS w (node, number, at)
    SELECT n.name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, clock_timestamp()
    FROM nodes n, later WHERE n.name = @node
    ON CONFLICT (node) DO UPDATE SET number = greatest(w.number + 1, excluded.number), at = excluded.at
    RETURNING w.node, w.number)
SELECT pg_notify('holdfast_link', 'wanted ' || node || ' ' || number) FROM said;

-- name: WantedNodes :many
SELECT node, number FROM wakes WHERE at > now() - make_interval(secs => @seconds::float8);

-- name: WantedNode :one
SELECT number FROM wakes WHERE node = @node AND at > now() - make_interval(secs => @seconds::float8);
