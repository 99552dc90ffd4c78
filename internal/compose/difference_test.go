package compose_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/compose"
)

// N107
func TestDifference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, want string }{
		{"nothing", `{"a":1}`, `{"a":1}`, ``},
		{"a member", `{"a":1,"b":2,"c":3}`, `{"a":1,"b":4,"d":5}`, `replace /b 2>4; remove /c 3>; add /d >5`},
		{"what lies deep", `{"a":{"b":[1,{"c":2}]}}`, `{"a":{"b":[1,{"c":3}]}}`, `replace /a/b/1/c 2>3`},
		{"another kind", `{"a":{}}`, `{"a":[]}`, `replace /a {}>[]`},
		{"the whole", `1`, `{"a":1}`, `replace  1>{"a":1}`},
		{"more elements", `[1]`, `[2,3,4]`, `replace /0 1>2; add /1 >3; add /2 >4`},
		{"fewer elements, from the last one", `[1,2,3]`, `[1]`, `remove /2 3>; remove /1 2>`},
		{"names with escapes", `{"a/b":1,"m~n":2}`, `{"a/b":2,"m~n":3}`, `replace /a~1b 1>2; replace /m~0n 2>3`},
		{"the empty name", `{"":{"":1}}`, `{"":{"":2}}`, `replace // 1>2`},
	} {
		t.Run("shows "+c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, told(compose.Comparison{}.Compare([]byte(c.from), []byte(c.to))))
		})
	}

	t.Run("takes a long array for one value", func(t *testing.T) {
		t.Parallel()
		from, to := numbers(33), numbers(34)
		d := compose.Comparison{MaxValue: 10}.Compare(from, to)
		require.Equal(t, []compose.Change{{Op: compose.OpReplace, FromBytes: len(from), ToBytes: len(to)}}, d.Changes)
	})

	t.Run("keeps the beginning within its limits and counts the rest", func(t *testing.T) {
		t.Parallel()
		from, to := []byte(`{`), []byte(`{`)
		for i := range 200 {
			name := strconv.Itoa(1000 + i)
			from = append(from, `"`+name+`":1,`...)
			to = append(to, `"`+name+`":2,`...)
		}
		from[len(from)-1], to[len(to)-1] = '}', '}'
		d := compose.Comparison{MaxChanges: 100}.Compare(from, to)
		require.Len(t, d.Changes, 100)
		require.Equal(t, 100, d.More)
		d = compose.Comparison{MaxBytes: 1000}.Compare(from, to)
		require.Equal(t, 200, len(d.Changes)+d.More)
		require.Less(t, len(d.Changes), 20)
		require.Equal(t, "/1000", d.Changes[0].Path)
	})
}

// X10: what is marked is told as changed, and neither its value nor its inner form is.
func TestDifferenceHides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, to, marks, want string }{
		{"a value", `{"p":"x"}`, `{"p":"y"}`, "/p", `replace /p "?">"?"`},
		{"all below a mark as one change", `{"d":{"p":"x","q":1}}`, `{"d":{"p":"y","r":2}}`, "/d", `replace /d "?">"?"`},
		{"within what comes", `{}`, `{"d":{"p":"y","u":"u"}}`, "/d/p", `add /d >{"p":"?","u":"u"}`},
		{"within what goes", `{"d":[1,{"p":"x"}]}`, `{"d":7}`, "/d/1/p", `replace /d [1,{"p":"?"}]>7`},
		{"nothing that is equal", `{"p":"x","q":1}`, `{"p":"x","q":2}`, "/p", `replace /q 1>2`},
		{"the whole", `{"p":"x"}`, `3`, "", `replace  "?">"?"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			how := compose.Comparison{Hidden: compose.MarksOf([]string{c.marks}), Literal: []byte(`"?"`)}
			require.Equal(t, c.want, told(how.Compare([]byte(c.from), []byte(c.to))))
		})
	}
}

// N107: what the changes lead to is the other document, there are none exactly if both have
// the same canonical form, and they always come in the same order.
func TestDifferenceProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from, to := canonicalValue(t, "from"), canonicalValue(t, "to")
		if rapid.Bool().Draw(t, "near") { // two documents that share most
			to = near(t, from)
		}
		d := compose.Comparison{}.Compare(from, to)
		require.Equal(t, string(from) == string(to), len(d.Changes) == 0)
		require.Zero(t, d.More)
		require.Equal(t, d, compose.Comparison{}.Compare(from, to))
		require.Equal(t, string(to), string(applied(t, from, d.Changes)))
	})
}

// Secrets never show, whatever changes around them.
func TestDifferenceNeverShowsWhatIsHidden(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pointers := rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/a/b", "/b/0", "/ab/a", "/0/a", "/1"}), 1, 3).Draw(t, "marks")
		from, to := planted(t, canonicalValue(t, "from"), pointers), planted(t, canonicalValue(t, "to"), pointers)
		d := compose.Comparison{Hidden: compose.MarksOf(pointers), Literal: []byte(`"?"`)}.Compare(from, to)
		require.NotContains(t, told(d), "S3CRET")
	})
}

func canonicalValue(t *rapid.T, label string) []byte {
	text, err := json.Marshal(value(3).Draw(t, label))
	require.NoError(t, err)
	text, err = compose.Canonical(text, compose.DefaultLimits())
	require.NoError(t, err)
	return text
}

// near merges a patch over a document.
func near(t *rapid.T, from []byte) []byte {
	to, err := compose.Flatten([]compose.Layer{{JSON: from}, {JSON: canonicalValue(t, "patch")}}, compose.DefaultLimits())
	require.NoError(t, err)
	return to
}

// planted puts a secret at every pointer that the document has.
func planted(t *rapid.T, text []byte, pointers []string) []byte {
	doc := decoded(t, text)
	for _, p := range pointers {
		doc = setAt(doc, strings.Split(p, "/")[1:], "S3CRET"+rapid.StringMatching("[a-z]{3}").Draw(t, "secret"))
	}
	return canonicalOf(t, doc)
}

func setAt(doc any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	switch d := doc.(type) {
	case map[string]any:
		d[path[0]] = setAt(d[path[0]], path[1:], to)
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(d) {
			d[i] = setAt(d[i], path[1:], to)
		}
	}
	return doc
}

func canonicalOf(t *rapid.T, doc any) []byte {
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	text, err = compose.Canonical(text, compose.DefaultLimits())
	require.NoError(t, err)
	return text
}

// applied makes changes as RFC 6902 says.
func applied(t *rapid.T, text []byte, changes []compose.Change) []byte {
	doc := decoded(t, text)
	for _, c := range changes {
		var path []string
		if c.Path != "" {
			path = strings.Split(c.Path, "/")[1:]
		}
		for i, p := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
		}
		var to any
		if c.Op != compose.OpRemove {
			to = decoded(t, c.To)
		}
		doc = step(t, doc, path, c.Op, to)
	}
	return canonicalOf(t, doc)
}

// decoded keeps the digits of numbers.
func decoded(t *rapid.T, text []byte) (doc any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&doc))
	return doc
}

func step(t *rapid.T, doc any, path []string, op compose.Op, to any) any {
	if len(path) == 0 {
		return to
	}
	switch d := doc.(type) {
	case map[string]any:
		_, has := d[path[0]]
		require.True(t, len(path) > 1 && has || len(path) == 1 && has == (op != compose.OpAdd))
		if len(path) == 1 && op == compose.OpRemove {
			delete(d, path[0])
			return d
		}
		d[path[0]] = step(t, d[path[0]], path[1:], op, to)
		return d
	case []any:
		i, err := strconv.Atoi(path[0])
		require.NoError(t, err)
		switch {
		case len(path) == 1 && op == compose.OpRemove:
			return slices.Delete(d, i, i+1)
		case len(path) == 1 && op == compose.OpAdd:
			return slices.Insert(d, i, to)
		}
		d[i] = step(t, d[i], path[1:], op, to)
		return d
	}
	require.Fail(t, "a change below a scalar")
	return nil
}

func told(d compose.Difference) string {
	var all []string
	for _, c := range d.Changes {
		all = append(all, string(c.Op)+" "+c.Path+" "+string(c.From)+">"+string(c.To))
	}
	return strings.Join(all, "; ")
}

func numbers(n int) []byte {
	text := []byte("[")
	for i := range n {
		text = append(strconv.AppendInt(text, int64(i), 10), ',')
	}
	text[len(text)-1] = ']'
	return text
}
