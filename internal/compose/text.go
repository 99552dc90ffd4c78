package compose

import (
	"bytes"
	"cmp"
	"unicode/utf16"
	"unicode/utf8"
)

// appendString appends the RFC 8785 form of a valid quoted JSON string. Only escapes can
// differ from it, so the rest is copied in one piece.
func appendString(dst, quoted []byte) []byte {
	for {
		i := bytes.IndexByte(quoted, '\\')
		if i < 0 {
			return append(dst, quoted...)
		}
		dst = append(dst, quoted[:i]...)
		r, n := unescape(quoted[i:])
		dst = appendRune(dst, r)
		quoted = quoted[i+n:]
	}
}

// unescape reads the escape at the start of s, and gives how long it is.
func unescape(s []byte) (rune, int) {
	switch c := s[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(s[2:])
		if utf16.IsSurrogate(r) {
			return utf16.DecodeRune(r, hex4(s[8:])), 12
		}
		return r, 6
	default:
		return rune(c), 2
	}
}

func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

func appendRune(dst []byte, r rune) []byte {
	const hexDigits = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return utf8.AppendRune(append(dst, '\\'), r)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r < ' ' {
		return append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xf])
	}
	return utf8.AppendRune(dst, r)
}

// compareNames orders two valid quoted names by their UTF-16 code units, as RFC 8785 asks.
// Zero means the same name, however it is escaped. It allocates nothing: objects may have a
// million members.
func compareNames(a, b []byte) int {
	a, b = a[1:len(a)-1], b[1:len(b)-1]
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return comparePlain(a, b)
	}
	for len(a) > 0 && len(b) > 0 {
		if a[0] == b[0] && a[0] < utf8.RuneSelf && a[0] != '\\' {
			a, b = a[1:], b[1:] // the usual case, without decoding
			continue
		}
		ra, na := nextRune(a)
		rb, nb := nextRune(b)
		if ra != rb {
			return cmp.Compare(utf16Order(ra), utf16Order(rb))
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

// comparePlain uses that UTF-8 orders like UTF-16 but for one case: U+E000 to U+FFFF (lead
// bytes ee and ef) come after the surrogates that stand for all that is longer (f0 and up).
func comparePlain(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		switch {
		case x == y:
		case x >= 0xf0 && (y == 0xee || y == 0xef):
			return -1
		case y >= 0xf0 && (x == 0xee || x == 0xef):
			return 1
		default:
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a), len(b))
}

func nextRune(s []byte) (rune, int) {
	if s[0] == '\\' {
		return unescape(s)
	}
	return utf8.DecodeRune(s)
}

// utf16Order moves U+E000 to U+FFFF behind everything that UTF-16 writes as surrogates.
func utf16Order(r rune) rune {
	if r >= 0xe000 && r <= 0xffff {
		return r + utf8.MaxRune
	}
	return r
}
