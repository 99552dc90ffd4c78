package region

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/postgres"
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

// keepStates makes a database one of a region that knows its peers, and keeps that state. The connection is for all states of it: one
// that has seen all tables before takes a tenth of the time.
func keepStates(t *testing.T, name fleet.RegionName, url string) *pgx.Conn {
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
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its database goes
	return conn
}

// putBack puts the database of a region back.
func (r *runs) putBack(in fleet.RegionName, slot string) {
	r.t.Helper()
	_, err := r.states[in].Exec(context.Background(), `SELECT put_back($1)`, slot) // which outlives the history
	require.NoError(r.t, err)
}

// backUp keeps the state of a region for its next restore.
func (r *runs) backUp(in fleet.RegionName) {
	r.t.Helper()
	ctx := context.Background() // the connection outlives the history
	tx, err := r.states[in].BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(r.t, err)
	_, err = tx.Exec(ctx, `SELECT save('backup')`)
	require.NoError(r.t, err)
	require.NoError(r.t, tx.Commit(ctx))
	r.ledger.backedUp(in)
	r.tell("%s is backed up", in)
}

// restore puts the database of a region back, and raises its era. What others have of what is undone then is to be listed.
// What it claimed since the backup is owned by nobody then, until an operator claims it again, which is not played.
func (r *runs) restore(in fleet.RegionName) {
	r.t.Helper()
	if r.claimedSince(in) {
		return
	}
	r.stop(in)
	_ = pause.For(r.t.Context(), runPause) // they apply what they received; it ends with the test
	at := r.regions[in]
	var last int64
	require.NoError(r.t, at.raw.QueryRow(r.t.Context(), `SELECT coalesce(value, 0) FROM backup.sequence_places WHERE name = 'events_seq_seq'`).Scan(&last))
	r.ledger.undone(in)
	for _, other := range others(in) {
		r.ledger.had(other, r.seenBeyond(other, in, last))
	}
	at.store.Close()
	r.putBack(in, "backup")
	era, err := postgres.RaiseEra(r.t.Context(), at.url, string(in))
	require.NoError(r.t, err)
	r.tell("%s is restored: era %d", in, era.Era)
	r.restored = true
	r.open(in)
	require.NoError(r.t, at.store.WantSyncs(r.t.Context(), 0))
	r.start(in)
	r.backUp(in)
}

// claimedSince: a region owns a project, as it or another one knows it, that it did not own in its backup, or not in that epoch.
func (r *runs) claimedSince(in fleet.RegionName) bool {
	r.t.Helper()
	owned := map[fleet.CopyKey]int64{} // in which epoch
	rows, err := r.regions[in].raw.Query(r.t.Context(), `SELECT $1::text AS region, name, owner_epoch FROM backup.objects
		WHERE kind = 'project' AND syncing ->> 'owningRegion' = $1
		UNION ALL SELECT region, name, owner_epoch FROM backup.copies WHERE kind = 'project' AND owner = $1`, in)
	require.NoError(r.t, err)
	for rows.Next() {
		key, epoch := fleet.CopyKey{ObjectKey: fleet.ObjectKey{Kind: fleet.KindProject}}, int64(0)
		require.NoError(r.t, rows.Scan(&key.Region, &key.Name, &epoch))
		owned[key] = epoch
	}
	require.NoError(r.t, rows.Err())
	for _, name := range runNames {
		for _, o := range r.rows(name) {
			if o.Key.Kind == fleet.KindProject && o.Owner == in && o.Epoch > max(owned[o.Key], 1) { // 1 is that of one that it created
				return true
			}
		}
	}
	return false
}

const seenBeyondQuery = `SELECT region, kind, name, coalesce(labels ->> 'v', '') FROM shared WHERE owner = $1 AND number > $2
	UNION ALL SELECT region, kind, name, '' FROM copy_markers WHERE owner = $1 AND number > $2 AND reason = 'deleted'`

// seenBeyond is what a region has of states that their owner made after an event.
func (r *runs) seenBeyond(at, owner fleet.RegionName, last int64) []seen {
	r.t.Helper()
	rows, err := r.regions[at].raw.Query(r.t.Context(), seenBeyondQuery, owner, last)
	require.NoError(r.t, err)
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s seen, err error) {
		err = row.Scan(&s.key.Region, &s.key.Kind, &s.key.Name, &s.v)
		return s, err
	})
	require.NoError(r.t, err)
	return out
}
