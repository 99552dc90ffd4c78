// Package durable replaces small files so that a crash leaves the old content or the new one.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file, readable only by its owner. When it returns nil, the new content is on the disk; after an
// error, either content may be.
func WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".new-*") // CreateTemp gives mode 0600
	if err != nil {
		return fmt.Errorf("create %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after the rename
	if err := errors.Join(writeSynced(tmp, content), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("put %s in place: %w", filepath.Base(path), err)
	}
	return syncDir(dir)
}

func writeSynced(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the directory of the caller's own file
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
