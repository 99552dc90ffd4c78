package guardian

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm fires at an instant of SinceBoot; a Go timer would not count a suspend.
type alarm struct {
	file *os.File
	fd   int // of file; File.Fd would make it blocking
	rang chan struct{}
	done chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make timer: %w", err)
	}
	a := &alarm{
		file: os.NewFile(uintptr(fd), "timerfd"), fd: fd, rang: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go a.ring()
	return a, nil
}

func (a *alarm) ring() {
	defer close(a.done)
	expirations := make([]byte, 8)
	for {
		if _, err := a.file.Read(expirations); err != nil {
			return // closed
		}
		select {
		case a.rang <- struct{}{}:
		default: // one is queued already
		}
	}
}

// set replaces the earlier instant; one that has passed fires at once.
func (a *alarm) set(at time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(at)))} // 0 would disarm it
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

func (a *alarm) close() error {
	err := a.file.Close()
	<-a.done
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close timer: %w", err)
	}
	return nil
}
