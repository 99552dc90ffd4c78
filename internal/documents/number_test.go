package documents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/documents"
)

// one is what YAML makes of a plain text.
func one(text string) (string, error) {
	all, err := documents.YAML("x.yaml", ".", []byte("a:\n  b: "+text+"\n"))
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(all[0].Data), `{"a":{"b":`), "}}"), nil
}

// N106: what a parser of YAML 1.1 or 1.2 reads as a number arrives as that number, with its digits, or is refused.
func TestNumbersOfYAML(t *testing.T) {
	t.Parallel()
	const quote, beyond, noForm = "quote it if it is text, else write it in decimal", "beyond the range of a double: quote it", "has no form in JSON"
	for _, r := range []struct{ text, json, refused string }{
		// Both versions agree, and JSON can write it.
		{"0", "0", ""},
		{"-0", "-0", ""},
		{"10", "10", ""},
		{"9007199254740993", "9007199254740993", ""},
		{"12345678901234567890123", "12345678901234567890123", ""},
		{"-12345678901234567890123", "-12345678901234567890123", ""},
		{"0.0", "0.0", ""},
		{"1.0", "1.0", ""},
		{"-73.983947999999998", "-73.983947999999998", ""},
		{"1e3", "1e3", ""},
		{"1.5e-3", "1.5e-3", ""},
		{"1E22", "1E22", ""},
		// Forms that JSON lacks.
		{"+12345678901234567890123", "12345678901234567890123", ""},
		{"1_000", "1000", ""},
		{"12_345_678_901_234_567_890_123", "12345678901234567890123", ""},
		{"+1.50", "1.50", ""},
		{".5", "0.5", ""},
		{"-.5", "-0.5", ""},
		{"5.", "5.0", ""},
		{"5.e3", "5.0e3", ""},
		{"007.25", "7.25", ""},
		{"0x1F", "31", ""},
		{"0x1FFF_FFFF", "536870911", ""},
		{"0xFFFFFFFFFFFFFFFF", "18446744073709551615", ""},
		{"0o17", "15", ""},
		{"0b101", "5", ""},
		// The versions differ, or no number of ours is the same.
		{"08", "", quote},
		{"01067", "", quote},
		{"-01067", "", quote},
		{"+007", "", quote},
		{"00", "", quote},
		{"0_7", "", quote},
		{"0x1FFFFFFFFFFFFFFFFFFFFFF", "", quote},
		{"0o7777777777777777777777777", "", quote},
		{"0b" + strings.Repeat("1", 70), "", quote},
		{"1:30", "", quote},
		{"22:30:00", "", quote},
		{"190:20:30.15", "", quote},
		{"1e400", "", beyond},
		{"1234e567", "", beyond},
		{"-1e400", "", beyond},
		{"1e-400", "", beyond},
		{"2e-324", "", beyond},
		{strings.Repeat("9", 310) + ".0", "", beyond},
		{".inf", "", noForm},
		{"-.INF", "", noForm},
		{".nan", "", noForm},
		// No version reads a number.
		{"1.2.3", `"1.2.3"`, ""},
		{"10.0.0.1", `"10.0.0.1"`, ""},
		{"8080:80", `"8080:80"`, ""},
		{"08:30", `"08:30"`, ""},
		{"0x", `"0x"`, ""},
		{"0xG", `"0xG"`, ""},
		{"1e", `"1e"`, ""},
		{"e5", `"e5"`, ""},
		{"1-2", `"1-2"`, ""},
		{"2024-01-01", `"2024-01-01"`, ""},
		{"3s", `"3s"`, ""},
		// Quoted or tagged, it is text.
		{`"08"`, `"08"`, ""},
		{`'1e400'`, `"1e400"`, ""},
		{`!!str 0x1FFFFFFFFFFFFFFFFFFFFFF`, `"0x1FFFFFFFFFFFFFFFFFFFFFF"`, ""},
		{"|-\n    01067", `"01067"`, ""},
		{`!!int "08"`, "", quote},
	} {
		got, err := one(r.text)
		if r.refused != "" {
			require.ErrorContains(t, err, r.refused, r.text)
			require.ErrorContains(t, err, "x.yaml:2: ", r.text)
			continue
		}
		require.NoError(t, err, r.text)
		require.Equal(t, r.json, got, r.text)
		require.True(t, json.Valid([]byte(got)), r.text)
	}
}

// Keys are texts in JSON, whatever they look like.
func TestKeysThatLookLikeNumbers(t *testing.T) {
	t.Parallel()
	all, err := documents.YAML("x.yaml", ".", []byte("{08: a, 1e400: b, 0x1F: c, 22:30: d}"))
	require.NoError(t, err)
	require.Equal(t, `{"08":"a","1e400":"b","0x1F":"c","22:30":"d"}`, string(all[0].Data))
}

// N106: whatever a plain text of these letters is, YAML makes it valid JSON or refuses it, and what arrives as a text is a
// number in no version.
func TestPlainTextsOfYAML(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-+]?[0-9.]{1,6}[0-9_.eExXoObBaAfF:+-]{0,12}[0-9]`).Draw(t, "text")
		got, err := one(text)
		if err != nil {
			return
		}
		require.True(t, json.Valid([]byte(got)), got)
		var n yaml.Node
		require.NoError(t, yaml.Unmarshal([]byte(text), &n))
		if strings.HasPrefix(got, `"`) && n.Content[0].ShortTag() == "!!str" {
			require.False(t, documents.LooksLikeNumber(text))
			require.Equal(t, `"`+text+`"`, got)
		}
	})
}
