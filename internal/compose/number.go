package compose

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errOverflow = errors.New("the number is beyond the range of a double")
	errVanishes = errors.New("the number is so small that a double would be 0")
)

// maxDigits is how many significant digits decide which double is nearest: the midpoint of two doubles has at
// most 767. One more digit stands for all that follow.
const maxDigits = 768

// Doubles end below 10^309, and the half of the smallest is above 10^-324.
const (
	maxPoint = 309
	minPoint = -323
)

// appendNumber appends the canonical form of a valid JSON number (see the package comment), or returns why it
// has none. The work is linear in the text, so a literal like 1e999999999 costs nothing.
func appendNumber(dst, raw []byte) ([]byte, error) {
	if !bytes.ContainsAny(raw, ".eE") {
		if string(raw) == "-0" {
			raw = raw[1:]
		}
		return append(dst, raw...), nil
	}
	f, err := nearest(raw)
	switch {
	case err != nil:
		return dst, err
	case f == 0:
		return append(dst, '0'), nil // also -0.0, as ECMAScript writes it
	}
	return jsontext.AppendFloat(dst, f, 64), nil
}

// shortLiteral is how long a literal may be that strconv reads as it stands: it ignores exponents beyond 10000,
// even where a long mantissa makes up for them.
const shortLiteral = 32

// nearest returns the double that is nearest to a valid JSON number; 0 is nearest only to 0.
func nearest(raw []byte) (float64, error) {
	if len(raw) > shortLiteral {
		return nearestOfLong(raw)
	}
	f, err := strconv.ParseFloat(string(raw), 64) // a string of this size stays on the stack
	switch {
	case err != nil:
		return 0, errOverflow
	case f == 0 && !isZero(raw):
		return 0, errVanishes
	}
	return f, nil
}

func nearestOfLong(raw []byte) (float64, error) {
	value := parseDecimal(raw)
	switch {
	case value.n == 0:
		return 0, nil
	case value.point > maxPoint:
		return 0, errOverflow
	case value.point < minPoint:
		return 0, errVanishes
	}
	var literal [maxDigits + 32]byte
	f, err := strconv.ParseFloat(string(value.appendTo(literal[:0])), 64)
	switch {
	case err != nil:
		return 0, errOverflow
	case f == 0:
		return 0, errVanishes
	}
	return f, nil
}

// isZero tells whether all digits before the exponent are 0.
func isZero(raw []byte) bool {
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		raw = raw[:e]
	}
	return !bytes.ContainsAny(raw, "123456789")
}

// decimal is the value 0.d1…dn × 10^point, without leading zeros.
type decimal struct {
	negative bool
	digits   [maxDigits + 1]byte
	n        int
	point    int64
}

// parseDecimal reads a valid JSON number. Digits beyond maxDigits become one 1 unless all of them are 0: it lies
// on the same side of each midpoint as they do.
func parseDecimal(raw []byte) (d decimal) {
	if raw[0] == '-' {
		d.negative, raw = true, raw[1:]
	}
	fraction := false
	for i, c := range raw {
		switch {
		case c == 'e' || c == 'E':
			d.point += parseExponent(raw[i+1:])
			return d
		case c == '.':
			fraction = true
			continue
		case c != '0' || d.n > 0:
			d.push(c)
		}
		if d.n > 0 && !fraction {
			d.point++
		} else if d.n == 0 && fraction {
			d.point--
		}
	}
	return d
}

func (d *decimal) push(c byte) {
	switch {
	case d.n < maxDigits:
		d.digits[d.n] = c
		d.n++
	case c != '0':
		d.digits[maxDigits] = '1'
		d.n = maxDigits + 1
	}
}

// parseExponent saturates far outside what any document's digits could bring back.
func parseExponent(s []byte) int64 {
	const far = 1 << 40
	sign := int64(1)
	switch s[0] {
	case '-':
		sign, s = -1, s[1:]
	case '+':
		s = s[1:]
	}
	var e int64
	for _, c := range s {
		e = min(e*10+int64(c-'0'), far)
	}
	return sign * e
}

func (d *decimal) appendTo(b []byte) []byte {
	if d.negative {
		b = append(b, '-')
	}
	b = append(b, '0', '.')
	b = append(b, d.digits[:d.n]...)
	b = append(b, 'e')
	return strconv.AppendInt(b, d.point, 10)
}
