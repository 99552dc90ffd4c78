-- What revisions of deployments refer to is looked up by the collection.
CREATE INDEX deployment_revisions_bodies ON deployment_revisions USING gin (jsonb_path_query_array(spec, '$.**.hash'::jsonpath) jsonb_path_ops) WITH (fastupdate = off);
