// Package testkit is what tests share: a real Postgres with a fresh database per test. It imports internal/store, so
// the tests of the store's packages are in external test packages.
package testkit

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/store"
)

// Region is the name of the region that Store opens.
const Region = "test"

const (
	superuser    = "holdfast"
	template     = "holdfast_template"
	startTimeout = time.Minute
	callTimeout  = 30 * time.Second
)

// Store opens a fresh database, migrated and empty, which goes with the test.
func Store(t testing.TB) *store.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	s, err := store.Open(ctx, DatabaseURL(t), Region)
	if err != nil {
		t.Fatalf("open the test database: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// databases numbers the databases of this test binary.
var databases atomic.Int64

// DatabaseURL makes a fresh database, migrated and of no region yet, which goes with the
// test.
func DatabaseURL(t testing.TB) string {
	t.Helper()
	c, err := started()
	if err != nil {
		t.Fatalf("start Postgres for the tests: %v", err)
	}
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := c.copy(name); err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		if err := c.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return c.url(name)
}

// cluster is the Postgres of this test binary. It ends with the binary, however that ends:
// its guard sees the pipe close.
type cluster struct {
	dir  string
	life *os.File // the guard's standard input
	mu   sync.Mutex
}

var started = sync.OnceValues(startCluster)

func startCluster() (*cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := runAs(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(inMemory(), "holdfast-pg-")
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, as.uid, as.gid); err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	if err := c.start(bin, as); err != nil {
		return nil, fmt.Errorf("%w (log in %s)", err, dir)
	}
	return c, c.prepare()
}

const (
	memory     = "/dev/shm"
	memoryRoom = 4 << 30 // bytes that are free there, for two packages under test at once
)

// inMemory is where files cost nothing, "" where there is no room for them: a database is a
// thousand files, and a fresh one of each test takes a tenth of the time there.
func inMemory() string {
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	return memory
}

// guard runs Postgres until its standard input ends, and leaves nothing behind.
const guard = `
"$1/initdb" -D "$2/data" -U ` + superuser + ` -A trust -E UTF8 --locale=C --no-sync --no-instructions || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c synchronous_commit=off \
  -c full_page_writes=off -c autovacuum=off -c max_connections=400 -c shared_buffers=64MB -c jit=off \
  -c max_parallel_workers_per_gather=0 -c max_wal_size=512MB &
read -r _
kill -QUIT $!
wait $!
rm -rf "$2"
`

func (c *cluster) start(bin string, as person) error {
	input, life, err := os.Pipe()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = input.Close(); _ = log.Close() }() // the guard has its own
	cmd := exec.Command("sh", "-c", guard, "guard", bin, c.dir)
	cmd.Dir = c.dir
	cmd.SysProcAttr = as.attr
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C ends the tests, and by that the guard
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, log, log
	c.life = life
	return cmd.Start()
}

// prepare waits until Postgres answers, and migrates the template of all test databases.
func (c *cluster) prepare() error {
	if err := c.answers(); err != nil {
		return err
	}
	if err := c.exec("CREATE DATABASE " + template); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	s, err := store.Open(ctx, c.url(template), Region)
	if err != nil {
		return err
	}
	s.Close()
	conn, err := pgx.Connect(ctx, c.url(template))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to lose
	_, err = conn.Exec(ctx, "DELETE FROM region")
	return err
}

func (c *cluster) answers() error {
	over := time.NewTimer(startTimeout)
	defer over.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.exec("SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-over.C:
			return fmt.Errorf("postgres does not answer: %w", err)
		}
	}
}

// copy makes a database of the template, one at a time.
func (c *cluster) copy(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exec("CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY file_copy")
}

// exec runs a statement of the administrator.
func (c *cluster) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to lose
	_, err = conn.Exec(ctx, sql)
	return err
}

func (c *cluster) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		RawQuery: url.Values{"host": {c.dir}, "sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// binaries finds the machine's Postgres: the PATH's first, then the newest.
func binaries() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is a constant
	slices.Reverse(installed)
	for _, dir := range append(dirs, installed...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no initdb and postgres on this machine: install Postgres with the package manager")
}

// person is who Postgres runs as: it refuses to be root, and wants to have a name.
type person struct {
	attr     *syscall.SysProcAttr
	uid, gid int // that own its files, as seen from outside
}

// runAs maps a named user onto root in a user namespace, or becomes that user where
// namespaces are forbidden.
func runAs(bin string) (person, error) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid != 0 {
		return person{&syscall.SysProcAttr{}, uid, gid}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		id, err := strconv.Atoi(u.Uid)
		if err != nil {
			return person{}, err
		}
		mapped := &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
		}
		probe := exec.Command(filepath.Join(bin, "postgres"), "--version")
		probe.SysProcAttr = mapped
		if probe.Run() == nil {
			return person{mapped, uid, gid}, nil
		}
		return person{&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}, id, id}, nil
	}
	return person{}, fmt.Errorf("postgres does not run as root, and there is no user to run as")
}
