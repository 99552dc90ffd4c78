package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	artifactSize  = 300 << 20
	chunkSize     = 1 << 20
	artifactLimit = 0.4
)

// measureArtifact brings an artifact to both nodes of a site.
func measureArtifact(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	fetch, how := fetcher()
	rate := func(d time.Duration) float64 { return artifactSize / megabyte / d.Seconds() }
	s, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		took, err := l.deliverArtifact(ctx, r, instanceKey(0))
		return rate(took), err
	}, func(ctx context.Context, _ int) (float64, error) {
		took, err := l.plainly(ctx, fetch)
		return rate(took), err
	})
	return []figure{{
		name: "artifact: 300 MB to both nodes", unit: "MB/s", series: s, limit: artifactLimit, least: true,
		note: "yardstick fetched by " + how,
	}}, err
}

// deliverArtifact uploads fresh bytes, and gives the time from the answer to the PUT until
// both nodes are durable.
func (l *lab) deliverArtifact(ctx context.Context, r *region, key fleet.ObjectKey) (time.Duration, error) {
	path, err := l.randomFile()
	if err != nil {
		return 0, err
	}
	defer os.Remove(path) //nolint:errcheck // the lab's folder goes in the end
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open the artifact: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	a, err := r.api.UploadArtifact(ctx, api.Upload{Body: f, Size: artifactSize})
	if err != nil {
		return 0, fmt.Errorf("upload the artifact: %w", err)
	}
	unix.Sync() // what others left to be written is not ours to pay
	d, err := r.deliver(ctx, key, api.InstancePut{Artifact: a.SHA256})
	if err != nil {
		return 0, err
	}
	return d.took - d.accepted, r.holds(ctx, key, a.SHA256)
}

// randomFile makes an artifact that nobody has, and that does not compress.
func (l *lab) randomFile() (string, error) {
	f, err := os.CreateTemp(l.dir, "artifact-")
	if err != nil {
		return "", fmt.Errorf("make an artifact: %w", err)
	}
	out := bufio.NewWriterSize(f, chunkSize)
	_, err = io.CopyN(out, rand.Reader, artifactSize)
	if err := errors.Join(err, out.Flush(), f.Close()); err != nil {
		return "", fmt.Errorf("make an artifact: %w", err)
	}
	return f.Name(), nil
}

// plainly is the yardstick: fetch a file, insert it in chunks; and again, since there are
// two nodes.
func (l *lab) plainly(ctx context.Context, fetch fetchFunc) (time.Duration, error) {
	source, err := l.randomFile()
	if err != nil {
		return 0, err
	}
	defer os.Remove(source) //nolint:errcheck // the lab's folder goes in the end
	server := httptest.NewServer(http.FileServer(http.Dir(l.dir)))
	defer server.Close()
	unix.Sync()
	var total time.Duration
	for range 2 {
		dir, err := os.MkdirTemp(l.dir, "plain-")
		if err != nil {
			return 0, fmt.Errorf("make a folder: %w", err)
		}
		began := time.Now()
		file := filepath.Join(dir, "file")
		if err := fetch(ctx, server.URL+"/"+filepath.Base(source), file); err != nil {
			return 0, fmt.Errorf("fetch plainly: %w", err)
		}
		if err := insert(ctx, file, filepath.Join(dir, "plain.db")); err != nil {
			return 0, fmt.Errorf("insert plainly: %w", err)
		}
		total += time.Since(began)
		if err := os.RemoveAll(dir); err != nil {
			return 0, fmt.Errorf("remove the yardstick: %w", err)
		}
	}
	return total, nil
}

type fetchFunc func(ctx context.Context, url, file string) error

// fetcher is curl, or what stands in for it.
func fetcher() (fetchFunc, string) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		return fetchHere, "net/http: there is no curl"
	}
	return func(ctx context.Context, url, file string) error {
		return exec.CommandContext(ctx, curl, "--silent", "--fail", "--output", file, url).Run()
	}, "curl"
}

func fetchHere(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	return errors.Join(err, out.Close())
}

// insert is durable at each chunk, as a transfer that can be resumed has to be.
func insert(ctx context.Context, file, database string) error {
	db, err := openPlain(ctx, database, "CREATE TABLE chunk (n INTEGER PRIMARY KEY, data BLOB NOT NULL)")
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // every chunk is committed
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // read only
	for n, chunk := 0, make([]byte, chunkSize); ; n++ {
		size, err := io.ReadFull(in, chunk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO chunk (n, data) VALUES (?, ?)", n, chunk[:size]); err != nil {
			return err
		}
	}
}
