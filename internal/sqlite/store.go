package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"sync"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is the open node.db.
type Store struct {
	db *sql.DB
	q  *db.Queries

	metaMu sync.Mutex
	meta   *Meta // nil until it is read

	recent recent
}

// settings apply to every connection. auto_vacuum precedes every write of the file's header; it cannot be
// changed afterwards.
var settings = url.Values{
	"_pragma": {
		"auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)",
		"foreign_keys(ON)", "secure_delete(OFF)", "cache_size(-8192)",
		// A batch writes more than the default of 1000 pages, and the next batch as many again.
		"wal_autocheckpoint(4000)",
	},
	"_txlock": {"immediate"},
}

// Open opens or creates the store. Only its owner can read the file, since configs may contain secrets.
func Open(ctx context.Context, path string) (*Store, error) { return open(ctx, path, migrations) }

func open(ctx context.Context, path string, files fs.FS) (*Store, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("locate node store: %w", err)
	}
	file, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the node's own configuration
	if err != nil {
		return nil, fmt.Errorf("create node store: %w", err)
	}
	if err := errors.Join(checkHeader(file), file.Close()); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: abs, RawQuery: settings.Encode()}
	conn, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open node store: %w", err)
	}
	conn.SetMaxOpenConns(1) // one writer, and no reader that delays a checkpoint
	s := &Store{db: conn, q: db.New(conn)}
	if err := s.migrate(ctx, files); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// Parsing its statements would be half the cost of a small transaction.
	if s.q, err = db.Prepare(ctx, conn); err != nil {
		return nil, errors.Join(fail("prepare statements", err), conn.Close())
	}
	return s, nil
}

// Close waits for running calls and closes the file.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close node store: %w", err)
	}
	return nil
}

// migrate applies missing migrations. It accepts a newer schema if that declares itself usable by this version
// (a node may be rolled back by one version), and otherwise refuses it. It also refuses a schema without the
// application id, which the migrations of no release made.
func (s *Store) migrate(ctx context.Context, files fs.FS) error {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	sort.Strings(names)
	var have int
	var application int64
	if err := s.db.QueryRowContext(ctx, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id").Scan(&have, &application); err != nil {
		return fail("read schema version", err)
	}
	if err := ofRelease(have, application); err != nil {
		return err
	}
	if have > len(names) {
		from, err := s.q.GetUsableFrom(ctx)
		if err != nil {
			return fail("read who may use the node store", err)
		}
		if from > int64(len(names)) {
			return fleet.Errorf(fleet.IllegalState, "the node store has schema %d, usable from %d on; this version knows %d", have, from, len(names)).
				WithHint("run the newer version again")
		}
	}
	for n := have; n < len(names); n++ {
		if err := s.migrateOne(ctx, files, names[n], n+1); err != nil {
			return err
		}
	}
	return nil
}

// applicationID is in the header of each store ("Hold" in ASCII); migrations/0001_init.sql writes it.
const applicationID = 0x486f6c64

// ofRelease returns an error for a schema that the migrations of no release made.
func ofRelease(version int, application int64) error {
	if version == 0 || application == applicationID {
		return nil
	}
	return fleet.Errorf(fleet.IllegalState, "the node store has the schema of another build of Holdfast, which no release has made; nothing was changed").
		WithHint("enrol the node again with an empty data directory, or run the build that made this one")
}

// Where the header of an SQLite file has them, as big-endian 32 bits (sqlite.org/fileformat2.html#database_header).
const (
	headerSize        = 100
	headerVersion     = 60
	headerApplication = 68
)

// checkHeader runs before SQLite opens the file: the settings alone would write to it.
func checkHeader(file *os.File) error {
	var header [headerSize]byte
	if _, err := file.ReadAt(header[:], 0); errors.Is(err, io.EOF) {
		return nil // it is new, or all its data is in the log beside it
	} else if err != nil {
		return fmt.Errorf("read node store: %w", err)
	}
	at := func(offset int) uint32 { return binary.BigEndian.Uint32(header[offset:]) }
	return ofRelease(int(at(headerVersion)), int64(at(headerApplication)))
}

func (s *Store) migrateOne(ctx context.Context, files fs.FS, name string, version int) error {
	script, err := fs.ReadFile(files, name)
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	return s.tx(ctx, "migrate node store", nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, string(script)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
}

// tx runs one transaction; verb names it in errors. It is short, so the end of the caller's context does not
// cancel it: watching for that costs a goroutine per statement.
func (s *Store) tx(ctx context.Context, verb string, opt *sql.TxOptions, do func(context.Context, *sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fail(verb, err)
	}
	ctx = context.WithoutCancel(ctx)
	tx, err := s.db.BeginTx(ctx, opt)
	if err != nil {
		return fail(verb, err)
	}
	defer func() { _ = tx.Rollback() }() // a panic that a caller recovers must not keep the only connection
	if err := do(ctx, tx); err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, undo)
		}
		return fail(verb, err)
	}
	if opt == nil || !opt.ReadOnly {
		s.recent.forget()
	}
	return fail(verb, tx.Commit())
}

// write is tx for callers that need only the queries.
func (s *Store) write(ctx context.Context, verb string, do func(context.Context, *db.Queries) error) error {
	return s.tx(ctx, verb, nil, func(ctx context.Context, tx *sql.Tx) error { return do(ctx, s.q.WithTx(tx)) })
}

// read is write without the writer's lock.
func (s *Store) read(ctx context.Context, verb string, do func(context.Context, *db.Queries) error) error {
	return s.tx(ctx, verb, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx *sql.Tx) error {
		return do(ctx, s.q.WithTx(tx))
	})
}

// fail is the one place where driver errors get their kinds, by code.
func fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	var known *fleet.Error
	if errors.As(err, &known) {
		return err
	}
	var se *driver.Error
	if errors.As(err, &se) {
		switch se.Code() & 0xff {
		case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_FULL, codes.SQLITE_IOERR:
			return fleet.Errorf(fleet.Unavailable, "%s: %w", verb, err)
		case codes.SQLITE_CONSTRAINT:
			return fleet.Errorf(fleet.Conflict, "%s: %w", verb, err)
		}
	}
	return fmt.Errorf("%s: %w", verb, err)
}
