package compose_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// names are few, so that layers meet, and order differently in UTF-8, UTF-16 and escaped.
var names = []string{"", "a", "b", "ab", "a/b", "\n", "\"", "\\", "~", "\x7f", "é", "€", "\ue000", "\ufb33", "\uffff", "😀", "\U0010ffff"}

func value(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Float64Range(-1e300, 1e300).AsAny(),
		rapid.Map(rapid.IntRange(-1<<53, 1<<53), func(n int) any { return float64(n) }),
		rapid.Map(rapid.StringMatching(`-?[1-9][0-9]{0,40}`), func(n string) any { return json.Number(n) }),
		rapid.SampledFrom(names).AsAny(),
		rapid.String().AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	array := rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 4)
	return rapid.OneOf(append(scalars, array.AsAny(), object(depth).AsAny(), object(depth).AsAny())...)
}

func object(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom(names), rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 6)
}

// write gives one of the many texts of a value: space, escapes and order are drawn.
func write(t *rapid.T, v any) []byte {
	var b bytes.Buffer
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")) }
	text := func(s string) {
		if rapid.Bool().Draw(t, "escape") {
			b.WriteByte('"')
			for _, u := range utf16.Encode([]rune(s)) {
				b.WriteString(`\u` + strings.ToUpper(strconv.FormatUint(0x10000|uint64(u), 16)[1:]))
			}
			b.WriteByte('"')
			return
		}
		quoted, err := json.Marshal(s)
		require.NoError(t, err)
		b.Write(quoted)
	}
	var put func(v any)
	put = func(v any) {
		space()
		switch v := v.(type) {
		case string:
			text(v)
		case float64:
			number := strconv.FormatFloat(v, rapid.SampledFrom([]byte{'e', 'E', 'f'}).Draw(t, "format"), -1, 64)
			if math.Abs(v) > 1<<53 && !strings.ContainsAny(number, ".eE") {
				number += ".0" // a whole number is a double only with one of these
			}
			b.WriteString(number)
		case []any:
			b.WriteByte('[')
			for i, e := range v {
				if i > 0 {
					b.WriteByte(',')
				}
				put(e)
			}
			b.WriteByte(']')
		case map[string]any:
			b.WriteByte('{')
			keys := slices.Sorted(maps.Keys(v))
			for i, k := range rapid.Permutation(keys).Draw(t, "order") {
				if i > 0 {
					b.WriteByte(',')
				}
				space()
				text(k)
				space()
				b.WriteByte(':')
				put(v[k])
			}
			b.WriteByte('}')
		default:
			quoted, err := json.Marshal(v)
			require.NoError(t, err)
			b.Write(quoted)
		}
		space()
	}
	put(v)
	return b.Bytes()
}

// mergePatch is RFC 7396's pseudocode, word by word.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	t = maps.Clone(t)
	for name, v := range p {
		if v == nil {
			delete(t, name)
		} else {
			t[name] = mergePatch(t[name], v)
		}
	}
	return t
}

// reference is the tokenizer's own RFC 8785 form, in which integers keep their digits.
func reference(t require.TestingT, src []byte) string {
	v := jsontext.Value(bytes.Clone(src))
	require.NoError(t, v.Canonicalize(jsontext.CanonicalizeRawInts(false)))
	return string(v)
}

// N106
func TestCanonicalIsOneTextPerValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := value(4).Draw(t, "v")
		first, second := write(t, v), write(t, v)
		untouched := bytes.Clone(first)
		out, err := compose.Canonical(first, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, untouched, first, "the source is only read")
		require.Equal(t, reference(t, first), string(out))

		other, err := compose.Canonical(second, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, string(out), string(other))

		again, err := compose.Canonical(out, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

// N106
func TestFlattenAgainstTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(object(4).AsAny(), object(4).AsAny(), value(4)), 1, 4).Draw(t, "layers")
		var first, second []compose.Layer
		model := values[0]
		for i, v := range values {
			first = append(first, compose.Layer{JSON: write(t, v)})
			second = append(second, compose.Layer{JSON: write(t, v)})
			if i > 0 {
				model = mergePatch(model, v)
			}
		}
		out, err := compose.Flatten(first, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, reference(t, write(t, model)), string(out))

		same, err := compose.Flatten(second, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, compose.HashOf(out), compose.HashOf(same))
	})
}

// FuzzCanonical: whatever comes in, the answer is a refusal of ours or the form that the
// tokenizer's own canonicaliser gives. N106
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[1,{"b":2,"a":[null,true,false]}]`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00\ud800"`, "\"\xed\xa0\x80\"",
		`[-0,1e400,5e-324,9007199254740993,18446744073709551616,0.1,1.50]`,
		`[12345678901234567890123,-73.983947999999998,1e3,1.0,-0,0.0,-0.0e9,1e21,1e-400]`, "{\"\ufb33\":1,\"😀\":2}", `"\/\b\u000f\\\""`, `[[[[`, `1 2`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		out, err := compose.Canonical(src, compose.DefaultLimits())
		if err != nil {
			require.Equal(t, fleet.Invalid, refusal(t, err).Kind)
			return
		}
		require.True(t, jsontext.Value(src).IsValid())
		require.Equal(t, reference(t, src), string(out))
		again, err := compose.Canonical(out, compose.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		merged, err := compose.Flatten([]compose.Layer{{JSON: src}, {JSON: []byte(`{}`)}}, compose.DefaultLimits())
		require.NoError(t, err)
		if out[0] == '{' {
			require.Equal(t, string(out), string(merged))
		} else {
			require.Equal(t, `{}`, string(merged))
		}
	})
}
