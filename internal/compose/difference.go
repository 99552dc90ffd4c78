package compose

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Op is what a change does, in the words of RFC 6902.
type Op string

// The ops of a difference.
const (
	OpAdd     Op = "add"
	OpRemove  Op = "remove"
	OpReplace Op = "replace"
)

// Change is one step from a document to another; the steps of a difference are made in
// order. A value over the limit is left out and has its size instead.
type Change struct {
	Op                 Op
	Path               string // JSON pointer
	From, To           []byte
	FromBytes, ToBytes int // of a value that was left out
}

// Difference is the changes that were kept, and how many more there are.
type Difference struct {
	Changes []Change
	More    int
}

// Comparison says how to compare; limits that are zero do not hold.
type Comparison struct {
	MaxChanges int
	MaxBytes   int // of paths and values together
	MaxValue   int // of one value
	// Hidden marks what is compared as a whole, and shown as Literal.
	Hidden  *Marks
	Literal []byte
}

const (
	// shortArray is the longest array that is compared by elements; others change as a whole.
	shortArray = 32
	// changeRoom is what a change takes besides its path and values.
	changeRoom = 48
)

// Compare gives what leads from one canonical text to another. There is no change exactly if
// the texts are equal, and the same texts give the same changes in the same order.
func (c Comparison) Compare(from, to []byte) Difference {
	d := &differ{Comparison: c}
	d.value(c.Hidden, from, to)
	return d.out
}

type differ struct {
	Comparison
	out  Difference
	path []byte // of where the walk is
	size int
}

func (d *differ) value(m *Marks, from, to []byte) {
	switch {
	case bytes.Equal(from, to):
	case m != nil && m.Secret:
		d.add(OpReplace, m, from, to)
	case from[0] == '{' && to[0] == '{':
		d.object(m, from, to)
	case from[0] == '[' && to[0] == '[':
		d.array(m, from, to)
	default:
		d.add(OpReplace, m, from, to)
	}
}

// object reads the sorted members of both side by side.
func (d *differ) object(m *Marks, from, to []byte) {
	f, t := &cursor{text: from}, &cursor{text: to}
	a, b := f.member(), t.member()
	for a != nil || b != nil {
		switch order := compareMembers(a, b); {
		case order < 0:
			old := f.value()
			d.below(m, plainName(a), func(m *Marks) { d.add(OpRemove, m, old, nil) })
			a = f.member()
		case order > 0:
			fresh := t.value()
			d.below(m, plainName(b), func(m *Marks) { d.add(OpAdd, m, nil, fresh) })
			b = t.member()
		default:
			old, fresh := f.value(), t.value()
			if !bytes.Equal(old, fresh) {
				d.below(m, plainName(a), func(m *Marks) { d.value(m, old, fresh) })
			}
			a, b = f.member(), t.member()
		}
	}
}

// array compares by place. Elements that are gone are removed from the last one on, so that
// the places of the others stay.
func (d *differ) array(m *Marks, from, to []byte) {
	a, shortA := elementsOf(from)
	b, shortB := elementsOf(to)
	if !shortA || !shortB {
		d.add(OpReplace, m, from, to)
		return
	}
	for i := range min(len(a), len(b)) {
		d.below(m, strconv.Itoa(i), func(m *Marks) { d.value(m, a[i], b[i]) })
	}
	for i := len(a) - 1; i >= len(b); i-- {
		d.below(m, strconv.Itoa(i), func(m *Marks) { d.add(OpRemove, m, a[i], nil) })
	}
	for i := len(a); i < len(b); i++ {
		d.below(m, strconv.Itoa(i), func(m *Marks) { d.add(OpAdd, m, nil, b[i]) })
	}
}

// elementsOf gives the elements of an array unless there are too many.
func elementsOf(text []byte) ([][]byte, bool) {
	var all [][]byte
	c := &cursor{text: text, at: 1}
	for c.peek() != ']' {
		if len(all) == shortArray {
			return nil, false
		}
		all = append(all, c.value())
		if c.peek() == ',' {
			c.at++
		}
	}
	return all, true
}

func (d *differ) below(m *Marks, name string, do func(*Marks)) {
	length := len(d.path)
	d.path = append(append(d.path, '/'), escapePointer.Replace(name)...)
	do(m.Member(name))
	d.path = d.path[:length]
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func plainName(quoted []byte) string {
	name, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return string(quoted) // no canonical text has such a name
	}
	return string(name)
}

// add keeps a change while there is room; from the first one that has none on they are
// counted, so that what is kept is always the beginning.
func (d *differ) add(op Op, m *Marks, from, to []byte) {
	if d.out.More > 0 || d.MaxChanges > 0 && len(d.out.Changes) >= d.MaxChanges {
		d.out.More++
		return
	}
	c := Change{Op: op, Path: string(d.path)}
	c.From, c.FromBytes = d.shown(m, from)
	c.To, c.ToBytes = d.shown(m, to)
	size := len(c.Path) + len(c.From) + len(c.To) + changeRoom
	if d.MaxBytes > 0 && d.size+size > d.MaxBytes {
		d.out.More++
		return
	}
	d.size += size
	d.out.Changes = append(d.out.Changes, c)
}

// shown is a value without what is hidden in it. The size of one that is left out is that
// of its shown form, for that of a secret is the secret's.
func (d *differ) shown(m *Marks, value []byte) ([]byte, int) {
	if value == nil {
		return nil, 0
	}
	if m != nil {
		value = d.hide(nil, m, &cursor{text: value})
	}
	if d.MaxValue > 0 && len(value) > d.MaxValue {
		return nil, len(value)
	}
	return bytes.Clone(value), 0 // of its own: the documents go
}

// hide copies one value with the literal in the place of each secret.
func (d *differ) hide(dst []byte, m *Marks, c *cursor) []byte {
	switch {
	case m == nil:
		return append(dst, c.value()...)
	case m.Secret:
		c.value()
		return append(dst, d.Literal...)
	case c.peek() == '{':
		dst = append(dst, '{')
		for name := c.member(); name != nil; name = c.member() {
			dst = d.hide(appendName(dst, name), m.Member(plainName(name)), c)
		}
		return append(dst, '}')
	case c.peek() == '[':
		dst = append(dst, '[')
		c.at++
		for i := 0; c.peek() != ']'; i++ {
			if c.peek() == ',' {
				c.at++
				dst = append(dst, ',')
			}
			dst = d.hide(dst, m.Member(strconv.Itoa(i)), c)
		}
		c.at++
		return append(dst, ']')
	}
	return append(dst, c.value()...)
}
