-- The key that was its node's when a connection was registered: once the node has another, the connection ends. What
-- is compared is the key, for the clock of the database may have been set back between the two. NULL: no node, or
-- registered by a server of before, where the times are compared.
ALTER TABLE connections ADD COLUMN signed_by bytea;
