package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // the yardsticks' database, as the node's
)

// openPlain makes a SQLite file that is as durable as a node's.
func openPlain(ctx context.Context, path, schema string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
		"&_pragma=cache_size(-8192)&_pragma=wal_autocheckpoint(4000)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open a yardstick's store: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make a yardstick's store: %w", err), db.Close())
	}
	return db, nil
}

const (
	plainKept    = "CREATE TABLE kept (name TEXT PRIMARY KEY, hash TEXT NOT NULL, body BLOB NOT NULL)"
	plainReplace = "INSERT OR REPLACE INTO kept (name, hash, body) VALUES (?, ?, ?)"
	plainTables  = `CREATE TABLE plain_bodies (hash text PRIMARY KEY, body bytea NOT NULL);
		ALTER TABLE plain_bodies ALTER COLUMN body SET STORAGE EXTERNAL;
		CREATE TABLE plain_rows (site integer, name text, hash text NOT NULL, PRIMARY KEY (site, name))`
	plainBodies = "INSERT INTO plain_bodies (hash, body) SELECT * FROM unnest($1::text[], $2::bytea[])"
	plainRows   = `INSERT INTO plain_rows (site, name, hash) SELECT $1, * FROM unnest($2::text[], $3::text[])
		ON CONFLICT (site, name) DO UPDATE SET hash = excluded.hash`
)

// plainFleet is the yardstick of a fleet change: the same bytes in the same batches, written
// durably to the region's Postgres and then to a SQLite file for each of two nodes.
type plainFleet struct {
	region *pgxpool.Pool
	nodes  [fleetSites][2]*sql.DB
}

func (r *region) plainFleet(ctx context.Context) (*plainFleet, error) {
	at, err := r.postgresURL()
	if err != nil {
		return nil, err
	}
	p := &plainFleet{}
	if p.region, err = pgxpool.New(ctx, at); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if _, err := p.region.Exec(ctx, plainTables); err != nil {
		p.close()
		return nil, fmt.Errorf("make the yardstick's tables: %w", err)
	}
	dir, err := os.MkdirTemp(r.dir, "plain-")
	for i := range 2 * fleetSites {
		if err == nil {
			p.nodes[i/2][i%2], err = openPlain(ctx, filepath.Join(dir, fmt.Sprintf("%d.db", i)), plainKept)
		}
	}
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *plainFleet) close() {
	p.region.Close()
	for _, site := range p.nodes {
		for _, db := range site {
			if db != nil {
				_ = db.Close() // the region's folder goes in the end
			}
		}
	}
}

// plainBatch is one batch of a site.
type plainBatch struct {
	names, hashes []string
	bodies        [][]byte
}

// change writes each site's batch, as many sites at once as the product does.
func (p *plainFleet) change(ctx context.Context, batches [fleetSites]plainBatch) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetAtOnce)
	for site, b := range batches {
		group.Go(func() error {
			err := pgx.BeginFunc(ctx, p.region, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, plainBodies, b.hashes, b.bodies)
				if err == nil {
					_, err = tx.Exec(ctx, plainRows, site, b.names, b.hashes)
				}
				return err
			})
			for _, db := range p.nodes[site] {
				if err == nil {
					err = b.keep(ctx, db)
				}
			}
			return err
		})
	}
	return group.Wait()
}

// keep writes a batch to a node's file, in one transaction.
func (b plainBatch) keep(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	for i := range b.names {
		if _, err := tx.ExecContext(ctx, plainReplace, b.names[i], b.hashes[i], b.bodies[i]); err != nil {
			return err
		}
	}
	return tx.Commit()
}
