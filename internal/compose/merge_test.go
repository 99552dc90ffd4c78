package compose_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func layers(texts ...string) []compose.Layer {
	names := []string{"/base", "/compositions/0", "/compositions/1", "/overrides"}
	out := make([]compose.Layer, len(texts))
	for i, text := range texts {
		out[i] = compose.Layer{Name: names[i], JSON: []byte(text)}
	}
	return out
}

func flatten(t *testing.T, texts ...string) string {
	t.Helper()
	out, err := compose.Flatten(layers(texts...), compose.DefaultLimits())
	require.NoError(t, err)
	return string(out)
}

// The test cases of RFC 7396, appendix A. N106
func TestFlattenByTheRFC(t *testing.T) {
	t.Parallel()
	rows := []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	}
	for _, r := range rows {
		require.Equal(t, r.want, flatten(t, r.target, r.patch), "%s over %s", r.patch, r.target)
	}
}

// N106
func TestFlatten(t *testing.T) {
	t.Parallel()
	rows := []struct {
		says   string
		layers []string
		want   string
	}{
		{"keeps the nulls of the base alone", []string{`{"b":null,"a":{"c":null}}`}, `{"a":{"c":null},"b":null}`},
		{"keeps the nulls of the base under a patch", []string{`{"b":null,"a":{"c":null}}`, `{"a":{"d":1}}`}, `{"a":{"c":null,"d":1},"b":null}`},
		{"keeps nulls within the arrays of a patch", []string{`{}`, `{"a":[null,{"b":null}]}`}, `{"a":[null,{"b":null}]}`},
		{"applies later layers over earlier ones", []string{`{"a":1,"b":1,"c":1}`, `{"b":2,"c":2}`, `{"c":3}`}, `{"a":1,"b":2,"c":3}`},
		{"brings back what an earlier layer removed", []string{`{"a":{"x":1,"y":1}}`, `{"a":null}`, `{"a":{"y":2}}`}, `{"a":{"y":2}}`},
		{"replaces arrays instead of joining them", []string{`{"a":[1,2,3]}`, `{"a":[]}`}, `{"a":[]}`},
		{"makes an object of what was none", []string{`{"a":[1],"b":"s","c":null}`, `{"a":{"x":{"y":null,"z":1}},"b":{},"c":{"n":null}}`}, `{"a":{"x":{"z":1}},"b":{},"c":{}}`},
		{"knows a name however it is escaped", []string{`{"\u00e9":1,"\n":{"a":1}}`, `{"é":2,"\u000a":{"b":2}}`}, `{"\n":{"a":1,"b":2},"é":2}`},
		{"merges names in UTF-16 order", []string{"{\"\ufb33\":1,\"€\":1}", `{"😀":2}`}, "{\"€\":1,\"😀\":2,\"\ufb33\":1}"},
		{"is not misled by quotes and brackets in strings", []string{`{"a":"}\\\"]","b":["{\\","\""],"\"}":1}`, `{"c":"\\"}`}, `{"\"}":1,"a":"}\\\"]","b":["{\\","\""],"c":"\\"}`},
		{"removes the first, the middle and the last", []string{`{"a":1,"b":2,"c":3,"d":4,"e":5}`, `{"a":null,"c":null,"e":null,"x":null}`}, `{"b":2,"d":4}`},
		{"starts over from a base that is no object", []string{`"x"`, `{"a":1}`}, `{"a":1}`},
	}
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, r.want, flatten(t, r.layers...))
		})
	}
}

// N106, X10
func TestFlattenRefuses(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, l compose.Limits, texts ...string) *fleet.Error {
		t.Helper()
		_, err := compose.Flatten(layers(texts...), l)
		return refusal(t, err)
	}
	t.Run("no layer at all", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, fleet.Invalid, refused(t, compose.Limits{}).Kind)
	})
	t.Run("a bad layer, with its name before the pointer", func(t *testing.T) {
		t.Parallel()
		e := refused(t, compose.Limits{}, `{}`, `{"a":[{"b":1e400}]}`, `{}`)
		require.Equal(t, fleet.Invalid, e.Kind)
		require.Equal(t, "/compositions/0/a/0/b", e.Field)
	})
	t.Run("a bad value that a later layer would replace", func(t *testing.T) {
		t.Parallel()
		e := refused(t, compose.Limits{}, `{"a":1e400}`, `{"a":1}`)
		require.Equal(t, "/base/a", e.Field)
	})
	t.Run("a layer that is too large, by its name", func(t *testing.T) {
		t.Parallel()
		e := refused(t, compose.Limits{MaxBytes: 9}, `{}`, `{"a":1234}`)
		require.Equal(t, fleet.TooLarge, e.Kind)
		require.Equal(t, "/compositions/0", e.Field)
	})
	t.Run("a result that is too large though no layer is", func(t *testing.T) {
		t.Parallel()
		e := refused(t, compose.Limits{MaxBytes: 12}, `{"a":1234}`, `{"b":1234}`)
		require.Equal(t, fleet.TooLarge, e.Kind)
		require.Equal(t, "the JSON is 19 bytes long, allowed are 12", e.Message)
	})
	t.Run("a result of too many values though no layer has", func(t *testing.T) {
		t.Parallel()
		e := refused(t, compose.Limits{MaxValues: 5}, `{"a":["x,",{},[]]}`, `{"b":[1,2]}`)
		require.Equal(t, fleet.Invalid, e.Kind)
		require.Equal(t, "more than 5 values", e.Message)
	})
	t.Run("not a result that fits though the layers together do not", func(t *testing.T) {
		t.Parallel()
		out, err := compose.Flatten(layers(`{"a":["x,",{},[]]}`, `{"a":[[],"{",{}]}`), compose.Limits{MaxValues: 5})
		require.NoError(t, err)
		require.Equal(t, `{"a":[[],"{",{}]}`, string(out))
	})
}

// N106: the number is written down so that every machine and every version must give it.
func TestHashIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	base := `{"z": 1.50, "name": "caf\u00e9", "list": [3, 1e2, {"b": true, "a": null}], "drop": {"me": 1}}`
	composition := `{"limits": {"cpu": 2, "gpu": null}, "drop": null}`
	overrides := `{"limits": {"cpu": 4.0}, "\ud83d\ude00": "\/"}`
	out := flatten(t, base, composition, overrides)
	require.Equal(t, `{"limits":{"cpu":4},"list":[3,100,{"a":null,"b":true}],"name":"café","z":1.5,"😀":"/"}`, out)
	require.Equal(t, fleet.Hash("bb7b83d239b44b86a5ebfb99eea4cfaccf3ce922421fc96a819da88c6a56e425"), compose.HashOf([]byte(out)))

	spaced := strings.NewReplacer(",", " ,\n", "{", "{\t").Replace(base)
	require.Equal(t, out, flatten(t, spaced, composition, overrides))
}
