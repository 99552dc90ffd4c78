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

// mark is a place between two pieces of a container's output: its offset, the latest time of the pieces before
// it, how many of those have that time, and how many came after the first of these with an earlier time.
// Engines give all parts of a long line the time of its first part, whatever else the program printed in
// between; from API version 1.43 on they return everything after the first piece of a given time.
type mark struct {
	Offset int64     `json:"offset"`
	At     time.Time `json:"at"`
	Same   int       `json:"same"`
	Late   int       `json:"late,omitempty"`
}

// next is the mark after one more piece.
func (m mark) next(offset int64, at time.Time) mark {
	switch {
	case at.After(m.At):
		return mark{Offset: offset, At: at, Same: 1}
	case at.Equal(m.At):
		m.Same++
	default:
		m.Late++
	}
	m.Offset = offset
	return m
}

// tail is the output of one container from its first mark on, as far as it was read.
type tail struct {
	container string
	base      int64 // the offset of the container's first byte
	// marks start with the last one at or before the requested offset, which is stored in a file: everything
	// before it was sent for good.
	marks []mark
	// data is what was read from start on.
	data  []byte
	start int64
	// gap: output of unknown length was rotated away before data.
	gap bool
	// quiet: the last read found nothing more. last is the time of the last piece then, ended the start time of a
	// program that has ended and has no more output.
	quiet bool
	last  time.Time
	ended string
	// cuts counts how often in a row the engine could not read its output.
	cuts int
}

func newTail(container string, base int64) *tail {
	return &tail{container: container, base: base, marks: []mark{{Offset: base}}}
}

// savedTail is the file of a tail.
type savedTail struct {
	Container string `json:"container"`
	Base      int64  `json:"base"`
	mark
}

// tailOf is the tail of a container for an offset; d.reading is held.
func (d *Driver) tailOf(id fleet.ReplicaID, c inspected, from int64) (*tail, error) {
	t, has := d.tails[id]
	switch {
	case !has || t.container != c.ID:
		t = d.beginTail(id, c, from)
	case t.marks[0].Offset > from: // it is requested again
		t = newTail(c.ID, t.base)
	}
	d.tails[id] = t
	t.trim(from)
	if at := (savedTail{t.container, t.base, t.marks[0]}); at != d.kept[id] {
		if err := d.saveTail(id, at); err != nil {
			return nil, err
		}
		d.kept[id] = at
	}
	return t, nil
}

// beginTail starts with a container. One that an earlier agent read continues from the mark in its file. One
// that was never read starts at the offset where the one before it ended, whatever that printed after this one
// was created. If the file is damaged, it is read from the offset in its label.
func (d *Driver) beginTail(id fleet.ReplicaID, c inspected, from int64) *tail {
	saved, err := d.savedTail(id)
	made, _ := strconv.ParseInt(c.Config.Labels[labelOutput], 10, 64) // 0 without a label
	switch {
	case err == nil && saved.Container == c.ID:
		t := newTail(c.ID, max(saved.Base, made))
		if saved.Offset <= from {
			t.marks[0] = saved.mark
		}
		return t
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return newTail(c.ID, from)
	}
	return newTail(c.ID, made)
}

// trim drops what was sent.
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

// holds tells whether data has something of an offset.
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

// read reads whole pieces until there is enough from an offset on. The first are those up to the mark, which
// the engine returns again. If they are missing the engine has rotated them away, and perhaps more: the count
// continues from the requested offset.
func (t *tail) read(body io.Reader, from int64) error {
	last := t.marks[0]
	again := last
	t.marks, t.data, t.start = t.marks[:1], nil, from
	for len(t.data) < maxRead {
		at, text, err := frame(body)
		if errors.Is(err, errCut) {
			if t.gap = true; len(t.data) == 0 {
				return err
			}
			return nil
		}
		if errors.Is(err, io.EOF) {
			if last.Offset < from { // an earlier agent read more than exists
				t.gap, last.Offset = true, from
				t.marks = []mark{last}
			}
			return nil
		}
		if err != nil {
			return err
		}
		t.last = at
		switch {
		case again.Same > 0 && at.Equal(again.At):
			again.Same--
			continue
		case again.Late > 0 && at.Before(again.At):
			again.Late--
			continue
		case again.Same > 0:
			t.gap, again, last.Offset = true, mark{}, from
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

// saveTail replaces the file atomically. A file that a power cut damaged is ignored.
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
		return fleet.Errorf(fleet.Unavailable, "store the position of output: %w", err)
	}
	return nil
}

// forget drops the state of a replica's output.
func (d *Driver) forget(id fleet.ReplicaID) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	delete(d.tails, id)
	delete(d.kept, id)
	if err := os.Remove(d.tailFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fleet.Errorf(fleet.Unavailable, "remove the position of output: %w", err)
	}
	return nil
}
