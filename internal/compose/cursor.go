package compose

import "bytes"

// cursor reads a canonical text: it is valid and has no space between tokens, which makes
// finding the end of a value cheap.
type cursor struct {
	text []byte
	at   int
}

func (c *cursor) peek() byte { return c.text[c.at] }

// member steps over what separates members and gives the next name, with the cursor at its
// value; nil at the end of the object, which it steps over.
func (c *cursor) member() []byte {
	separator := c.peek() // '{' before the first, ',' between, '}' at the end
	c.at++
	if separator == '}' {
		return nil
	}
	if c.peek() == '}' {
		c.at++
		return nil
	}
	start := c.at
	c.skipString()
	name := c.text[start:c.at]
	c.at++ // the colon
	return name
}

// value steps over one value and gives its text.
func (c *cursor) value() []byte {
	start := c.at
	switch c.peek() {
	case '"':
		c.skipString()
	case '{', '[':
		c.skipContainer()
	default:
		if n := bytes.IndexAny(c.text[c.at:], ",}]"); n >= 0 {
			c.at += n
		} else {
			c.at = len(c.text)
		}
	}
	return c.text[start:c.at]
}

func (c *cursor) skipContainer() {
	for depth := 0; ; {
		switch c.peek() {
		case '"':
			c.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		c.at++
		if depth == 0 {
			return
		}
	}
}

// skipString looks for a quote with an even number of backslashes before it.
func (c *cursor) skipString() {
	for c.at++; ; c.at++ {
		c.at += bytes.IndexByte(c.text[c.at:], '"')
		first := c.at
		for c.text[first-1] == '\\' {
			first--
		}
		if (c.at-first)%2 == 0 {
			c.at++
			return
		}
	}
}

// countValues counts one for the root, and for each container its commas and one more
// unless it is empty.
func countValues(canonical []byte) int {
	c := cursor{text: canonical}
	n := 1
	for c.at < len(canonical) {
		switch c.peek() {
		case '"':
			c.skipString()
			continue
		case ',':
			n++
		case '{', '[':
			if next := canonical[c.at+1]; next != '}' && next != ']' {
				n++
			}
		}
		c.at++
	}
	return n
}
