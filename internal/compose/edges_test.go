package compose_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N2, N106, X19: a limit takes a document that is as large as it says, and no larger one.
func TestEdgesOfLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src    string
		values int
	}{
		{`{"a":1,"b":2}`, 3},
		{`{"a":{},"b":{},"c":{}}`, 4},
		{`{"a":[],"b":[],"c":[]}`, 4},
		{`[1,[2,"3,\\"],{"a":"}\\\\","b":null}]`, 8},
	} {
		t.Run(c.src, func(t *testing.T) {
			t.Parallel()
			alone := []compose.Layer{{JSON: []byte(c.src)}}
			for _, layers := range [][]compose.Layer{alone, {alone[0], alone[0]}} {
				out, err := compose.Flatten(layers, compose.Limits{MaxBytes: int64(len(c.src)), MaxValues: c.values})
				require.NoError(t, err)
				require.Equal(t, c.src, string(out))
			}
			_, err := compose.Flatten(alone, compose.Limits{MaxBytes: int64(len(c.src)) - 1})
			require.Equal(t, fleet.TooLarge, fleet.KindOf(err))
			_, err = compose.Flatten(alone, compose.Limits{MaxValues: c.values - 1})
			require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		})
	}
}

// N106: what a base comes to with one more layer is held to the limits too.
func TestBaseWith(t *testing.T) {
	t.Parallel()
	base := func(l compose.Limits) *compose.Base {
		b, err := compose.NewBase([]compose.Layer{{Name: "base", JSON: []byte(`{"a":1}`)}}, l)
		require.NoError(t, err)
		return b
	}
	more := compose.Layer{Name: "more", JSON: []byte(`{"b":2}`)}
	out, err := base(compose.Limits{MaxBytes: 13, MaxValues: 3}).With(more)
	require.NoError(t, err)
	require.Equal(t, `{"a":1,"b":2}`, string(out))
	_, err = base(compose.Limits{MaxBytes: 12}).With(more)
	require.Equal(t, fleet.TooLarge, fleet.KindOf(err))
	_, err = base(compose.Limits{MaxValues: 2}).With(more)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	_, err = base(compose.Limits{}).With(compose.Layer{Name: "more", JSON: []byte(`{"b":`)})
	require.Equal(t, "more", refusal(t, err).Field[:4])
}

// N107: limits of a difference hold to the byte.
func TestEdgesOfDifference(t *testing.T) {
	t.Parallel()
	// least is how many bytes it takes to keep all changes.
	least := func(from, to string) int {
		for room := 1; ; room++ {
			if d := (compose.Comparison{MaxBytes: room}).Compare([]byte(from), []byte(to)); d.More == 0 {
				return room
			}
		}
	}
	one := least(`{"a":11}`, `{"a":22}`)
	require.Equal(t, one+3, least(`{"a":11000}`, `{"a":22}`))
	require.Equal(t, one+3, least(`{"a":11}`, `{"a":22000}`))
	require.Equal(t, one+3, least(`{"aaaa":11}`, `{"aaaa":22}`))
	require.Equal(t, 2*one, least(`{"a":11,"b":11}`, `{"a":22,"b":22}`))

	shown := compose.Comparison{MaxValue: 3}.Compare([]byte(`{"a":123}`), []byte(`{"a":1234}`))
	require.Equal(t, []compose.Change{{Op: compose.OpReplace, Path: "/a", From: []byte("123"), ToBytes: 4}}, shown.Changes)
}

// N107, X10: strings that end in backslashes, and arrays before other members, end where they end.
func TestDifferenceStepsOver(t *testing.T) {
	t.Parallel()
	require.Equal(t, `replace /b 1>2`, told(compose.Comparison{}.Compare([]byte(`{"a":"\\","b":1}`), []byte(`{"a":"\\","b":2}`))))
	require.Equal(t, `replace /b 1>2`, told(compose.Comparison{}.Compare([]byte(`{"a":"\\\\","b":1}`), []byte(`{"a":"\\\\","b":2}`))))
	how := compose.Comparison{Hidden: compose.MarksOf([]string{"/d/a/0/p"}), Literal: []byte(`"?"`)}
	require.Equal(t, `add /d >{"a":[{"p":"?"},2],"b":{"c":[3]}}`,
		told(how.Compare([]byte(`{}`), []byte(`{"d":{"a":[{"p":"x"},2],"b":{"c":[3]}}}`))))
}

// N106: names with escapes and with letters beyond ASCII are told apart, and stay in order.
func TestNamesWithEscapes(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"aè":2,"aé":1}`, canonical(t, `{"\u0061é":1,"aè":2}`))
	_, err := compose.Canonical([]byte(`{"\u0061é":1,"aé":2}`), compose.DefaultLimits())
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
}

// X9, X19: a refusal names its place in at most so many bytes, cut at a letter, whatever is wrong where.
func TestRefusalsAreShort(t *testing.T) {
	t.Parallel()
	at := func(name string) string {
		_, err := compose.Canonical([]byte(`{"`+name+`":1e999}`), compose.DefaultLimits())
		return refusal(t, err).Field
	}
	whole := strings.Repeat("x", 1023)
	require.Equal(t, "/"+whole, at(whole))
	require.Equal(t, "/"+whole+"…", at(whole+"x"))
	require.Equal(t, "/"+whole[:1022]+"…", at(whole[:1022]+"éxxx"))
	require.True(t, utf8.ValidString(at(whole[:1021]+"€xxx")))
	for _, src := range []string{`[\`, `[\u`, `[\ud8`, `["\ud800"]`, `["\ud800x"]`, "\"\xff\"", "\xff", ``, ` `, `[`, `[1}`} {
		_, err := compose.Canonical([]byte(src), compose.DefaultLimits())
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%q", src)
	}
}
