package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	outputPrefix, outputSuffix = "output.", ".log"
	outputLink                 = "output.log" // to the current segment
	outputSegments             = 2
	defaultOutputLimit         = 1 << 20
	drainLimit                 = time.Second
)

// segment is one file of output. Its name has the logical offset of its first byte, so that readers need no
// second file that could disagree with it.
type segment struct {
	path string
	base int64
	size int64
}

// segments lists a directory's output, oldest first.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir) // sorted by name; bases have a fixed width
	if err != nil {
		return nil, fmt.Errorf("list output: %w", err)
	}
	var found []segment
	for _, e := range entries {
		digits, isSegment := strings.CutPrefix(e.Name(), outputPrefix)
		digits, ok := strings.CutSuffix(digits, outputSuffix)
		base, err := strconv.ParseInt(digits, 10, 64)
		if !isSegment || !ok || err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated away since
		}
		if err != nil {
			return nil, fmt.Errorf("inspect output: %w", err)
		}
		found = append(found, segment{path: filepath.Join(dir, e.Name()), base: base, size: info.Size()})
	}
	return found, nil
}

// output stores the newest output of a command and its children.
type output struct {
	dir   string
	limit int64 // of one segment
	base  int64
	size  int64
	file  *os.File

	in      *os.File // what the command writes to; stays open over restarts
	out     *os.File
	dropped int64 // bytes that could not be written
	err     error // the last error of a write
	done    chan struct{}
}

// openOutput continues the output in a directory, or starts at an offset in an empty one.
func openOutput(dir string, limit, from int64) (*output, error) {
	o := &output{dir: dir, limit: limit, base: max(from, 0), done: make(chan struct{})}
	if o.limit <= 0 {
		o.limit = defaultOutputLimit
	}
	found, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if n := len(found); n > 0 {
		o.base, o.size = found[n-1].base, found[n-1].size
	}
	if err := o.open(); err != nil {
		return nil, err
	}
	// Not os.Pipe: the command must get a blocking end, and only the guardian's is polled.
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make output pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, fmt.Errorf("make output pipe: %w", err)
	}
	o.out, o.in = os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
	go o.copy()
	return o, nil
}

// copy reads until the end: it drops output that it cannot store, since a full disk must not block the command.
func (o *output) copy() {
	defer close(o.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := o.out.Read(buf)
		if writeErr := o.write(buf[:n]); writeErr != nil {
			o.err = writeErr
		}
		if err != nil { // the end, or the drain's deadline
			return
		}
	}
}

func (o *output) write(data []byte) error {
	for len(data) > 0 {
		if o.size >= o.limit {
			if err := o.rotate(); err != nil {
				o.dropped += int64(len(data))
				return err
			}
		}
		n, err := o.file.Write(data[:min(int64(len(data)), o.limit-o.size)])
		o.size += int64(n)
		data = data[n:]
		if err != nil {
			o.dropped += int64(len(data))
			return fmt.Errorf("write output: %w", err)
		}
	}
	return nil
}

// rotate starts the next segment and removes the oldest ones.
func (o *output) rotate() error {
	last := *o
	o.base, o.size = o.base+o.size, 0
	if err := o.open(); err != nil {
		o.base, o.size, o.file = last.base, last.size, last.file
		return err
	}
	errs := []error{last.file.Close()}
	found, err := segments(o.dir)
	errs = append(errs, err)
	for i := 0; i < len(found)-outputSegments; i++ {
		errs = append(errs, os.Remove(found[i].path))
	}
	o.err = errors.Join(append(errs, o.err)...) // these lose no output
	return nil
}

// open opens the segment at base and sets the link for people to it.
func (o *output) open() error {
	name := fmt.Sprintf("%s%020d%s", outputPrefix, o.base, outputSuffix)
	file, err := os.OpenFile(filepath.Join(o.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // below the runtime's root
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	link := filepath.Join(o.dir, outputLink)
	if err := os.Remove(link + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("link output: %w", err), file.Close())
	}
	if err := errors.Join(os.Symlink(name, link+".new"), os.Rename(link+".new", link)); err != nil {
		return errors.Join(fmt.Errorf("link output: %w", err), file.Close())
	}
	o.file = file
	return nil
}

// close stores what is still in the pipe. Everything that wrote to it is dead; the deadline is for a copy that
// was passed to a process outside of the family.
func (o *output) close(now time.Time) error {
	errs := []error{o.in.Close(), o.out.SetReadDeadline(now.Add(drainLimit))}
	<-o.done
	errs = append(errs, o.out.Close(), o.file.Close(), o.err)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close output (%d bytes were lost): %w", o.dropped, err)
	}
	return nil
}
