package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

const (
	postgresName     = "postgres"
	postgresUser     = "holdfast"
	postgresDatabase = "holdfast"
	passwordFile     = "postgres.password"

	fastShutdown      = syscall.SIGINT  // ends sessions, writes a checkpoint
	immediateShutdown = syscall.SIGQUIT // leaves recovery to the next start
)

// postgresSettings keep it durable (fsync stays on) and small, for one laptop and a few clients. There is no unix
// socket, so the length of the data directory's path does not matter.
var postgresSettings = []string{
	"unix_socket_directories=",
	"shared_buffers=256MB",
	"max_connections=100",
	"min_wal_size=32MB",
	"wal_init_zero=off", // a new region would write its log twice until the first files come round again
	"jit=off",           // would load LLVM into every session
	"max_parallel_workers_per_gather=0",
	"autovacuum_max_workers=2",
	"max_logical_replication_workers=0", // and with them their launcher
	"max_locks_per_transaction=256",     // a batch locks each of its 1,000 instances
}

// settingsVariable lists more settings, each after a comma, of which the last counts; only benchmarks use it.
const settingsVariable = "HOLDFAST_POSTGRES_SETTINGS"

// database is the region's Postgres.
type database struct {
	bin      binaries
	as       identity
	data     string
	listen   *net.TCPAddr
	password string
}

// openDatabase finds Postgres and creates its data directory if there is none.
func openDatabase(ctx context.Context, d *dataDir, search binarySearch, listen *net.TCPAddr) (*database, error) {
	data := d.file("postgres")
	bin, err := search.find(ctx, data)
	if err != nil {
		return nil, err
	}
	as, err := chooseIdentity(ctx, bin)
	if err != nil {
		return nil, err
	}
	password, err := d.secret(passwordFile)
	if err != nil {
		return nil, err
	}
	db := &database{bin: bin, as: as, data: data, listen: listen, password: password}
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		return db, db.initialise(ctx)
	}
	return db, as.own(data)
}

// initialise creates the data directory under another name and renames it when complete, so that an interrupted
// first start leaves nothing that looks finished.
func (db *database) initialise(ctx context.Context) error {
	fresh := db.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove a half-made database: %w", err)
	}
	if err := errors.Join(os.Mkdir(fresh, 0o700), os.Chown(fresh, db.as.uid, db.as.gid)); err != nil {
		return fmt.Errorf("make the database directory: %w", err)
	}
	password, err := db.passwordFile()
	if err != nil {
		return err
	}
	cmd, err := db.run("initdb", fresh, "--username="+postgresUser, "--pwfile="+childFile(1),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync")
	if err != nil {
		_ = password.Close()
		return err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, password)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := spawn(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	giveUp := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer giveUp()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("make the database with %s: %w: %s", cmd.Path, err, lastLine(said.String()))
	}
	if err := syncAll(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, db.data); err != nil {
		return fmt.Errorf("keep the database: %w", err)
	}
	return nil
}

// syncAll writes a tree's file system out at once. initdb syncs each of its 1,000 files,
// which takes a third of its time.
func syncAll(tree string) error {
	dir, err := os.Open(tree)
	if err != nil {
		return fmt.Errorf("open the new database: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync the new database: %w", err)
	}
	return nil
}

// run prepares a Postgres tool and passes its data directory as an open file: the directories above may be closed
// to the user that Postgres runs as.
func (db *database) run(tool, data string, args ...string) (*exec.Cmd, error) {
	dir, err := os.Open(data)
	if err != nil {
		return nil, fmt.Errorf("open the database directory: %w", err)
	}
	cmd := exec.Command(db.bin.path(tool), append([]string{"-D", childFile(0)}, args...)...)
	cmd.SysProcAttr = db.as.attr()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{dir}
	return cmd, nil
}

// childFile names an extra file as the child sees it.
func childFile(extra int) string { return "/proc/self/fd/" + strconv.Itoa(extra+3) }

// passwordFile is readable by Postgres's user and no longer has a name.
func (db *database) passwordFile() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(db.data), ".new-*")
	if err != nil {
		return nil, fmt.Errorf("hand over the password: %w", err)
	}
	err = errors.Join(os.Remove(f.Name()), f.Chown(db.as.uid, db.as.gid), writeAt(f, db.password+"\n"))
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("hand over the password: %w", err)
	}
	return f, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func (db *database) spec(log string) spec {
	return spec{
		name:          postgresName,
		log:           log,
		rank:          rankPostgres,
		command:       db.command,
		onParentDeath: fastShutdown,
		end:           []stopSignal{{fastShutdown, 20 * time.Second}, {immediateShutdown, 5 * time.Second}},
	}
}

func (db *database) command(ctx context.Context) (*exec.Cmd, error) {
	if err := db.clearLeftover(ctx); err != nil {
		return nil, err
	}
	args := []string{"-h", db.listen.IP.String(), "-p", strconv.Itoa(db.listen.Port)}
	more := strings.FieldsFunc(os.Getenv(settingsVariable), func(r rune) bool { return r == ',' })
	for _, setting := range append(slices.Clone(postgresSettings), more...) {
		args = append(args, "-c", setting)
	}
	return db.run("postgres", db.data, args...)
}

// clearLeftover handles the postmaster of a supervisor that was killed. It may still be shutting down. Or its
// process id may now belong to another process, which would keep Postgres from ever starting.
func (db *database) clearLeftover(ctx context.Context) error {
	lock := filepath.Join(db.data, "postmaster.pid")
	text, err := os.ReadFile(lock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read postmaster.pid: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err == nil && db.servedBy(pid) {
		_ = syscall.Kill(pid, fastShutdown)
		gone := func() bool { return !db.servedBy(pid) }
		if err := poll(ctx, 20*time.Second, gone); err != nil {
			return fmt.Errorf("wait for the previous postgres (%d) to end: %w", pid, err)
		}
	}
	if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove postmaster.pid: %w", err)
	}
	return nil
}

// servedBy reports whether that process is a postmaster of this data directory, by its working directory.
func (db *database) servedBy(pid int) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	here, err := filepath.EvalSymlinks(db.data)
	return err == nil && cwd == here
}

func (db *database) url(name string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(postgresUser, db.password),
		Host: db.listen.String(), Path: "/" + name, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// ready connects and creates the region's database if needed.
func (db *database) ready(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, db.url("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", postgresDatabase).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for the database: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+postgresDatabase); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
