package region

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
)

// stateFunctions keep states of all tables of a database, and put one back, as a backup would.
const stateFunctions = `
CREATE FUNCTION save(slot text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t text;
BEGIN
	EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', slot);
	EXECUTE format('CREATE TABLE IF NOT EXISTS %I.sequence_places (name text, value bigint)', slot);
	EXECUTE format('DELETE FROM %I.sequence_places', slot);
	EXECUTE format('INSERT INTO %I.sequence_places SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = ''public''', slot);
	FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
		EXECUTE format('CREATE TABLE IF NOT EXISTS %I.%I (LIKE public.%I)', slot, t, t);
		EXECUTE format('DELETE FROM %I.%I', slot, t);
		EXECUTE format('INSERT INTO %I.%I SELECT * FROM public.%I', slot, t, t);
	END LOOP;
END $$;
CREATE FUNCTION put_back(slot text) RETURNS void LANGUAGE plpgsql SET session_replication_role = replica SET client_min_messages = warning AS $$
DECLARE t text; s record;
BEGIN
	FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
		EXECUTE format('DELETE FROM public.%I', t);
		EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM %I.%I', t, slot, t);
	END LOOP;
	FOR s IN EXECUTE format('SELECT name, value FROM %I.sequence_places', slot) LOOP
		PERFORM setval(format('public.%I', s.name)::regclass, coalesce(s.value, 1), s.value IS NOT NULL);
	END LOOP;
END $$`

// keepStates makes a database one of a region that knows its peers, and keeps that state.
func keepStates(t *testing.T, name fleet.RegionName, url string) {
	t.Helper()
	s, err := store.Open(t.Context(), url, string(name))
	require.NoError(t, err)
	s.Close()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	for _, peer := range runNames {
		_, err = conn.Exec(t.Context(), `INSERT INTO peers (name, self, public_key, number, admitted_by, admission, address, address_number, address_signature)
			VALUES ($1, $2, sha256($1::text::bytea), 1, $1, decode(repeat('00', 64), 'hex'), '', 1, decode(repeat('00', 64), 'hex'))`, peer, peer == name)
		require.NoError(t, err)
	}
	_, err = conn.Exec(t.Context(), stateFunctions)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `SELECT save('first')`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}
