-- name: Backlog :one
SELECT
    (SELECT count(*) FROM deliveries WHERE state = 'open') AS deliveries,
    (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM deliveries WHERE state = 'open') AS delivery_age,
    (SELECT count(*) FROM operations WHERE state = 'running') AS operations,
    (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM operations WHERE state = 'running') AS operation_age,
    (SELECT count(*) FROM owed) AS owed,
    (SELECT coalesce(extract(epoch FROM now() - min(since)), 0)::float8 FROM owed) AS owed_age,
    (SELECT count(*) FROM outbox) AS outbox,
    (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox) AS outbox_age,
    (SELECT count(*) FROM orphans x JOIN nodes n ON n.name = x.node WHERE x.approved_at IS NULL AND n.removed_at IS NULL) AS orphans,
    (SELECT coalesce(extract(epoch FROM now() - min(x.since)), 0)::float8 FROM orphans x JOIN nodes n ON n.name = x.node
     WHERE x.approved_at IS NULL AND n.removed_at IS NULL) AS orphan_age;
