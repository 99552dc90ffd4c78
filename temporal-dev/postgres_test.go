package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const strangerID = 12345

// nowhere finds no Postgres and downloads none.
var nowhere = binarySearch{
	lookPath: func(string) (string, error) { return "", exec.ErrNotFound },
	fetch: func(context.Context, int) (string, error) {
		return "", fleet.Errorf(fleet.Communication, "no network")
	},
}

func query(t *testing.T, db *database, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.url(postgresDatabase))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var answer string
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

func keepSomething(t *testing.T, db *database) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.url(postgresDatabase))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 'x' AS v")
	require.NoError(t, err)
}

func databaseOf(t *testing.T, l *laptop) *database {
	t.Helper()
	password, err := l.dir.secret(passwordFile)
	require.NoError(t, err)
	return &database{listen: l.addrs[addrPostgres], password: password}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	realOnly(t)
	t.Run("runs for root too, below a folder that is another user's alone", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() != 0 {
			t.Skip("needs root to make a folder that others own")
		}
		l, said := newLaptop(t, privateDir(t, strangerID))
		require.NoError(t, l.startPostgres(t.Context()), said)
		db := databaseOf(t, l)
		require.Equal(t, "on", query(t, db, "SHOW fsync"))
		keepSomething(t, db)
		l.stop()
		l.dir.close()
		again, said := newLaptop(t, l.dir.path)
		require.NoError(t, again.startPostgres(t.Context()), said)
		require.Equal(t, "x", query(t, databaseOf(t, again), "SELECT v FROM kept"))
	})
	t.Run("runs as another user where user namespaces are forbidden", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() != 0 {
			t.Skip("only root can become another user")
		}
		dir, err := openDataDir(privateDir(t, strangerID))
		require.NoError(t, err)
		defer dir.close()
		bin, err := machineSearch(t.TempDir()).find(t.Context(), "")
		require.NoError(t, err)
		require.NoError(t, reachable(bin))
		uid, gid, err := standIn()
		require.NoError(t, err)
		chosen, err := choose([]listener{{addrPostgres, "", "127.0.0.1:0"}}, nil)
		require.NoError(t, err)
		db := &database{
			bin: bin, as: identity{become(uid, gid), uid, gid}, data: dir.file("postgres"),
			listen: chosen[addrPostgres], password: "secret",
		}
		require.NoError(t, db.initialise(t.Context()))
		s, said := newTestSupervisor(t)
		require.NoError(t, startAndWait(t.Context(), s.add(db.spec(filepath.Join(t.TempDir(), "log"))), db.ready), said)
		require.Equal(t, "holdfast", query(t, db, "SELECT current_user::text"))
		t.Run("and takes its files back when they are allowed again", func(t *testing.T) {
			require.NoError(t, s.stop(t.Context(), postgresName))
			db.as, err = chooseIdentity(t.Context(), bin)
			require.NoError(t, err)
			require.NoError(t, db.as.own(db.data))
			require.NoError(t, s.start(t.Context(), postgresName))
			require.NoError(t, pollErr(t.Context(), testPatience, db.ready))
		})
	})
	t.Run("refuses a wrong password", func(t *testing.T) {
		t.Parallel()
		l, _ := newLaptop(t, t.TempDir())
		require.NoError(t, l.startPostgres(t.Context()))
		wrong := databaseOf(t, l)
		wrong.password = "wrong"
		require.ErrorContains(t, wrong.ready(t.Context()), "password authentication failed")
	})
	t.Run("starts over a lock file whose process id is somebody else's now", func(t *testing.T) {
		t.Parallel()
		l, _ := newLaptop(t, t.TempDir())
		require.NoError(t, l.startPostgres(t.Context()))
		require.NoError(t, l.supervisor.stop(t.Context(), postgresName))
		stale := []byte(strconv.Itoa(os.Getpid()) + "\n" + l.dir.file("postgres") + "\n")
		require.NoError(t, os.WriteFile(l.dir.file("postgres", "postmaster.pid"), stale, 0o600))
		require.NoError(t, l.supervisor.start(t.Context(), postgresName))
		require.NoError(t, pollErr(t.Context(), testPatience, databaseOf(t, l).ready))
	})
}

func TestPostgresBinaries(t *testing.T) {
	t.Parallel()
	t.Run("that cannot be had give an error that says what to do", func(t *testing.T) {
		t.Parallel()
		_, err := nowhere.find(t.Context(), t.TempDir())
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		require.ErrorContains(t, err, "no usable Postgres: version 14 or newer is required, none was found on this machine")
		require.ErrorContains(t, err, "no network")
		require.ErrorContains(t, err, "install Postgres")
	})
	t.Run("must be of the version that wrote the data directory", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("99\n"), 0o600))
		search := machineSearch(t.TempDir())
		search.fetch = nowhere.fetch
		_, err := search.find(t.Context(), data)
		require.ErrorContains(t, err, "version 99, which wrote this data directory")
		_, err = downloader{cache: t.TempDir()}.fetch(t.Context(), 99)
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	})
	t.Run("are found without the PATH", func(t *testing.T) {
		t.Parallel()
		search := machineSearch(t.TempDir())
		search.lookPath = nowhere.lookPath
		if _, err := filepath.Glob(search.globs[0]); err != nil || len(search.installed(t.Context())) == 0 {
			t.Skip("this machine keeps Postgres elsewhere")
		}
		bin, err := search.find(t.Context(), "")
		require.NoError(t, err)
		require.GreaterOrEqual(t, bin.major, oldestPostgres)
	})
}

// archive is a release as the download repository serves it: a jar with a compressed tar
// inside. Its tools are this machine's.
func archive(t *testing.T, bin binaries) []byte {
	t.Helper()
	tree := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(tree, "bin"), 0o755))
	for _, tool := range []string{"initdb", "postgres", "pg_ctl"} {
		script := "#!/bin/sh\nexec '" + bin.path(tool) + "' \"$@\"\n"
		require.NoError(t, os.WriteFile(filepath.Join(tree, "bin", tool), []byte(script), 0o755))
	}
	out, err := exec.CommandContext(t.Context(), "tar", "-C", tree, "-cJ", "bin").Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("needs tar")
	}
	require.NoError(t, err)
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres.txz")
	require.NoError(t, err)
	_, err = w.Write(out)
	require.NoError(t, errors.Join(err, z.Close()))
	return jar.Bytes()
}

func TestPostgresDownload(t *testing.T) {
	t.Parallel()
	realOnly(t)
	bin, err := machineSearch(t.TempDir()).find(t.Context(), "")
	require.NoError(t, err)
	jar, asked := archive(t, bin), 0
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		asked++
		_, _ = w.Write(jar)
	}))
	defer repository.Close()
	d := downloader{cache: filepath.Join(t.TempDir(), "cache"), repository: repository.URL}
	t.Run("brings the binaries once", func(t *testing.T) {
		search := nowhere
		search.fetch = d.fetch
		for range 2 {
			found, err := search.find(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, bin.major, found.major)
			require.True(t, strings.HasPrefix(found.dir, d.cache))
		}
		require.Equal(t, 1, asked)
		entries, err := os.ReadDir(d.cache)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	})
	t.Run("says why it did not succeed", func(t *testing.T) {
		repository.Close()
		broken := downloader{cache: t.TempDir(), repository: repository.URL}
		_, err := broken.fetch(t.Context(), 16)
		require.ErrorContains(t, err, "download Postgres 16")
		require.ErrorContains(t, err, "unable to connect")
	})
}
