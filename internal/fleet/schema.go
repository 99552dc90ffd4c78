package fleet

import (
	"encoding/json"
	"slices"
	"strings"
)

// CompatibleSchemas reports whether members of one group may have these schemas for one module (C80): wherever both
// name the type of a value, they share one. So a member may be upgraded while the others run, with an added
// property or another limit; which of them accepts an input is decided per execution. Texts are JSON schemas; ""
// accepts anything.
func CompatibleSchemas(a, b string) bool {
	if a == b {
		return true
	}
	x, errA := schemaTree(a)
	y, errB := schemaTree(b)
	return errA != nil || errB != nil || compatible(x, y) // "", because invalid JSON was refused before
}

// schemaTree keeps numbers as they are: a schema may have one that no double holds.
func schemaTree(text string) (tree any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return tree, d.Decode(&tree)
}

func compatible(a, b any) bool {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if !isX || !isY {
		return true
	}
	if !shareType(x["type"], y["type"]) || !compatible(x["items"], y["items"]) {
		return false
	}
	all, _ := x["properties"].(map[string]any)
	others, _ := y["properties"].(map[string]any)
	for name, property := range all {
		if !compatible(property, others[name]) {
			return false
		}
	}
	return true
}

func shareType(a, b any) bool {
	x, y := typesOf(a), typesOf(b)
	return len(x) == 0 || len(y) == 0 || slices.ContainsFunc(x, func(t string) bool { return slices.Contains(y, t) })
}

// typesOf are the names in a schema's type; an integer is also a number.
func typesOf(v any) []string {
	var names []string
	switch v := v.(type) {
	case string:
		names = []string{v}
	case []any:
		for _, name := range v {
			if s, is := name.(string); is {
				names = append(names, s)
			}
		}
	}
	if slices.Contains(names, "integer") {
		names = append(names, "number")
	}
	return names
}
