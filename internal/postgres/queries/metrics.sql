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
    (SELECT count(*) FROM waiting_orphans) AS orphans,
    (SELECT coalesce(extract(epoch FROM now() - min(since)), 0)::float8 FROM waiting_orphans) AS orphan_age;
