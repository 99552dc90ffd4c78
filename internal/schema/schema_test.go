package schema

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// C78: what a provider may send as a schema.
func TestCheck(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"not":`, 7_000) + "true" + strings.Repeat("}", 7_000)
	for name, row := range map[string]struct{ schema, wrong string }{
		"none":                       {"", ""},
		"true":                       {"true", ""},
		"an object":                  {`{"type":"object","required":["a"]}`, ""},
		"itself":                     {`{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#"}}}`, ""},
		"an older draft":             {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"string"}`, ""},
		"no JSON":                    {`{`, "JSON"},
		"two documents":              {`{} {}`, "JSON"},
		"no schema":                  {`42`, "boolean"},
		"a type that there is not":   {`{"type":"strin"}`, "type"},
		"a pattern that is none":     {`{"pattern":"("}`, "regex"},
		"a name twice":               {`{"type":"string","type":"number"}`, "twice"},
		"another document":           {`{"$ref":"https://example.com/x.json"}`, "another document"},
		"a file":                     {`{"$ref":"file:///etc/passwd"}`, "another document"},
		"another document by its id": {`{"$id":"https://example.com/a/","$ref":"b.json"}`, "another document"},
		"a dialect to be loaded":     {`{"$schema":"https://example.com/dialect"}`, "another document"},
		"a place that is not there":  {`{"$ref":"#/$defs/nothing"}`, "nothing"},
		"a number without end":       {`{"minimum":1e999999}`, "too long"},
		"too long":                   {`{"description":"` + strings.Repeat("x", MaxLength) + `"}`, "longer than"},
		"very deep":                  {deep, "deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Check(row.schema)
			if row.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
			require.Contains(t, err.Error(), row.wrong)
			require.Less(t, len(err.Error()), 1500)
			require.NotContains(t, err.Error(), location)
		})
	}
}

var cutDeep = strings.Repeat("/0", maxDepth)

// X10, X19: a refusal says where and what is allowed, and shows no value.
func TestValid(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-value"
	c := NewChecker()
	for name, row := range map[string]struct{ schema, doc, field, hint string }{
		"all is well":          {`{"type":"object"}`, `{"a":1}`, "", ""},
		"no schema":            {``, `[1,2,{"a":null}]`, "", ""},
		"no JSON":              {``, secret, "/", ""},
		"two documents":        {``, `1 2`, "/", ""},
		"a name twice":         {``, `{"a":1,"a":2}`, "/", ""},
		"a type":               {`{"properties":{"a":{"items":{"type":["integer","null"]}}}}`, `{"a":[1,"` + secret + `"]}`, "/a/1", "null or integer"},
		"a member":             {`{"required":["size"]}`, `{}`, "/", "size"},
		"a member too many":    {`{"properties":{"a":true},"additionalProperties":false}`, `{"a":1,"b":"` + secret + `"}`, "/", "leave out b"},
		"an enum":              {`{"properties":{"a":{"enum":["red","green"]}}}`, `{"a":"` + secret + `"}`, "/a", `"red","green"`},
		"a const":              {`{"const":7}`, `"` + secret + `"`, "/", "7"},
		"a pattern":            {`{"pattern":"^[a-z]+$"}`, `"` + secret + `"`, "/", "^[a-z]+$"},
		"a length":             {`{"properties":{"a/b~c":{"maxLength":3}}}`, `{"a/b~c":"` + secret + `"}`, "/a~1b~0c", "at most 3 characters"},
		"a number":             {`{"minimum":10}`, `9.5`, "/", "at least 10"},
		"an alternative":       {`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `42`, "/", "anyOf"},
		"a reference":          {`{"$defs":{"n":{"exclusiveMaximum":4}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":4}`, "/a", "below 4"},
		"a number without end": {`{"type":"integer"}`, `[1,1e999999]`, "/1", "400"},
		"deep":                 {`{}`, strings.Repeat("[", 100_000), cutDeep, ""},
		"digits without end":   {`{"type":"integer"}`, strings.Repeat("9", 401), "/", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.Valid(t.Context(), row.schema, []byte(row.doc))
			if row.field == "" {
				require.NoError(t, err)
				return
			}
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, fleet.Invalid, e.Kind, "%v", err)
			require.Equal(t, row.field, e.Field)
			require.Contains(t, e.Hint, row.hint)
			require.NotContains(t, fleet.Detail(err), secret)
		})
	}
}

// N106: numbers are compared, and bounds shown, with all their digits: no double is in between.
func TestNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	c := NewChecker()
	for _, row := range []struct{ schema, doc, hint string }{
		{`{"type":"integer"}`, `12345678901234567890123`, ""},
		{`{"type":"integer"}`, `1e3`, ""},
		{`{"type":"integer"}`, `1.0`, ""},
		{`{"type":"integer"}`, `-0`, ""},
		{`{"type":"integer"}`, `9007199254740993.5`, "it must be integer"},
		{`{"const":9007199254740993}`, `9007199254740993`, ""},
		{`{"const":9007199254740993}`, `9007199254740992`, "allowed is 9007199254740993"},
		{`{"enum":[12345678901234567890123]}`, `12345678901234567890124`, "allowed are 12345678901234567890123"},
		{`{"const":1000}`, `1e3`, ""},
		{`{"const":0}`, `-0`, ""},
		{`{"maximum":9007199254740992}`, `9007199254740993`, "it must be at most 9007199254740992"},
		{`{"minimum":12345678901234567890124}`, `12345678901234567890123`, "it must be at least 12345678901234567890124"},
		{`{"exclusiveMaximum":-73.983947999999998}`, `-73.983947999999998`, "it must be below -73.983947999999998"},
		{`{"exclusiveMinimum":-73.983947999999998}`, `-73.983947999999997`, ""},
		{`{"multipleOf":3}`, `12345678901234567890123`, ""},
		{`{"multipleOf":0.1}`, `9007199254740993.05`, "it must be a multiple of 0.1"},
		{`{"uniqueItems":true}`, `[9007199254740993,9007199254740992]`, ""},
		{`{"uniqueItems":true}`, `[1000,1e3]`, "items 0 and 1 must differ"},
	} {
		err := c.Valid(t.Context(), row.schema, []byte(row.doc))
		if row.hint == "" {
			require.NoError(t, err, "%s: %s", row.schema, row.doc)
			continue
		}
		var e *fleet.Error
		require.ErrorAs(t, err, &e, "%s: %s", row.schema, row.doc)
		require.Equal(t, row.hint, e.Hint)
	}
}

// A schema of a few bytes that asks for 2 to the depth of the document is stopped.
func TestSteps(t *testing.T) {
	t.Parallel()
	began := time.Now() //nolint:forbidigo // a bound on the machine's own time
	c := NewChecker()
	schema := `{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`
	doc := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	err := c.Valid(t.Context(), schema, []byte(doc))
	require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
	require.Contains(t, err.Error(), "steps")
	require.Less(t, time.Since(began), 30*time.Second) //nolint:forbidigo // see above
	require.NoError(t, c.Valid(t.Context(), schema, []byte(`{"a":{"a":1}}`)), "the next one has its steps anew")
}

// X9: as many schemas as there are checks at once; the cache stays bounded.
func TestCheckerAtOnce(t *testing.T) {
	t.Parallel()
	c := NewChecker()
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			for k := range 300 {
				schema := fmt.Sprintf(`{"maximum":%d}`, (i*300+k)%1500)
				if err := c.Valid(context.Background(), schema, []byte(`0`)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.LessOrEqual(t, len(c.kept), maxKept)
}

// No document and no schema of these makes a check fail in another way than by a refusal.
func TestValidProperty(t *testing.T) {
	t.Parallel()
	c := NewChecker()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{
			`{`, `}`, `[`, `]`, `,`, `:`, `"a"`, `"type"`, `"string"`, `"allOf"`, `"$ref"`, `"#"`, `"properties"`, `"not"`, `1`, `1e9`, `true`, `null`,
			`{"a":1}`, `[true]`, `{"$ref":"#"}`, "\xff", `"é"`,
		})
		schema := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "schema"), "")
		doc := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "doc"), "")
		if Check(schema) != nil {
			schema = `{"type":"object"}`
		}
		if err := c.Valid(context.Background(), schema, []byte(doc)); err != nil {
			require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%q %q: %v", schema, doc, err)
		}
	})
}
