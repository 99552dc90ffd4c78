package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// N106: an error of a config file has its place and cause, and no remedy that would change what the program reads.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	for _, r := range []struct{ says, data, want string }{
		{"is fine", "{\"a\": 12345678901234567890123,\n \"b\": [-73.983947999999998, 1e3, 1.0, -0, 0.0]}\n", ""},
		{"is a scalar", "3", ""},
		{"is larger than the default limit of values", "[" + strings.Repeat("0,", 2_000_000) + "0]", ""},
		{"is empty", "", "press.json is empty"},
		{"has only space", " \n\t\n", "press.json is empty"},
		{"has a BOM", "\xef\xbb\xbf{}", "press.json:1:1: the JSON begins with a byte order mark (BOM)"},
		{"is UTF-16", "\xff\xfe{\x00}\x00", "press.json:1:1: the text is UTF-16, and JSON is UTF-8"},
		{"is UTF-16 without a BOM", "{\x00\r\x00\n\x00}\x00", "the text is UTF-16, and JSON is UTF-8"},
		{"has a comment", "{\n  \"a\": 1, // speed\n  \"b\": 2\n}", "press.json:2:11: malformed JSON: a comment at byte 12"},
		{"begins with a comment", "/* speed */ {}", "press.json:1:1: malformed JSON: a comment at byte 0"},
		{"ends with a comment", "{}\n# speed\n", "press.json:2:1: malformed JSON: a comment at byte 3"},
		{"has a comma too many", "{\n  \"é\": [1,\n  2,]\n}", "press.json:3:4: "},
		{"ends early", "{\n \"a\": [1,", "press.json:2:10: /a: malformed JSON: it ends too early"},
		{"has two documents", "{}\n{}", "press.json:2:1: malformed JSON: there is more after the document's end"},
		{"has a key twice", "{\"a\": 1,\n \"a\": 2}", "press.json:2:2: /a: duplicate key"},
		{"has a number that overflows", "{\"a\":\n [0, 1e400]}", "press.json:2:6: /a/1: the number is beyond the range of a double"},
		{"has a number that would be 0", "{\"a\":\n [0, 1e-400]}", "press.json:2:6: /a/1: the number is so small that a double would be 0"},
		{"has a lone surrogate", "[\"é\\ud800\"]", "press.json:1:4: /0: a string holds a lone surrogate"},
		{"is not UTF-8", "[\"\xff\"]", "press.json:1:3: /0: the JSON is not UTF-8"},
		{"is too deep", strings.Repeat("[\n", 201) + strings.Repeat("]", 201), "press.json:201:1: "},
	} {
		t.Run(r.says, func(t *testing.T) {
			t.Parallel()
			err := checkConfig("press.json", []byte(r.data))
			if r.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, r.want)
			require.ErrorContains(t, err, "artifactFile")
			for _, harmful := range []string{"string", "remove", "without", "encode", "keep one"} {
				require.NotContains(t, strings.ReplaceAll(err.Error(), "a string holds", ""), harmful)
			}
		})
	}
}
