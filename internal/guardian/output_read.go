package guardian

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// maxRead bounds the result of one ReadOutput.
const maxRead = 256 << 10

// Output is a piece of a command's output. Offsets count all bytes ever stored, over rotations, restarts and
// guardians, until Remove.
type Output struct {
	Data []byte
	// Offset is that of Data's first byte, Next the offset of the next read.
	Offset, Next int64
	// Skipped is how many bytes from the requested offset on were rotated away unread.
	Skipped int64
}

// ReadOutput gives up to 256 KiB of output from an offset; Data is empty at the end. An offset beyond the end
// means that the output was removed since: it is read from its start.
func (r *Runtime) ReadOutput(name fleet.InstanceName, offset int64) (Output, error) {
	dir, err := r.dir(name)
	if err != nil {
		return Output{}, err
	}
	for {
		out, err := readOutput(dir, max(offset, 0))
		if errors.Is(err, errRotated) {
			continue // the writer rotates a whole file faster at most a few times
		}
		if err != nil {
			return Output{}, fmt.Errorf("read output of %s: %w", name, err)
		}
		return out, nil
	}
}

var errRotated = errors.New("rotated away")

func readOutput(dir string, offset int64) (Output, error) {
	found, err := segments(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0 {
		return Output{Offset: offset, Next: offset}, nil
	}
	if err != nil {
		return Output{}, err
	}
	last := found[len(found)-1]
	if offset > last.base+last.size {
		offset = found[0].base
	}
	out := Output{Offset: offset, Next: offset}
	for _, s := range found {
		if offset >= s.base+s.size {
			continue
		}
		out.Offset = max(offset, s.base)
		out.Skipped = out.Offset - offset
		out.Data, err = s.read(out.Offset)
		out.Next = out.Offset + int64(len(out.Data))
		return out, err
	}
	return out, nil
}

func (s segment) read(offset int64) (data []byte, err error) {
	file, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errRotated
	}
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data = make([]byte, min(maxRead, s.base+s.size-offset))
	n, err := file.ReadAt(data, offset-s.base)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return data[:n], nil
}
