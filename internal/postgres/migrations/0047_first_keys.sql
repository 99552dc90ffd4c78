-- The first key that was ever enrolled under a name: who comes with that one, also once more, has not voted under
-- another (X21). Not known of names that were enrolled before this: those count as ones that voted.
ALTER TABLE nodes ADD COLUMN first_signing_key bytea CHECK (octet_length(first_signing_key) = 32);
