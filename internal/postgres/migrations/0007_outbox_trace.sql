-- The trace of the request that asked (a W3C traceparent), for a wake that is repeated.
ALTER TABLE outbox ADD COLUMN trace text NOT NULL DEFAULT '';
