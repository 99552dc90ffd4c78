package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const downloadTimeout = 5 * time.Minute

// releases are the versions that can be downloaded, by major version.
var releases = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14, 15: embeddedpostgres.V15, 16: embeddedpostgres.V16,
	17: embeddedpostgres.V17, 18: embeddedpostgres.V18,
}

const defaultRelease = 17

// downloader fetches Postgres through embedded-postgres into a cache that all data
// directories of this user share.
type downloader struct {
	cache      string
	repository string // "" means the library's own
}

// fetch returns the directory with the binaries of a major version (0: any).
func (d downloader) fetch(ctx context.Context, major int) (string, error) {
	if major == 0 {
		major = defaultRelease
	}
	version, ok := releases[major]
	if !ok {
		return "", fleet.Errorf(fleet.NotFound, "version %d is not available for download", major)
	}
	target := filepath.Join(d.cache, string(version))
	bin := filepath.Join(target, "bin")
	if _, err := os.Stat(filepath.Join(bin, "postgres")); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(d.cache, 0o700); err != nil {
		return "", fmt.Errorf("make the download cache: %w", err)
	}
	work, err := os.MkdirTemp(d.cache, "new-*")
	if err != nil {
		return "", fmt.Errorf("make the download cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := d.unpack(ctx, version, work); err != nil {
		return "", err
	}
	// Another process may have been faster; its copy is as good.
	if err := os.Rename(filepath.Join(work, "tree"), target); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("keep the download: %w", err)
	}
	return bin, nil
}

// unpack downloads into work/tree. The library cannot only fetch: it also runs initdb and starts a server, which
// fails as root. So it gets a data directory that looks initialised but is not. It then fetches and fails to start,
// and only the unpacked files matter.
func (d downloader) unpack(ctx context.Context, version embeddedpostgres.PostgresVersion, work string) error {
	tree, data := filepath.Join(work, "tree"), filepath.Join(work, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("make the download cache: %w", err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(majorText(version)+"\n"), 0o600); err != nil {
		return fmt.Errorf("make the download cache: %w", err)
	}
	port, err := unusedPort()
	if err != nil {
		return err
	}
	config := embeddedpostgres.DefaultConfig().Version(version).Port(port).Logger(io.Discard).
		CachePath(work).RuntimePath(filepath.Join(work, "run")).BinariesPath(tree).DataPath(data)
	if d.repository != "" {
		config = config.BinaryRepositoryURL(d.repository)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- embeddedpostgres.NewDatabase(config).Start() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		return fmt.Errorf("download Postgres %s: %w", version, ctx.Err())
	}
	for _, tool := range []string{"initdb", "postgres"} {
		if _, missing := os.Stat(filepath.Join(tree, "bin", tool)); missing != nil {
			return fmt.Errorf("download Postgres %s: %w", version, errors.Join(err, missing))
		}
	}
	return nil
}

func majorText(v embeddedpostgres.PostgresVersion) string {
	for major, release := range releases {
		if release == v {
			return strconv.Itoa(major)
		}
	}
	return ""
}

func unusedPort() (uint32, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return uint32(l.Addr().(*net.TCPAddr).AddrPort().Port()), nil
}
