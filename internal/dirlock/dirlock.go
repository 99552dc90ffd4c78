// Package dirlock has a directory belong to one process at a time.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// File is the name of the lock in its directory.
const File = "lock"

// HeldError says which process has the directory: its id, or "" while that is being written.
type HeldError struct{ Process string }

func (e *HeldError) Error() string { return "held by process " + e.Process }

const (
	letGo    = time.Second
	tryEvery = 10 * time.Millisecond
)

// Take takes the lock of a directory. It ends with this process, however that ends, or when the file is
// closed. The error is a *HeldError when another one has it.
func Take(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, File), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the operator's directory
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = flock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(f.Name()) // "" when it is just being written
		return nil, errors.Join(&HeldError{strings.TrimSpace(string(holder))}, f.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the directory: %w", err), f.Close())
	}
	return f, nil
}

// flock locks a file. A program that is just being started holds what its parent has let go of, for a moment:
// that is waited for.
func flock(f *os.File) error {
	over, again := time.NewTimer(letGo), time.NewTicker(tryEvery)
	defer over.Stop()
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err //nolint:wrapcheck // Take does
		}
		select {
		case <-again.C:
		case <-over.C:
			return err //nolint:wrapcheck // Take does
		}
	}
}
