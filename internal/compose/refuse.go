package compose

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// maxField bounds the pointer in an error: names may be as long as the document.
const maxField = 1024

func refuseAt(at jsontext.Pointer, format string, args ...any) *fleet.Error {
	return fleet.Errorf(fleet.Invalid, format, args...).At(cut(string(at)))
}

func refuseSize(size, limit int64) *fleet.Error {
	return fleet.Errorf(fleet.TooLarge, "the JSON is %d bytes long, allowed are %d", size, limit).
		WithHint("upload large content as an artifact")
}

func refuseValues(at jsontext.Pointer, limit int) *fleet.Error {
	return refuseAt(at, "more than %d values", limit).
		WithHint("upload large content as an artifact")
}

// refused is a refusal with the place of what is wrong.
type refused struct {
	error
	at int64
}

// Unwrap gives the error without its place.
func (r *refused) Unwrap() error { return r.error }

// OffsetOf gives the place in the source of what a refusal of one document is about, in bytes.
func OffsetOf(err error) (int64, bool) {
	var r *refused
	if errors.As(err, &r) {
		return r.at, true
	}
	return 0, false
}

// refuseText turns an error of the tokenizer into one of ours. The tokenizer quotes the
// text that it did not expect, so its message and its error are left behind.
func refuseText(err error, src []byte, offset int64) *fleet.Error {
	if e := refuseEncoding(src); e != nil {
		return e
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		if errors.Is(err, io.EOF) {
			return refuseAt("", "malformed JSON: there is no value").WithHint("send one JSON document")
		}
		return refuseAt("", "malformed JSON after byte %d", offset)
	}
	at := syntax.JSONPointer
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuseAt(at, "malformed JSON: it ends too early, at byte %d", offset)
	case comment(src, offset):
		return refuseComment(at, offset)
	case loneSurrogate(src, offset):
		return refuseAt(at, "a string holds a lone surrogate at byte %d", offset).
			WithHint("\\u escapes from d800 to dfff come in pairs, high before low")
	case invalidUTF8(src, offset):
		return refuseAt(at, "the JSON is not UTF-8 at byte %d", offset).WithHint("encode the document as UTF-8")
	}
	return refuseAt(at, "malformed JSON at byte %d", offset).WithHint(slipAt(src, offset))
}

// slipAt says what is often written where JSON is malformed, without a word of the text.
func slipAt(src []byte, offset int64) string {
	offset = min(max(offset, 0), int64(len(src)))
	const space = " \t\r\n"
	before, rest := bytes.TrimRight(src[:offset], space), bytes.TrimLeft(src[offset:], space)
	next, comma := bytes.CutPrefix(rest, []byte(","))
	if !comma {
		next, comma = rest, bytes.HasSuffix(before, []byte(","))
	}
	next = bytes.TrimLeft(next, space)
	switch {
	case comma && (bytes.HasPrefix(next, []byte("}")) || bytes.HasPrefix(next, []byte("]"))):
		return "leave out the comma after the last member"
	case bytes.HasPrefix(rest, []byte("'")):
		return "write names and texts in double quotes"
	case bytes.HasPrefix(rest, []byte("NaN")), bytes.HasPrefix(rest, []byte("Infinity")), bytes.HasPrefix(rest, []byte("-Infinity")):
		return "JSON has no such number: use null, or a text"
	case len(rest) > 0 && bytes.HasSuffix(before, []byte("{")) && unicode.IsLetter(rune(rest[0])):
		return "write names and texts in double quotes"
	case len(rest) > 0 && bytes.HasSuffix(before, []byte("0")) && rest[0] >= '0' && rest[0] <= '9':
		return "a number has no leading zero: leave it out, or quote what is text"
	}
	return "look for a comma, quote or bracket that is missing or too many there, or before it"
}

// refuseEncoding names what editors put before a text, or write it in.
func refuseEncoding(src []byte) *fleet.Error {
	switch {
	case bytes.HasPrefix(src, []byte("\xef\xbb\xbf")):
		return refuseAt("", "the JSON begins with a byte order mark (BOM)").WithHint(ByteForByte)
	case bytes.HasPrefix(src, []byte("\xff\xfe")), bytes.HasPrefix(src, []byte("\xfe\xff")), utf16Text(src):
		return refuseAt("", "the text is UTF-16, and JSON is UTF-8").WithHint(ByteForByte)
	}
	return nil
}

// utf16Text tells whether an ASCII character is followed, or preceded, by a zero byte, as no JSON begins.
func utf16Text(src []byte) bool {
	return len(src) > 1 && (src[0] == 0) != (src[1] == 0)
}

// comment tells whether one begins at the offset.
func comment(src []byte, offset int64) bool {
	if offset >= int64(len(src)) {
		return false
	}
	rest := src[offset:]
	return rest[0] == '#' || bytes.HasPrefix(rest, []byte("//")) || bytes.HasPrefix(rest, []byte("/*"))
}

func refuseComment(at jsontext.Pointer, offset int64) *fleet.Error {
	return refuseAt(at, "malformed JSON: a comment at byte %d", offset).WithHint(ByteForByte)
}

// ByteForByte is the hint where a change of the text could break the program that reads it.
const ByteForByte = "to deliver the file byte for byte, declare it as an artifact (artifactFile in a manifest)"

func invalidUTF8(src []byte, offset int64) bool {
	if offset >= int64(len(src)) {
		return false
	}
	r, n := utf8.DecodeRune(src[offset:])
	return r == utf8.RuneError && n == 1
}

// loneSurrogate only asks whether an escape of a surrogate stands at the offset: had it been
// one of a pair, the tokenizer would not have stopped there.
func loneSurrogate(src []byte, offset int64) bool {
	if offset+6 > int64(len(src)) || src[offset] != '\\' || src[offset+1] != 'u' {
		return false
	}
	var unit [2]byte
	if _, err := hex.Decode(unit[:], src[offset+2:offset+6]); err != nil {
		return false
	}
	return utf16.IsSurrogate(rune(unit[0])<<8 | rune(unit[1]))
}

// within puts the name of a layer before the pointer of an error.
func within(name string, err error) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err
	}
	return e.At(name + e.Field)
}

// cut shortens at a rune, and says so by an ellipsis.
func cut(s string) string {
	if len(s) <= maxField {
		return s
	}
	n := maxField
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
