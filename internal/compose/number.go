package compose

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errRange   = errors.New("the number is beyond the range of a double")
	errInexact = errors.New("a double cannot hold the number exactly")
)

// maxDigits is how many significant digits an integral double has at most.
const maxDigits = 309

// plainDigits is how long an integer may be to be surely below 2^53: it is its own
// canonical form.
const plainDigits = 15

// appendNumber appends the RFC 8785 form of a valid JSON number, or says why there is none
// (see the package comment). It looks at text only as far as a double can have digits, so a
// literal like 1e999999999 costs nothing.
func appendNumber(dst, raw []byte) ([]byte, error) {
	if isPlain(raw) || isShortest(raw) {
		return append(dst, raw...), nil
	}
	want, fits := parseDecimal(raw)
	switch {
	case want.n == 0:
		return append(dst, '0'), nil // also -0, as ECMAScript writes it
	case want.point > maxDigits || want.point < -323:
		return dst, errRange
	case !fits:
		return dst, errInexact
	}
	var literal [32]byte // as a string of this size it stays on the stack
	f, err := strconv.ParseFloat(string(want.appendTo(literal[:0])), 64)
	if err != nil || f == 0 {
		return dst, errRange
	}
	out := jsontext.AppendFloat(dst, f, 64)
	if got, ok := parseDecimal(out[len(dst):]); ok && got.equal(want) {
		return out, nil
	}
	if want.integral() && want.isExactly(f) {
		return out, nil
	}
	return dst, errInexact
}

func isPlain(raw []byte) bool {
	digits := bytes.TrimPrefix(raw, []byte{'-'})
	if len(digits) > plainDigits || len(digits) < len(raw) && digits[0] == '0' {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// isShortest spares most other numbers the arithmetic: they are written canonically.
func isShortest(raw []byte) bool {
	var text [32]byte
	if len(raw) >= len(text) {
		return false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && f != 0 && bytes.Equal(jsontext.AppendFloat(text[:0], f, 64), raw)
}

// decimal is the value 0.d1…dn × 10^point, without leading or trailing zeros.
type decimal struct {
	negative bool
	digits   [maxDigits]byte
	n        int
	point    int64
}

// parseDecimal reads a valid JSON number; fits is false when it has more significant
// digits than a decimal holds (point is right nonetheless).
func parseDecimal(raw []byte) (d decimal, fits bool) {
	fits = true
	if raw[0] == '-' {
		d.negative, raw = true, raw[1:]
	}
	zeros, fraction := 0, false // zeros seen since the last other digit
	for i, c := range raw {
		switch {
		case c == 'e' || c == 'E':
			d.point += parseExponent(raw[i+1:])
			return d, fits
		case c == '.':
			fraction = true
			continue
		case c != '0':
			fits = d.push(zeros, c) && fits
			zeros = 0
		case d.n > 0:
			zeros++
		}
		if d.n > 0 && !fraction {
			d.point++
		} else if d.n == 0 && fraction {
			d.point--
		}
	}
	return d, fits
}

// push appends zeros that turned out to be significant, and the digit after them.
func (d *decimal) push(zeros int, c byte) bool {
	if d.n+zeros+1 > maxDigits {
		return false
	}
	for range zeros {
		d.digits[d.n] = '0'
		d.n++
	}
	d.digits[d.n] = c
	d.n++
	return true
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

// appendTo appends a literal that strconv reads without surprises: it ignores exponents
// beyond 10000, even where a long mantissa makes up for them.
func (d *decimal) appendTo(b []byte) []byte {
	if d.negative {
		b = append(b, '-')
	}
	b = append(b, '0', '.')
	b = append(b, d.digits[:d.n]...)
	b = append(b, 'e')
	return strconv.AppendInt(b, d.point, 10)
}

func (d *decimal) integral() bool { return d.point >= int64(d.n) }

func (d *decimal) equal(o decimal) bool {
	return d.negative == o.negative && d.point == o.point &&
		bytes.Equal(d.digits[:d.n], o.digits[:o.n])
}

// isExactly compares with every digit of an integral double, not only the shortest ones.
func (d *decimal) isExactly(f float64) bool {
	var buf [maxDigits + 1]byte
	all, ok := parseDecimal(strconv.AppendFloat(buf[:0], f, 'f', 0, 64))
	return ok && d.equal(all)
}
