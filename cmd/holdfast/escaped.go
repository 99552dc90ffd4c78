package main

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// escaped writes program output to a terminal with control characters spelled out, so that no program can control
// the reader's terminal. It buffers an incomplete character until the rest arrives.
type escaped struct {
	to   io.Writer
	rest []byte
}

// programs is where program output goes: unchanged to a pipe, or to a terminal if requested.
func (c *cli) programs(raw bool) io.Writer { //nolint:revive // the flag as it was given
	if raw || c.width(c.stdout) == 0 {
		return c.stdout
	}
	return &escaped{to: c.stdout}
}

func (e *escaped) Write(p []byte) (int, error) {
	text := append(e.rest, p...)
	e.rest = nil
	var out bytes.Buffer
	for len(text) > 0 {
		if !utf8.FullRune(text) || len(text) == 1 && text[0] == '\r' {
			e.rest = bytes.Clone(text)
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || r == '\r' && text[1] == '\n' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			out.Write(text[:size])
		case size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		text = text[size:]
	}
	if _, err := e.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// heading starts the output of another program.
func heading(to io.Writer, format string, args ...any) {
	e, ok := to.(*escaped)
	if ok {
		for _, b := range e.rest { // its rest never comes
			fmt.Fprintf(e.to, `\x%02x`, b)
		}
		e.rest, to = nil, e.to
	}
	fmt.Fprintf(to, format, args...)
}
