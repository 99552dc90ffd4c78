-- What one node holds, and which requests are old enough to be forgotten.
CREATE INDEX node_held_node ON node_held (node, name);
CREATE INDEX idempotency_age ON idempotency (created_at);
-- Newest first, as operations are listed.
DROP INDEX operations_listing;
CREATE INDEX operations_listing ON operations (created_at DESC, id DESC);
CREATE INDEX operations_of_instance ON operations (site, name, created_at DESC, id DESC);
