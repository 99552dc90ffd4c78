-- Output is kept in the order in which it came, whatever a node says of its place: log_offset counts
-- what the region took, node_offset is the node's own count of the piece. It is NULL where both are
-- the same: of what came before, and of what a server of an earlier version takes.
ALTER TABLE instance_logs ADD COLUMN node_offset bigint;
ALTER TABLE replica_logs ADD COLUMN node_offset bigint;
