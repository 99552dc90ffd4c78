//go:build !race

package region

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
)

// stateFunctions makes functions that keep a state of all tables of a database in a schema, and put it back, as a backup would. They name
// each table, so that a session plans them once.
const stateFunctions = `
DO $do$
DECLARE slot text; t text; saves text; puts text;
BEGIN
	FOREACH slot IN ARRAY ARRAY['first', 'backup'] LOOP
		EXECUTE format('CREATE SCHEMA %I; CREATE TABLE %I.sequence_places (name text, value bigint)', slot, slot);
		saves := format('DELETE FROM %I.sequence_places; INSERT INTO %I.sequence_places
			SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = ''public'';', slot, slot);
		puts := '';
		FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
			EXECUTE format('CREATE TABLE %I.%I (LIKE public.%I)', slot, t, t);
			saves := saves || format('DELETE FROM %I.%I; INSERT INTO %I.%I SELECT * FROM public.%I;', slot, t, slot, t, t);
			puts := puts || format('DELETE FROM public.%I; INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM %I.%I;', t, t, slot, t);
		END LOOP;
		puts := puts || format('PERFORM setval(format(''public.%%I'', s.name)::regclass, coalesce(s.value, 1), s.value IS NOT NULL) FROM %I.sequence_places s;', slot);
		EXECUTE format('CREATE FUNCTION %I.save() RETURNS void LANGUAGE plpgsql AS $$ BEGIN %s END $$', slot, saves);
		EXECUTE format('CREATE FUNCTION %I.put_back() RETURNS void LANGUAGE plpgsql AS $$ BEGIN %s END $$', slot, puts);
	END LOOP;
END $do$`

// runDatabase is a database that many histories use, one after the other. Its sessions last, since one that has seen all statements
// before takes a fraction of the time.
type runDatabase struct {
	url    string
	states *pgx.Conn // for its states
	raw    *pgxpool.Pool
	store  *store.Store
	parts  http.Handler
}

// keepDatabase makes a database one of a region that knows its peers, and keeps that state.
func keepDatabase(t *testing.T, name fleet.RegionName, url string) *runDatabase {
	t.Helper()
	s, err := store.Open(t.Context(), url, string(name))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	d := &runDatabase{url: url, store: s, parts: partsOf(t, name, s)}
	d.raw, err = pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(d.raw.Close)
	d.states, err = pgx.Connect(t.Context(), url+"&session_replication_role=replica") // so foreign keys and triggers stay out of it
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.states.Close(context.Background()) }) // its database goes
	for _, peer := range runNames {
		_, err = d.states.Exec(t.Context(), `INSERT INTO peers (name, self, public_key, number, admitted_by, admission, address, address_number, address_signature)
			VALUES ($1, $2, sha256($1::text::bytea), 1, $1, decode(repeat('00', 64), 'hex'), '', 1, decode(repeat('00', 64), 'hex'))`, peer, peer == name)
		require.NoError(t, err)
	}
	_, err = d.states.Exec(t.Context(), stateFunctions)
	require.NoError(t, err)
	_, err = d.states.Exec(t.Context(), `SELECT first.save()`)
	require.NoError(t, err)
	return d
}

// putBack puts the database of a region back.
func (r *runs) putBack(in fleet.RegionName, slot string) {
	r.t.Helper()
	_, err := r.databases[in].states.Exec(r.t.Context(), `SELECT `+slot+`.put_back()`)
	require.NoError(r.t, err)
}

// backUp keeps the state of a region for its next restore.
func (r *runs) backUp(in fleet.RegionName) {
	r.t.Helper()
	ctx := r.t.Context()
	tx, err := r.databases[in].states.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(r.t, err)
	_, err = tx.Exec(ctx, `SELECT backup.save()`)
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
	r.putBack(in, "backup")
	era, err := postgres.RaiseEra(r.t.Context(), at.url, string(in))
	require.NoError(r.t, err)
	r.tell("%s is restored: era %d", in, era.Era)
	r.restored = true
	require.NoError(r.t, at.store.LookRecovering(r.t.Context()))
	r.network.up(in, at.store, r.databases[in].parts)
	require.NoError(r.t, at.store.WantSyncs(r.t.Context(), 0))
	r.start(in)
	r.backUp(in)
}

// claimedSince: a region owns a policy holder, as it or another one knows it, that it did not own in its backup, or not in that epoch.
func (r *runs) claimedSince(in fleet.RegionName) bool {
	r.t.Helper()
	owned := map[fleet.CopyKey]int64{} // in which epoch
	rows, err := r.regions[in].raw.Query(r.t.Context(), `SELECT $1::text AS region, kind, name, owner_epoch FROM backup.objects
		WHERE kind IN ('organization', 'project', 'service') AND syncing ->> 'owningRegion' = $1
		UNION ALL SELECT region, kind, name, owner_epoch FROM backup.copies WHERE kind IN ('organization', 'project', 'service') AND owner = $1`, in)
	require.NoError(r.t, err)
	for rows.Next() {
		key, epoch := fleet.CopyKey{}, int64(0)
		require.NoError(r.t, rows.Scan(&key.Region, &key.Kind, &key.Name, &epoch))
		owned[key] = epoch
	}
	require.NoError(r.t, rows.Err())
	for _, name := range runNames {
		for _, o := range r.rows(name) {
			if o.Key.Kind.Declared().Holder && o.Owner == in && o.Epoch > max(owned[o.Key], 1) { // 1 is that of one that it created
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
