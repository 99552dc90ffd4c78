package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// tell says where a document does not match, and what would: words of the schema and names,
// never a value (X10).
func tell(wrong *jsonschema.ValidationError) error {
	at := first(wrong)
	message, allowed := words(at.ErrorKind)
	err := fleet.Errorf(fleet.Invalid, "%s", message).At(pointer(at.InstanceLocation))
	if allowed != "" {
		err = err.WithHint(allowed)
	}
	return err
}

// first goes down to a cause without causes. Where several would do (anyOf) the place of the
// choice itself is told.
func first(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Contains, *kind.PropertyNames:
			return e
		}
		e = e.Causes[0]
	}
	return e
}

const maxField = 1024

func pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return cut(b.String())
}

// cut bounds a place: names may be as long as the document.
func cut(at string) string {
	if len(at) > maxField {
		at = strings.ToValidUTF8(at[:maxField], "") + "…"
	}
	return cmp.Or(at, "/")
}

const maxAllowed = 300

// words are what is wrong, and what is allowed.
func words(k jsonschema.ErrorKind) (message, allowed string) {
	switch k := k.(type) {
	case *kind.Type:
		return "this has the wrong type", "it must be " + strings.Join(k.Want, " or ")
	case *kind.Required:
		return "members are missing", "it must have " + bounded(strings.Join(k.Missing, ", "))
	case *kind.DependentRequired:
		return "members are missing", "with " + bounded(k.Prop) + " it must have " + bounded(strings.Join(k.Missing, ", "))
	case *kind.AdditionalProperties:
		return fmt.Sprintf("%d members are not allowed here", len(k.Properties)), "leave out " + bounded(strings.Join(k.Properties, ", "))
	case *kind.FalseSchema:
		return "nothing is allowed here", "leave it out"
	case *kind.Enum:
		return "this is none of the allowed values", "allowed are " + texts(k.Want)
	case *kind.Const:
		return "this is not the allowed value", "allowed is " + texts([]any{k.Want})
	case *kind.Pattern:
		return "this does not match its pattern", "it must match " + bounded(k.Want)
	case *kind.Format:
		return "this does not have its format", "it must be a " + bounded(k.Want)
	case *kind.AnyOf, *kind.OneOf:
		return "this matches none, or too many, of the alternatives", "see the module's schema at " + keyword(k)
	case *kind.PropertyNames:
		return "the name of a member is not allowed", ""
	case *kind.UniqueItems:
		return "items are the same", fmt.Sprintf("items %d and %d must differ", k.Duplicates[0], k.Duplicates[1])
	}
	if text := bounds(k); text != "" {
		return "this is out of bounds", text
	}
	return "this does not match " + keyword(k) + " of the schema", ""
}

// bounds are those of lengths and numbers.
func bounds(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("it must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("it must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("it must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("it must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("it must have at least %d members", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("it must have at most %d members", k.Want)
	case *kind.Minimum:
		return "it must be at least " + decimal(k.Want)
	case *kind.Maximum:
		return "it must be at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "it must be above " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "it must be below " + decimal(k.Want)
	case *kind.MultipleOf:
		return "it must be a multiple of " + decimal(k.Want)
	}
	return ""
}

// decimal writes a bound of the schema with its digits.
func decimal(r *big.Rat) string {
	digits, exact := r.FloatPrec()
	if !exact { // no JSON number is like this
		digits = maxDigits
	}
	return bounded(r.FloatString(digits))
}

func keyword(k jsonschema.ErrorKind) string { return bounded(strings.Join(k.KeywordPath(), "/")) }

func texts(values []any) string {
	text, err := json.Marshal(values)
	if err != nil {
		return "those of the schema"
	}
	return bounded(strings.Trim(string(text), "[]"))
}

func bounded(text string) string {
	if len(text) > maxAllowed {
		return strings.ToValidUTF8(text[:maxAllowed], "") + "…"
	}
	return text
}
