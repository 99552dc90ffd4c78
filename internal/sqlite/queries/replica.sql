-- name: ListReplicas :many
SELECT id, known FROM replicas ORDER BY id;

-- name: PutReplica :exec
INSERT INTO replicas (id, known) VALUES (sqlc.arg(id), sqlc.arg(known))
ON CONFLICT (id) DO UPDATE SET known = excluded.known;

-- name: DropReplica :exec
DELETE FROM replicas WHERE id = sqlc.arg(id);

-- name: GetReplicaLogOffset :one
SELECT log_position FROM replicas WHERE id = sqlc.arg(id);

-- name: SetReplicaLogOffset :exec
UPDATE replicas SET log_position = sqlc.arg(position) WHERE id = sqlc.arg(id);

-- name: GetReplicaSet :one
SELECT era, version FROM replica_set;

-- name: RaiseReplicaSet :exec
-- Never lowers.
UPDATE replica_set SET era = sqlc.arg(era), version = sqlc.arg(version)
WHERE (era, version) < (CAST(sqlc.arg(era) AS INTEGER), CAST(sqlc.arg(version) AS INTEGER));
