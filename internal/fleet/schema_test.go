package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C80, C82
func TestCompatibleSchemas(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		a, b string
		want bool
	}{
		"the same":                         {`{"type":"object"}`, `{"type":"object"}`, true},
		"written otherwise":                {`{"type":"object","title":"x"}`, "{\n \"title\": \"x\", \"type\": \"object\" }", true},
		"none beside one":                  {``, `{"type":"object"}`, true},
		"anything beside one":              {`{}`, `{"type":"string"}`, true},
		"true beside one":                  {`true`, `{"type":"string"}`, true},
		"another type":                     {`{"type":"object"}`, `{"type":"string"}`, false},
		"one type of several":              {`{"type":["object","null"]}`, `{"type":"object"}`, true},
		"an integer is a number":           {`{"type":"integer"}`, `{"type":"number"}`, true},
		"but no string":                    {`{"type":"integer"}`, `{"type":"string"}`, false},
		"a property more":                  {`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":"string"},"b":{"type":"number"}}}`, true},
		"a property of another type":       {`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":"number"}}}`, false},
		"elements of another type":         {`{"items":{"type":"string"}}`, `{"items":{"type":"number"}}`, false},
		"deep in it":                       {`{"properties":{"a":{"items":{"properties":{"b":{"type":"null"}}}}}}`, `{"properties":{"a":{"items":{"properties":{"b":{"type":"boolean"}}}}}}`, false},
		"a number that no double holds":    {`{"maximum":1e400,"type":"number"}`, `{"type":"string"}`, false},
		"another limit, and what it needs": {`{"maxLength":3}`, `{"maxLength":30,"required":["a"]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, fleet.CompatibleSchemas(row.a, row.b))
			require.Equal(t, row.want, fleet.CompatibleSchemas(row.b, row.a))
		})
	}
}
