package docker

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// mark is a place between two pieces of a container's output: its offset, the latest time of the pieces
// before it, and how many of those have that time (the parts of one long line do).
type mark struct {
	Offset int64     `json:"offset"`
	At     time.Time `json:"at"`
	Same   int       `json:"same"`
}

// next is the mark behind one more piece. What the program writes to its two outputs at once may be a
// little out of order.
func (m mark) next(offset int64, at time.Time) mark {
	switch {
	case at.After(m.At):
		return mark{offset, at, 1}
	case at.Equal(m.At):
		return mark{offset, at, m.Same + 1}
	}
	return mark{offset, m.At, m.Same}
}

// tail is the output of one container from its first mark on, as far as it was read.
type tail struct {
	container string
	// marks begin with the last one that is not behind what is asked for, which is kept in a file: what
	// lies before it was taken in for good.
	marks []mark
	kept  mark
	// data is what was read from start on.
	data  []byte
	start int64
	// gap says that output was rotated away before data; nobody knows how much.
	gap bool
}

// savedTail is the file of a tail.
type savedTail struct {
	Container string `json:"container"`
	mark
}

// tailOf is the tail of a container for an offset; d.reading is held. One of an earlier agent goes on
// from the mark in its file, any other from the container's first byte.
func (d *Driver) tailOf(id fleet.ReplicaID, c inspected, from int64) (*tail, error) {
	t, has := d.tails[id]
	if !has || t.container != c.ID || t.marks[0].Offset > from {
		first, _ := strconv.ParseInt(c.Config.Labels[labelOutput], 10, 64) // 0 as for one that has no label
		t = &tail{container: c.ID, marks: []mark{{Offset: first}}}
		if saved, err := d.savedTail(id); err == nil && saved.Container == c.ID && saved.Offset <= from {
			t.marks[0], t.kept = saved.mark, saved.mark
		}
		d.tails[id] = t
	}
	t.trim(from)
	if t.marks[0] != t.kept {
		if err := d.saveTail(id, savedTail{t.container, t.marks[0]}); err != nil {
			return nil, err
		}
		t.kept = t.marks[0]
	}
	return t, nil
}

// trim forgets what was taken in.
func (t *tail) trim(from int64) {
	at := 0
	for at+1 < len(t.marks) && t.marks[at+1].Offset <= from {
		at++
	}
	t.marks = slices.Clone(t.marks[at:])
	t.gap = t.gap && at == 0
	if taken := from - t.start; taken >= int64(len(t.data)) || taken < 0 {
		t.data = nil
	}
}

// holds says that there is something of an offset.
func (t *tail) holds(from int64) bool { return t.data != nil && from >= t.start }

func (t *tail) output(from int64) guardian.Output {
	out := guardian.Output{Offset: from, Next: from}
	if t.holds(from) {
		out.Data = t.data[from-t.start:]
		out.Next += int64(len(out.Data))
	}
	if t.gap && len(out.Data) > 0 {
		out.Skipped = 1 // at least
	}
	return out
}

// read takes whole pieces until there is enough from an offset on. The first are those up to the mark,
// which the engine gives again. Where they are missing it has rotated them away, and perhaps more: the
// count goes on from what was asked for.
func (t *tail) read(body io.Reader, from int64) error {
	last, again := t.marks[0], t.marks[0].Same
	t.marks, t.data, t.start = t.marks[:1], nil, from
	for len(t.data) < maxRead {
		at, text, err := frame(body)
		if errors.Is(err, io.EOF) {
			if last.Offset < from { // an earlier agent read more than there is
				t.gap, last.Offset = true, from
				t.marks = []mark{last}
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case again > 0 && at.Equal(last.At):
			again--
			continue
		case again > 0:
			t.gap, again, last.Offset = true, 0, from
		}
		end := last.Offset + int64(len(text))
		t.data = append(t.data, text[min(max(from-last.Offset, 0), int64(len(text))):]...)
		last = last.next(end, at)
		if end <= from {
			t.marks = t.marks[:0]
		}
		t.marks = append(t.marks, last)
	}
	return nil
}

func (d *Driver) tailFile(id fleet.ReplicaID) string { return filepath.Join(d.dir, string(id)+".json") }

func (d *Driver) savedTail(id fleet.ReplicaID) (s savedTail, err error) {
	raw, err := os.ReadFile(d.tailFile(id))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// saveTail replaces the file at once. One that a power cut garbles is none.
func (d *Driver) saveTail(id fleet.ReplicaID, s savedTail) error {
	raw, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(d.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(d.tailFile(id)+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(d.tailFile(id)+".new", d.tailFile(id))
	}
	if err != nil {
		return fleet.Errorf(fleet.Unavailable, "keep how far output was read: %w", err)
	}
	return nil
}

// forget drops what is known of a replica's output.
func (d *Driver) forget(id fleet.ReplicaID) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	delete(d.tails, id)
	if err := os.Remove(d.tailFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fleet.Errorf(fleet.Unavailable, "forget how far output was read: %w", err)
	}
	return nil
}
