package httpapi

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// literal is api.Redacted as JSON.
const literal = `"` + api.Redacted + `"`

// span is a piece of a body.
type span struct{ from, to int64 }

// findSecrets gives the places of marked values, in order. It holds one token at a time.
func findSecrets(body io.Reader, pointers []string) ([]span, error) {
	f := &finder{tokens: jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true))}
	if err := f.value(compose.MarksOf(pointers)); err != nil {
		return nil, fmt.Errorf("look for secrets: %w", err)
	}
	return f.found, nil
}

type finder struct {
	tokens *jsontext.Decoder
	found  []span
}

// value walks one value; m is nil where nothing is marked.
func (f *finder) value(m *compose.Marks) error {
	kind := f.tokens.PeekKind()
	switch {
	case m == nil:
		return f.tokens.SkipValue()
	case m.Secret:
		return f.hide(kind)
	case kind == jsontext.KindBeginObject:
		return f.members(m)
	case kind == jsontext.KindBeginArray:
		return f.elements(m)
	}
	return f.tokens.SkipValue()
}

// hide notes where a value lies. Only a scalar is held whole; the rest is walked over.
func (f *finder) hide(kind jsontext.Kind) error {
	if kind != jsontext.KindBeginObject && kind != jsontext.KindBeginArray {
		v, err := f.tokens.ReadValue()
		end := f.tokens.InputOffset()
		f.found = append(f.found, span{end - int64(len(v)), end})
		return err
	}
	depth := f.tokens.StackDepth()
	if _, err := f.tokens.ReadToken(); err != nil {
		return err
	}
	from := f.tokens.InputOffset() - 1
	for f.tokens.StackDepth() > depth {
		if _, err := f.tokens.ReadToken(); err != nil {
			return err
		}
	}
	f.found = append(f.found, span{from, f.tokens.InputOffset()})
	return nil
}

func (f *finder) members(m *compose.Marks) error {
	if _, err := f.tokens.ReadToken(); err != nil {
		return err
	}
	for f.tokens.PeekKind() != jsontext.KindEndObject {
		name, err := f.tokens.ReadToken()
		if err != nil {
			return err
		}
		if err := f.value(m.Member(name.String())); err != nil {
			return err
		}
	}
	_, err := f.tokens.ReadToken()
	return err
}

func (f *finder) elements(m *compose.Marks) error {
	if _, err := f.tokens.ReadToken(); err != nil {
		return err
	}
	for i := 0; f.tokens.PeekKind() != jsontext.KindEndArray; i++ {
		if err := f.value(m.Member(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	_, err := f.tokens.ReadToken()
	return err
}

// redacted reads a body with the literal in the place of each secret; all else is as it was.
type redacted struct {
	body   io.ReadSeeker
	hidden []span // in order, of the body
	size   int64  // of what is read
	at     int64
}

func newRedacted(body io.ReadSeeker, size int64, hidden []span) *redacted {
	for _, h := range hidden {
		size += int64(len(literal)) - (h.to - h.from)
	}
	return &redacted{body: body, hidden: hidden, size: size}
}

// Read gives what is left of the piece at the offset: one of the body, or a literal.
func (r *redacted) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	var here, from int64 // where a piece begins in what is read, and in the body
	for _, h := range r.hidden {
		if end := here + h.from - from; r.at < end {
			return r.copy(p, from+r.at-here, end)
		} else if here = end; r.at < here+int64(len(literal)) {
			n := copy(p, literal[r.at-here:])
			r.at += int64(n)
			return n, nil
		}
		here, from = here+int64(len(literal)), h.to
	}
	return r.copy(p, from+r.at-here, r.size)
}

// copy reads at an offset of the body, up to an end in what is read.
func (r *redacted) copy(p []byte, offset, end int64) (int, error) {
	if _, err := r.body.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := r.body.Read(p[:min(int64(len(p)), end-r.at)])
	r.at += int64(n)
	return n, err
}

// Seek moves the offset.
func (r *redacted) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of a body")
	}
	r.at = offset
	return offset, nil
}

// tag tells one redacted form of a body from the others: its marks may change.
func (r *redacted) tag(h fleet.Hash) string {
	return string(h) + "-redacted-" + string(compose.HashOf(fmt.Append(nil, r.hidden)))[:16]
}
