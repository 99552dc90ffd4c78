package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// lockDir takes the lock that ends with this process, however it ends: two nodes on one
// directory would each undo what the other applies.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the operator's directory
	if err != nil {
		return nil, fmt.Errorf("open the node's lock: %w", err)
	}
	err = flock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close() //nolint:errcheck // nothing was written
		return nil, heldBy(f, dir)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the node's directory: %w", err), f.Close())
	}
	return f, nil
}

const (
	letGo    = time.Second
	lockEach = 10 * time.Millisecond
)

// flock locks a file. A program that is just being started holds what its parent has let go of, for a moment:
// that is waited for.
func flock(f *os.File) error {
	over, each := time.NewTimer(letGo), time.NewTicker(lockEach)
	defer over.Stop()
	defer each.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err //nolint:wrapcheck // lockDir does
		}
		select {
		case <-each.C:
		case <-over.C:
			return err //nolint:wrapcheck // lockDir does
		}
	}
}

func heldBy(lock *os.File, dir string) error {
	holder, _ := os.ReadFile(lock.Name()) // "" when it is just being written
	return fleet.Errorf(fleet.Conflict, "a node is already running on %s (process %s)", dir, strings.TrimSpace(string(holder))).
		WithHint("stop it, or give this node a directory of its own")
}
