package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// A batch replaces hundreds of small files at once. Creating and freeing a file costs a file system many times
// what the bytes cost. So an instance has two files that take turns: the next batch overwrites the config that
// was replaced.
const (
	spareFile = ".config.spare"
	// maxSpare bounds the spare file of an instance.
	maxSpare = 64 << 10

	configMode = 0o600
)

// redraft is prepare for a body in memory, of an instance that runs nothing.
func (p *projection) redraft(name fleet.InstanceName, c fleet.Content, data []byte) (*draft, error) {
	d := &draft{p: p, name: name, content: c, temp: filepath.Join(p.dir(name), spareFile)}
	fd, size, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("open spare config: %w", err)
	}
	d.changed, err = overwrite(fd, size, data)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, errors.Join(fmt.Errorf("write config: %w", err), d.drop())
	}
	return d, nil
}

// open opens the spare file, or creates one if it may not be overwritten.
func (d *draft) open() (fd int, size int64, err error) {
	const how = unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC // opening a FIFO would block
	fd, err = openFile(d.temp, how)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(d.p.dir(d.name), 0o700); err != nil {
			return 0, 0, err
		}
		fd, err = openFile(d.temp, how)
	}
	if err == nil {
		if size, free := nobodysElse(fd); free {
			return fd, size, nil
		}
		err = unix.Close(fd)
	}
	if undo := removeFile(d.temp); undo != nil {
		return 0, 0, errors.Join(err, undo)
	}
	fd, err = openFile(d.temp, how|unix.O_EXCL)
	return fd, 0, err
}

func openFile(path string, how int) (fd int, err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		fd, err = unix.Open(path, how, configMode)
	}
	return fd, err
}

// nobodysElse tells whether a file may be overwritten: a reader of the old config may still have it open, or
// have linked to it, and must not see it change. The kernel grants the file lease only if no other process has
// the file open; it ends with fd.
func nobodysElse(fd int) (size int64, free bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false
	}
	plain := st.Mode == unix.S_IFREG|configMode && st.Nlink == 1 && int64(st.Uid) == int64(os.Geteuid())
	if !plain {
		return 0, false
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return st.Size, err == nil
}

// overwrite returns the modification time of the file. It truncates last and only if necessary, so that the
// file keeps its blocks.
func overwrite(fd int, size int64, data []byte) (time.Time, error) {
	for at := 0; at < len(data); {
		n, err := unix.Pwrite(fd, data[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return time.Time{}, err
		}
		at += max(n, 0)
	}
	if size > int64(len(data)) {
		if err := unix.Ftruncate(fd, int64(len(data))); err != nil {
			return time.Time{}, err
		}
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return time.Unix(st.Mtim.Unix()), err
}

// swap is place for a redraft: the replaced file becomes the spare, if it is known and small.
func (d *draft) swap() error {
	path := d.p.path(d.name, d.content.Kind)
	before := d.p.lastSeen(d.name)
	if before.path != path || before.size > maxSpare {
		return d.place()
	}
	if err := unix.Renameat2(unix.AT_FDCWD, d.temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
		return d.place() // the config was removed, or this file system has no exchange
	}
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	d.p.verified[d.name] = stamp{d.content.Hash, path, d.content.Size, d.changed}
	return nil
}

func (p *projection) lastSeen(name fleet.InstanceName) stamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verified[name]
}
