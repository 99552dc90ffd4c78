-- The project whose deployment a replica is of by its node's word. Nodes know names and revisions only, and a
-- name may be another project's by now: a revision that is kept says whose it was, and one above all
-- that are known was made since the backup. NULL where nobody can say.
CREATE FUNCTION replica_project(of_deployment text, of_revision bigint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT d.project FROM deployments d
    WHERE d.name = of_deployment AND (of_revision > d.last_revision OR EXISTS (
        SELECT 1 FROM deployment_revisions v WHERE v.deployment = d.name AND v.revision = of_revision AND v.project = d.project))
$$;
