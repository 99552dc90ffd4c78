package isolation

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Give makes a user the only owner of a directory: with all in it if another user owned it, else with the named
// paths below it and the directories on the way to them. Uid 0 is the agent's user. Nothing may run in the
// directory during the call.
func Give(dir string, uid int, paths ...string) error {
	if uid == 0 {
		uid = os.Geteuid()
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open a working directory: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	was, ok := ownerOf(dir)
	if !ok || was != uid {
		err = giveAll(root, uid)
	} else {
		err = giveSome(root, uid, paths)
	}
	if err == nil {
		err = root.Chmod(".", 0o700)
	}
	if err != nil {
		return fmt.Errorf("give a working directory to user %d: %w", uid, err)
	}
	return nil
}

// giveAll changes the directory itself last: after a failure halfway, all is changed again.
func giveAll(root *os.Root, uid int) error {
	err := fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return give(root, path, uid)
	})
	if err != nil {
		return err
	}
	return root.Lchown(".", uid, uid)
}

func giveSome(root *os.Root, uid int, paths []string) error {
	for _, path := range paths {
		for at := filepath.Clean(path); at != "."; at = filepath.Dir(at) {
			if err := give(root, at, uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// give leaves out files with a second link: they may belong to another user.
func give(root *os.Root, path string, uid int) error {
	info, err := root.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == uid && int(st.Gid) == uid || !info.IsDir() && st.Nlink > 1 {
		return nil
	}
	return root.Lchown(path, uid, uid)
}
