package schema

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// MaxLength bounds one schema.
	MaxLength = 64 << 10
	// maxSteps bounds how many (schema, value) pairs one check looks at. A schema of 100 bytes
	// can ask for 2 to the 1,000th.
	maxSteps = 1_000_000
	// location is what the schema calls itself unless it says otherwise.
	location = "schema:module"
	steps    = "schema:steps"
)

// Check refuses a schema that is malformed or refers to another document. "" takes anything.
// Register uses it.
func Check(text string) error {
	_, err := compile(text)
	return err
}

// compiled is a schema that is ready. One check at a time uses it: it counts its steps.
type compiled struct {
	mu     sync.Mutex
	schema *jsonschema.Schema // nil takes anything
	left   *countdown
}

func compile(text string) (*compiled, error) {
	if text == "" {
		return &compiled{}, nil
	}
	if len(text) > MaxLength {
		return nil, malformed("it is longer than %d bytes", MaxLength)
	}
	if err := scan([]byte(text)); err != nil {
		return nil, malformed("%w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, malformed("it is no JSON")
	}
	left := &countdown{}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nothing{})
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: steps, Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return left, nil },
	})
	c.AssertVocabs()
	if err := c.AddResource(location, doc); err != nil {
		return nil, malformed("%s", why(err))
	}
	s, err := c.Compile(location)
	if err != nil {
		return nil, malformed("%s", why(err))
	}
	return &compiled{schema: s, left: left}, nil
}

func malformed(format string, args ...any) error {
	return fleet.Errorf(fleet.Invalid, "the schema cannot be used: "+format, args...).
		WithHint("a JSON schema (2020-12) of at most 64 KiB that refers to itself only")
}

// nothing loads nothing: a schema that refers elsewhere would have a region fetch what a
// provider names.
type nothing struct{}

var errElsewhere = errors.New("it refers to another document")

func (nothing) Load(string) (any, error) { return nil, errElsewhere }

const maxWhy = 300

// why is what is wrong with a schema; it is its provider's own text.
func why(err error) string {
	if errors.Is(err, errElsewhere) {
		return errElsewhere.Error()
	}
	var invalid *jsonschema.SchemaValidationError
	text := err.Error()
	if errors.As(err, &invalid) {
		text = invalid.Err.Error()
	}
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, location, "")), " ")
	if len(text) > maxWhy {
		text = strings.ToValidUTF8(text[:maxWhy], "") + "…"
	}
	return text
}

// countdown is told of each step of a check and ends one that takes too many.
type countdown struct{ left int }

var errTooLong = errors.New("too many steps")

// Validate counts.
func (c *countdown) Validate(*jsonschema.ValidatorContext, any) {
	if c.left--; c.left < 0 {
		panic(errTooLong) //nolint:forbidigo // the one way out of a check under way; check recovers it
	}
}

// check holds a document against the schema.
func (c *compiled) check(doc []byte) (err error) {
	if c.schema == nil {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return errNoJSON
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left.left = maxSteps
	defer func() {
		if failure := recover(); failure != nil {
			err = fmt.Errorf("check against the schema: %w", errTooLong)
			if failure != any(errTooLong) {
				err = fmt.Errorf("check against the schema: %v", failure)
			}
		}
	}()
	return c.schema.Validate(value)
}

var errNoJSON = errors.New("no JSON")
