package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// identity is the user that Postgres runs as: it refuses to run as root.
type identity struct {
	attr func() *syscall.SysProcAttr
	// owner of its files, as seen from outside.
	uid, gid int
}

// standIns are the users that Postgres may run as instead of root, in order of preference.
// initdb wants one that has a name.
var standIns = []string{"postgres", "nobody"}

// chooseIdentity runs Postgres as the caller. For root it uses a user namespace that maps another user onto root:
// outside, Postgres stays root and no file changes owner. Where namespaces are forbidden, it runs as that other
// user, who then owns the files.
func chooseIdentity(ctx context.Context, bin binaries) (identity, error) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid != 0 {
		return identity{func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }, uid, gid}, nil
	}
	standUID, standGID, err := standIn()
	if err != nil {
		return identity{}, err
	}
	mapped := identity{mapOnto(standUID, standGID, uid, gid), uid, gid}
	denied := mapped.probe(ctx, bin)
	if denied == nil {
		return mapped, nil
	}
	if err := reachable(bin); err != nil {
		return identity{}, fleet.Errorf(fleet.Unavailable,
			"Postgres does not run as root; a user namespace is not allowed here (%w) and user %d cannot reach its binaries: %w",
			denied, standUID, err).WithHint("install Postgres with the package manager")
	}
	return identity{become(standUID, standGID), standUID, standGID}, nil
}

func standIn() (uid, gid int, err error) {
	for _, name := range standIns {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return uid, gid, nil
		}
	}
	return 0, 0, fleet.Errorf(fleet.Unavailable, "Postgres does not run as root, and none of the users %v exists", standIns).
		WithHint("add one of them to /etc/passwd, or run temporal-dev as another user")
}

// mapOnto makes the child uid:gid inside and hostUID:hostGID outside.
func mapOnto(uid, gid, hostUID, hostGID int) func() *syscall.SysProcAttr {
	return func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: hostUID, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: hostGID, Size: 1}},
		}
	}
}

func become(uid, gid int) func() *syscall.SysProcAttr {
	return func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}} //nolint:gosec // ids of users are never negative
	}
}

func (id identity) probe(ctx context.Context, bin binaries) error {
	cmd := exec.CommandContext(ctx, bin.path("postgres"), "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = id.attr()
	return cmd.Run()
}

const passOthers = 0o001

// reachable reports a directory above the binaries that another user cannot enter. The data directory is passed as
// an open file (database.run), so the directories above it do not matter.
func reachable(bin binaries) error {
	for path := bin.dir; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("look at the binaries: %w", err)
		}
		if info.Mode()&passOthers == 0 {
			return fmt.Errorf("%s is closed to other users", path)
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}

// own gives a tree to the identity, if an earlier start ran under another one.
func (id identity) own(tree string) error {
	info, err := os.Stat(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", tree, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == id.uid {
		return nil
	}
	err = filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, id.uid, id.gid) //nolint:gosec // Postgres is not running, and no other user may enter
	})
	if err != nil {
		return fmt.Errorf("give %s to user %d: %w", tree, id.uid, err)
	}
	return nil
}
