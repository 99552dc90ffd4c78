package guardian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// handle refers to one process and no other, also after its pid is reused.
type handle struct {
	file *os.File
	fd   int // of file; File.Fd would make it blocking, and wait needs the poller
}

// errGone: the process has ended.
var errGone = errors.New("no such process")

// openPID gives a handle of the process that has the pid now.
func openPID(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open process: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // lets the runtime poll it
		return nil, errors.Join(fmt.Errorf("open process: %w", err), unix.Close(fd))
	}
	return &handle{file: os.NewFile(uintptr(fd), "pidfd"), fd: fd}, nil
}

// open returns errGone if the process ended, or another process has its pid now. It reads the start time after
// it opened the handle, so it compares the process of the handle.
func (p process) open() (*handle, error) {
	if p.PID <= 0 {
		return nil, errGone
	}
	h, err := openPID(p.PID)
	if err != nil {
		return nil, err
	}
	e, ok, err := readProcess(p.PID)
	if err == nil && (!ok || e.Zombie || e.Start != p.Start) {
		err = errGone
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// signal sends a signal; it does nothing if the process has ended.
func (p process) signal(sig unix.Signal) error {
	h, err := p.open()
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(h.signal(sig), h.close())
}

func (p process) alive() (bool, error) {
	e, ok, err := readProcess(p.PID)
	return ok && p.PID > 0 && !e.Zombie && e.Start == p.Start, err
}

func (h *handle) signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(h.fd, sig, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %s: %w", unix.SignalName(sig), err)
	}
	return nil
}

// wait returns when the process has ended.
func (h *handle) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) }) // ends the Read below
	defer stop()
	raw, err := h.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process: %w", err)
	}
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		var n int
		n, pollErr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // fds are small
		return n > 0 || (pollErr != nil && !errors.Is(pollErr, unix.EINTR))
	})
	if ctx.Err() != nil {
		return fmt.Errorf("wait for process: %w", context.Cause(ctx))
	}
	if err = errors.Join(err, pollErr); err != nil {
		return fmt.Errorf("wait for process: %w", err)
	}
	return nil
}

func (h *handle) close() error {
	if err := h.file.Close(); err != nil {
		return fmt.Errorf("close process: %w", err)
	}
	return nil
}
