-- How desired state reaches what runs.

-- In place: the release whose terms a replica obeys, if that is not the one that it was created by. A server of the
-- build before leaves it NULL: its releases replace replicas.
ALTER TABLE replicas ADD COLUMN terms_revision bigint;
