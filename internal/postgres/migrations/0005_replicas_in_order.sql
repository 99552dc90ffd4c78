-- A pass of the sync reads the replicas of each node in the order of their ids (docs/sync.md). What is taken of nodes is summed up by
-- the same index.
CREATE INDEX replicas_on_node ON replicas (node, id COLLATE "C") INCLUDE (cpu, memory, gpus) WHERE ended_at IS NULL;
DROP INDEX replicas_taken;
