package guardian

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Confinement isolates commands from the rest of the machine. The zero value runs them as the guardian's user.
type Confinement struct {
	// UID is the user and the only group of the commands; 0 is the guardian's own.
	UID int `json:"uid,omitempty"`
	// Hide is a directory above the working directory; the commands see only the working directory of it.
	Hide string `json:"hide,omitempty"`
}

func (c Confinement) on() bool { return c.UID > 0 }

func (c Confinement) validate(dir string) error {
	if !c.on() {
		return nil
	}
	if below, err := filepath.Rel(c.Hide, dir); !filepath.IsAbs(c.Hide) || err != nil || !filepath.IsLocal(below) || below == "." {
		return fleet.Errorf(fleet.Invalid, "the working directory is not below the hidden directory").At("/hide")
	}
	return nil
}

// credential is nil if the commands run as the guardian's user. The kernel clears a parent-death signal when a
// process changes its user; syscall.ForkExec sets it after that.
func (c Confinement) credential() *syscall.Credential {
	if !c.on() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.UID)} //nolint:gosec // positive, and below 2^32
}

// enter confines the calling thread and its children: no program gains privileges, and only the working
// directory of Hide stays visible, in a mount namespace of their own. The thread must be locked, and end with
// its goroutine. enter also hides directories above that other users cannot pass, so the paths of the working
// directory and of its config work wherever the node's data is.
func (c Confinement) enter(dir string) error {
	if !c.on() {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Later mounts of the machine stay visible here; mounts made here are not visible outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	return showOnly(c.Hide, dir)
}

// showOnly covers a directory and binds the one below it, dir, back into its place. It opens dir first, in the
// new namespace, because the kernel binds nothing from another one.
func showOnly(hide, dir string) error {
	cover, err := closedTo(hide)
	if err != nil {
		return err
	}
	shown, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the working directory: %w", err)
	}
	defer unix.Close(shown) //nolint:errcheck // nothing was written
	const passOnly = 0o711
	err = unix.Mount("holdfast", cover, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=%o,size=64k", passOnly))
	if err != nil {
		return fmt.Errorf("hide %s: %w", cover, err)
	}
	mask := unix.Umask(0) // of this thread: a mount namespace has its own
	err = os.MkdirAll(dir, passOnly)
	unix.Umask(mask)
	if err != nil {
		return fmt.Errorf("make the way to the working directory: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", shown), dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("show the working directory: %w", err)
	}
	return nil
}

// closedTo is the first directory on the path, dir included, that other users cannot pass; dir if there is
// none.
func closedTo(dir string) (string, error) {
	first := dir
	for at := dir; at != "/"; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return "", fmt.Errorf("look at the way to the data directory: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			first = at
		}
	}
	return first, nil
}

// Probe returns why commands cannot be confined on this machine, nil if they can. It confines a thread of this
// process, which must then be able to read file in dir as the user, but not secret. Nothing else should run as
// that user.
func Probe(c Confinement, dir, file, secret string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		done <- c.probe(dir, file, secret)
	}()
	return <-done
}

func (c Confinement) probe(dir, file, secret string) error {
	if err := c.enter(dir); err != nil {
		return err
	}
	// With raw system calls, for this thread alone.
	for _, call := range []struct {
		number  uintptr
		a, b, c uintptr
	}{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, uintptr(c.UID), uintptr(c.UID), uintptr(c.UID)},
		{unix.SYS_SETRESUID, uintptr(c.UID), uintptr(c.UID), uintptr(c.UID)},
	} {
		if _, _, errno := unix.RawSyscall(call.number, call.a, call.b, call.c); errno != 0 {
			return fmt.Errorf("become user %d: %w", c.UID, errno)
		}
	}
	if _, err := os.ReadFile(file); err != nil { //nolint:gosec // the caller's
		return fmt.Errorf("as user %d: %w", c.UID, err)
	}
	if _, err := os.ReadFile(secret); err == nil { //nolint:gosec // the caller's
		return errors.New("hidden files can be read")
	}
	return nil
}
