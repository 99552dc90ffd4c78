// Command witness is what instances run in the fault campaign: it leaves a file per run that
// says who runs what by which epoch, from when, and until when it was last alive, on a clock
// that all nodes of one machine share. Two runs at once are refused by a lock, which says so.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	exitFailed = 1
	beat       = 10 * time.Millisecond
	mode       = 0o666 // a node may run it under another uid than its peer
)

func main() {
	if err := run(os.Getenv("WITNESS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run(dir string) error {
	syscall.Umask(0)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	began, err := now()
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, mode)
	if err != nil {
		return err
	}
	alone := "alone"
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		alone = "double"
	}
	number, err := number(os.Getenv("HOLDFAST_CONFIG"))
	if err != nil {
		return err
	}
	head := fmt.Sprintf("%s %d %s %s %d %d ", alone, os.Getpid(), os.Getenv("HOLDFAST_NODE"), os.Getenv("HOLDFAST_EPOCH"), number, began)
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%020d-%d.run", began, os.Getpid())), os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(head + stamp(began)); err != nil {
		return err
	}
	return live(f, int64(len(head)), stop)
}

// live says until when the run was alive, until it is told to stop.
func live(f *os.File, at int64, stop <-chan os.Signal) error {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-stop:
			ended = true
		}
		t, err := now()
		if err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte(stamp(t)), at); err != nil {
			return err
		}
	}
	return nil
}

func stamp(t int64) string { return fmt.Sprintf("%020d\n", t) }

func now() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Nano(), err
}

// number is what tells configs apart.
func number(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var config struct {
		Number int `json:"number"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return 0, err
	}
	if config.Number == 0 {
		return 0, errors.New("the config has no number: " + strconv.Quote(string(text)))
	}
	return config.Number, nil
}
