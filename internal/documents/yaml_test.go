package documents_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/documents"
)

func TestYAML(t *testing.T) {
	t.Parallel()
	all, err := documents.YAML("x.yaml", ".", []byte(`
base: &base {a: 1, b: two}
merged: {<<: *base, b: 3}
list: [*base, ~, true, .5, 0o17, 1_000, 1e3, 2024-01-01, "no", no, 3: 4]
text: |
  a "b"
`))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "x.yaml:2", all[0].At)
	require.Equal(t, `{"base":{"a":1,"b":"two"},"merged":{"b":3,"a":1},`+
		`"list":[{"a":1,"b":"two"},null,true,0.5,15,1000,1e3,"2024-01-01","no","no",{"3":4}],`+
		`"text":"a \"b\"\n"}`, string(all[0].Data))

	for _, bad := range []string{"a: .inf", "a: !!binary aGk=", "? [a]\n: b", "a: {<<: 3}"} {
		_, err := documents.YAML("x.yaml", ".", []byte(bad))
		require.ErrorContains(t, err, "x.yaml:1: ", bad)
	}
}

// X19: what a text repeats is bounded before it is written, whatever multiplies it.
func TestYAMLBomb(t *testing.T) {
	t.Parallel()
	levels := func(first, each string) string {
		text := "a0: &a0 " + first + "\n"
		for i := 1; i < 12; i++ {
			text += fmt.Sprintf("a%d: &a%d ", i, i) + strings.ReplaceAll(each, "*", fmt.Sprintf("*a%d", i-1)) + "\n"
		}
		return text
	}
	for name, text := range map[string]string{
		"aliases of aliases":       levels("[x]", "[*, *, *, *, *, *, *, *, *, *]"),
		"empty values":             levels("[]", "[*, *, *, *, *, *, *, *, *, *]"),
		"merges of lists":          levels("{x: 1}", "{<<: [*, *, *, *, *, *, *, *, *, *]}"),
		"merges of empty mappings": levels("{}", "{<<: [*, *, *, *, *, *, *, *, *, *]}"),
		"merges within values":     levels("{x: 1}", "{p: {<<: *}, q: {<<: *}, r: {<<: *}, s: {<<: *}, t: {<<: *}, u: {<<: *}}"),
		"a long text":              "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 10_000) + "]",
		"a long key":               "a: &a {? " + strings.Repeat("x", 1000) + " : 1}\nb: [" + strings.Repeat("{<<: *a},", 10_000) + "]",
		"many documents":           strings.Repeat("a: &a "+strings.Repeat("x", 1000)+"\nb: ["+strings.Repeat("*a, ", 60)+"]\n---\n", 200),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := documents.YAML("x.yaml", ".", []byte(text))
			require.ErrorContains(t, err, "repeat too much")
		})
	}

	t.Run("itself", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"a: &a {<<: [*a, *a, *a]}", "a: &a [*a, *a]", "a: &a {b: *a, c: *a}"} {
			_, err := documents.YAML("x.yaml", ".", []byte(text))
			require.ErrorContains(t, err, "nested deeper", text)
		}
	})

	t.Run("a base that thousands share is none", func(t *testing.T) {
		t.Parallel()
		text := "base: &base {a: 1, b: two, c: [1, 2, 3], d: {e: f}}\nall:\n" + strings.Repeat("- {<<: *base, b: 3}\n", 10_000)
		all, err := documents.YAML("x.yaml", ".", []byte(text))
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Greater(t, len(all[0].Data), 400_000)
	})
}
