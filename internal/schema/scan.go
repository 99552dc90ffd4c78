package schema

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// maxDigits bounds the digits and the exponent of a number: to compare 1e999999 takes
// megabytes, and a document may hold 100,000 of them.
const maxDigits = 400

// maxDepth bounds nesting, of configs too: to compile a schema takes the square of its depth.
const maxDepth = 200

// scan refuses what is not one JSON document, says a name twice, is too deep, or has a number
// that no program holds.
func scan(doc []byte) error {
	tokens := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for depth, read := 0, false; ; {
		token, err := tokens.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && read && depth == 0:
			return nil
		case err != nil || read && depth == 0:
			return fleet.Errorf(fleet.Invalid, "this is not one JSON document, or says a name twice").At("/")
		}
		read = true
		switch token.Kind() { //nolint:exhaustive // what opens, closes, or is a number
		case '{', '[':
			if depth++; depth > maxDepth {
				return fleet.Errorf(fleet.Invalid, "this is nested deeper than %d", maxDepth).At(cut(string(tokens.StackPointer())))
			}
		case '}', ']':
			depth--
		case '0':
			if tooLong(token.String()) {
				return fleet.Errorf(fleet.Invalid, "this number is too long").At(cut(string(tokens.StackPointer()))).
					WithHint("at most " + strconv.Itoa(maxDigits) + " digits, and no larger exponent")
			}
		}
	}
}

func tooLong(number string) bool {
	if len(number) > maxDigits {
		return true
	}
	at := strings.IndexAny(number, "eE")
	if at < 0 {
		return false
	}
	exponent, err := strconv.Atoi(number[at+1:])
	return err != nil || exponent > maxDigits || exponent < -maxDigits
}
