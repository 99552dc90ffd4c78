-- The IP address that a provider registered from, by which its executor may be dialled. NULL is of a server of
-- an earlier version.
ALTER TABLE connections ADD COLUMN caller inet;
