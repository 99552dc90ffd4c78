-- A revision as fleet.Revision reads it, so that an entity's step sees all in one query.
CREATE FUNCTION seen_revision(r revisions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'era', r.era, 'revision', r.revision, 'action', r.action, 'enabled', r.enabled,
        'content', jsonb_build_object('kind', r.content_kind, 'hash', coalesce(encode(r.body_hash, 'hex'), ''), 'size', r.size),
        'runHash', coalesce(encode(r.run_hash, 'hex'), ''))
$$;
