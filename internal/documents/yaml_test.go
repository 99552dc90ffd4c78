package documents_test

import (
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
