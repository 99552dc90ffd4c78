-- Nodes that have, or are about to have, tasks on their queues. Each time that is said the number
-- rises; the servers of the link wake a node for each number that it was not told of.
CREATE TABLE wakes (
    node   text        PRIMARY KEY REFERENCES nodes (name),
    number bigint      NOT NULL CHECK (number > 0),
    at     timestamptz NOT NULL
) WITH (fillfactor = 50);
