-- A node's key is rotated in three steps: asked for by an administrator, offered by the node
-- (both keys open doors), used by the node (the old one is void). The region knows public halves
-- only.
ALTER TABLE nodes
    ADD COLUMN rotation_asked_at timestamptz,
    ADD COLUMN next_signing_key  bytea CHECK (octet_length(next_signing_key) = 32),
    ADD COLUMN next_sealing_key  bytea CHECK (octet_length(next_sealing_key) = 32),
    ADD COLUMN rotated_at        timestamptz,
    ADD CONSTRAINT nodes_next_key_is_whole CHECK ((next_signing_key IS NULL) = (next_sealing_key IS NULL)),
    ADD CONSTRAINT nodes_next_key_was_asked CHECK (next_signing_key IS NULL OR rotation_asked_at IS NOT NULL),
    ADD CONSTRAINT nodes_rotation_needs_key CHECK (rotation_asked_at IS NULL OR signing_key IS NOT NULL);
