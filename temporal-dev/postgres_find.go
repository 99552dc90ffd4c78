package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const oldestPostgres = 14

// binaries are one installation of Postgres.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(tool string) string { return filepath.Join(b.dir, tool) }

// binarySearch defines where to look for an installation. The machine's own places come first; if they have none,
// fetch downloads one.
type binarySearch struct {
	lookPath func(string) (string, error)
	globs    []string
	fetch    func(ctx context.Context, major int) (string, error)
}

func machineSearch(cache string) binarySearch {
	return binarySearch{
		lookPath: exec.LookPath,
		globs:    []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin"},
		fetch:    downloader{cache: cache}.fetch,
	}
}

// find returns the newest installation, or for an existing data directory the version that wrote it: another major
// version could not read it.
func (s binarySearch) find(ctx context.Context, dataDir string) (binaries, error) {
	needed, err := majorOf(dataDir)
	if err != nil {
		return binaries{}, err
	}
	found := s.installed(ctx)
	for _, b := range found {
		if b.major >= oldestPostgres && (needed == 0 || b.major == needed) {
			return b, nil
		}
	}
	dir, err := s.fetch(ctx, needed)
	if err != nil {
		return binaries{}, cannotBeHad(needed, found, err)
	}
	major, err := versionOf(ctx, dir)
	if err != nil {
		return binaries{}, fmt.Errorf("use the downloaded Postgres: %w", err)
	}
	return binaries{dir: dir, major: major}, nil
}

func cannotBeHad(needed int, found []binaries, err error) error {
	want := fmt.Sprintf("version %d or newer", oldestPostgres)
	if needed != 0 {
		want = fmt.Sprintf("version %d, which wrote this data directory", needed)
	}
	seen := "none was found on this machine"
	if len(found) > 0 {
		seen = "on this machine are"
		for _, b := range found {
			seen += fmt.Sprintf(" %d (%s)", b.major, b.dir)
		}
	}
	e := fleet.Errorf(fleet.Unavailable, "no usable Postgres: %s is required, %s, and the download failed: %w",
		want, seen, err)
	return e.WithHint("install Postgres with the package manager, with initdb and postgres on the PATH")
}

// installed lists the machine's installations: those on the PATH first, then the newest first.
func (s binarySearch) installed(ctx context.Context) []binaries {
	var dirs []string
	if path, err := s.lookPath("postgres"); err == nil {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	var rest []string
	for _, glob := range s.globs {
		matches, _ := filepath.Glob(glob) // the patterns are constants
		rest = append(rest, matches...)
	}
	if path, err := s.lookPath("pg_config"); err == nil {
		if out, err := exec.CommandContext(ctx, path, "--bindir").Output(); err == nil {
			rest = append(rest, strings.TrimSpace(string(out)))
		}
	}
	first := known(ctx, dirs)
	others := known(ctx, rest)
	slices.SortStableFunc(others, func(a, b binaries) int { return b.major - a.major })
	return append(first, others...)
}

// known returns the directories that contain a complete installation.
func known(ctx context.Context, dirs []string) []binaries {
	var found []binaries
	for _, dir := range dirs {
		if slices.ContainsFunc(found, func(b binaries) bool { return b.dir == dir }) {
			continue
		}
		if major, err := versionOf(ctx, dir); err == nil {
			found = append(found, binaries{dir: dir, major: major})
		}
	}
	return found
}

var postgresVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// versionOf asks postgres itself and checks that initdb is next to it: some packages contain only one of them.
func versionOf(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, fmt.Errorf("look for initdb: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask postgres for its version: %w", err)
	}
	match := postgresVersion.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("unknown Postgres version %.80q", out)
	}
	return strconv.Atoi(string(match[1]))
}

// majorOf is the version that wrote a data directory, 0 if there is none yet.
func majorOf(dataDir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read PG_VERSION: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read PG_VERSION: %w", err)
	}
	return major, nil
}
