-- Records of deployments that ended and are declared no more, for people (S118).
-- name: ListEndedDeployments :many
SELECT d.name, d.uid, d.project, d.since FROM deployments d
WHERE d.state = 'TERMINATED' AND d.next_uid IS NULL AND d.name > @after AND (@project::text = '' OR d.project = @project)
  AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.kind = 'deployment' AND o.scope = '' AND o.name = d.name)
ORDER BY d.name LIMIT @max_rows;
