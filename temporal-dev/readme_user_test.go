package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// closedAbove is the topmost folder of a path that other users may not enter, "" without one.
func closedAbove(path string) string {
	closed := ""
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && info.Mode()&passOthers == 0 {
			closed = path
		}
	}
	return closed
}

// runAsUser becomes another user and executes a command: UID GID FOLDER... -- COMMAND. That user can enter the folders, also
// those below a folder that is closed to others: for them, the process needs a mount namespace of its own.
func runAsUser(args []string) error {
	at := slices.Index(args, "--")
	uid, uidErr := strconv.Atoi(args[0])
	gid, gidErr := strconv.Atoi(args[1])
	if at < 0 || uidErr != nil || gidErr != nil {
		return fmt.Errorf("invalid arguments %q", args)
	}
	if err := showFolders(args[2:at]); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return syscall.Exec(args[at+1], args[at+1:], os.Environ())
}

// showFolders covers what is closed above the folders, and puts them back to where they were.
func showFolders(folders []string) error {
	var hidden []*os.File
	for _, folder := range folders {
		f, err := os.Open(folder) // the command that is executed does not have it
		if err != nil {
			return err
		}
		if closedAbove(folder) != "" {
			hidden = append(hidden, f)
		}
	}
	for _, f := range hidden {
		if top := closedAbove(f.Name()); top != "" { // else it was covered for one before
			if err := syscall.Mount("tmpfs", top, "tmpfs", 0, "mode=755"); err != nil {
				return fmt.Errorf("cover %s: %w", top, err)
			}
		}
		if err := os.MkdirAll(f.Name(), 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), f.Name(), "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("show %s: %w", f.Name(), err)
		}
	}
	return nil
}
