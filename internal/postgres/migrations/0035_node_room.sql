-- What is taken of nodes is summed up of all there is, by the index alone where that is possible.
CREATE INDEX replicas_taken ON replicas (node) INCLUDE (cpu, memory, gpus) WHERE ended_at IS NULL;
DROP INDEX replicas_of_node;
CREATE INDEX replicas_with_ports ON replicas (node) WHERE ended_at IS NULL AND fixed_ports <> '{}';
CREATE INDEX replicas_failed ON replicas (deployment, failed_at) WHERE failed_at IS NOT NULL;
