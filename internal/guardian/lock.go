package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errTaken: another process holds the lock of a run directory.
var errTaken = errors.New("the lock is held")

// takeLock locks a run directory until the file, and every copy of it in a child, is closed. It returns
// errTaken if another process holds the lock, and fs.ErrNotExist without such a directory.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // below the runtime's root
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		current, err := lockOpened(file, path)
		if err == nil && current {
			return file, nil
		}
		if closeErr := file.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("close lock: %w", closeErr)
		}
		if err != nil {
			return nil, err
		}
	}
}

// lockOpened locks an open lock file, which this description may have locked already. current is false if the
// directory was removed in between: that lock protects nothing.
func lockOpened(file *os.File, path string) (current bool, err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, errTaken
	}
	if err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	opened, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("inspect lock: %w", err)
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect lock: %w", err)
	}
	return os.SameFile(opened, named), nil
}

// unlock drops the lock for every copy of the description.
func unlock(file *os.File) error {
	lock := unix.Flock_t{Type: unix.F_UNLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// lockHeld checks without taking, so that a check never makes a start fail.
func lockHeld(dir string) (bool, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0) //nolint:gosec // below the runtime's root
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open lock: %w", err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	if err = errors.Join(err, file.Close()); err != nil {
		return false, fmt.Errorf("ask for lock: %w", err)
	}
	return lock.Type != unix.F_UNLCK, nil
}
