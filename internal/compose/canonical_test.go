package compose_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func canonical(t *testing.T, src string) string {
	t.Helper()
	out, err := compose.Canonical([]byte(src), compose.DefaultLimits())
	require.NoError(t, err)
	return string(out)
}

func refusal(t *testing.T, err error) *fleet.Error {
	t.Helper()
	var e *fleet.Error
	require.ErrorAs(t, err, &e)
	return e
}

// N106
func TestCanonical(t *testing.T) {
	t.Parallel()
	rows := []struct{ says, src, want string }{
		{
			"writes the RFC's sample", `{
  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
				`"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"sorts the RFC's names by UTF-16 code units", `{
  "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
				`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{
			"sorts the same names unescaped", "{\"\ufb33\":1,\"😀\":2,\"€\":3}",
			"{\"€\":3,\"😀\":2,\"\ufb33\":1}",
		},
		{"sorts a shorter name before a longer", `{"ab":1,"a":2,"":3,"\u0061b\n":4}`, `{"":3,"a":2,"ab":1,"ab\n":4}`},
		{"sorts within arrays and objects", `[{"b":{"z":1,"y":2},"a":[]}]`, `[{"a":[],"b":{"y":2,"z":1}}]`},
		{"keeps the order of an array", `[3,1,2]`, `[3,1,2]`},
		{"uses the short escapes", `"\u0008\u0009\u000A\u000c\u000d\u001F\u007f\u2028"`, "\"\\b\\t\\n\\f\\r\\u001f\u007f\u2028\""},
		{"leaves no space", " { \"a\" : [ 1 , { } , [ ] ] }\r\n\t", `{"a":[1,{},[]]}`},
		{"takes a scalar", ` "x" `, `"x"`},
		{"writes zero without its sign", `[-0,-0.0,0e9,-0E-9,0.000]`, `[0,0,0,0,0]`},
	}
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, r.want, canonical(t, r.src))
			require.Equal(t, r.want, canonical(t, r.want))
		})
	}
}

// The doubles of RFC 8785, appendix B. N106
func TestCanonicalNumbersOfTheRFC(t *testing.T) {
	t.Parallel()
	rows := []struct {
		bits uint64
		want string
	}{
		{0x0000000000000000, "0"},
		{0x8000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	}
	for _, r := range rows {
		f := math.Float64frombits(r.bits)
		require.Equal(t, r.want, canonical(t, strconv.FormatFloat(f, 'e', -1, 64)))
		require.Equal(t, r.want, canonical(t, r.want))
		if f == math.Trunc(f) {
			require.Equal(t, r.want, canonical(t, strconv.FormatFloat(f, 'f', 1, 64)), "with all its digits")
		}
	}
}

// N106, X10
func TestCanonicalRefuses(t *testing.T) {
	t.Parallel()
	rows := []struct{ says, src, field, message string }{
		{"nothing", ``, "", "malformed JSON: there is no value"},
		{"only space", " \n", "", "malformed JSON: there is no value"},
		{"a document that ends early", `{"a":{"b":[1,`, "/a/b", "malformed JSON: it ends too early, at byte 13"},
		{"a comma too many", `{"a":[1,]}`, "/a", "malformed JSON at byte 7"},
		{"a bracket that does not match", `{"a":1]`, "", "malformed JSON at byte 6"},
		{"a name without quotes", `{"a":{b:1}}`, "/a", "malformed JSON at byte 6"},
		{"an object as a name", `{{}:1}`, "", "malformed JSON at byte 1"},
		{"an unknown escape", `{"a":"secret\x"}`, "/a", "malformed JSON at byte 12"},
		{"a raw control character", "[\"\x01\"]", "/0", "malformed JSON at byte 2"},
		{"a byte order mark", "\xef\xbb\xbf{}", "", "the JSON begins with a byte order mark (BOM)"},
		{"UTF-16 with a byte order mark", "\xff\xfe{\x00}\x00", "", "the text is UTF-16, and JSON is UTF-8"},
		{"UTF-16, big endian", "\x00{\x00}", "", "the text is UTF-16, and JSON is UTF-8"},
		{"UTF-16, little endian", "{\x00}\x00", "", "the text is UTF-16, and JSON is UTF-8"},
		{"a comment in a line", "{\"a\":[ // secret\n1]}", "/a/0", "malformed JSON: a comment at byte 7"},
		{"a comment in a block", `/* secret */{}`, "", "malformed JSON: a comment at byte 0"},
		{"a comment of a shell", "{\"a\":1} # secret", "", "malformed JSON: a comment at byte 8"},
		{"a slash", "[1,/]", "/1", "malformed JSON at byte 3"},
		{"a number that is none", `{"a":NaN}`, "/a", "malformed JSON at byte 5"},
		{"trailing data", `{} {}`, "", "malformed JSON: there is more after the document's end at byte 2"},
		{"a leading zero", `01`, "", "malformed JSON: there is more after the document's end at byte 1"},
		{"duplicate keys", `{"a":[0,{"b":1,"c":2,"b":3}]}`, "/a/1/b", "duplicate key"},
		{"duplicate keys side by side", `{"b":1,"b":1}`, "/b", "duplicate key"},
		{"duplicate keys that are escaped apart", `{"x/~":{"\u00e9":1,"z":0,"é":1}}`, "/x~1~0/é", "duplicate key"},
		{"a lone high surrogate", `{"a":["secret\ud800"]}`, "/a/0", "a string holds a lone surrogate at byte 13"},
		{"a lone low surrogate", `{"a":"\uDFFF"}`, "/a", "a string holds a lone surrogate at byte 6"},
		{"a high surrogate before another character", `{"a":"\ud83d\u0041"}`, "/a", "a string holds a lone surrogate at byte 6"},
		{"a lone surrogate in a name", `{"a":{"\ud800":1}}`, "/a", "a string holds a lone surrogate at byte 7"},
		{"a surrogate in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "/a", "the JSON is not UTF-8 at byte 6"},
		{"what is not UTF-8", "{\"a\":\"x\xff\"}", "/a", "the JSON is not UTF-8 at byte 7"},
		{"a number that would become 0", `{"a":{"n":1e-400}}`, "/a/n", "the number is so small that a double would be 0"},
		{"a number beyond all doubles", `{"a":[0,1e400]}`, "/a/1", "the number is beyond the range of a double"},
	}
	for _, r := range rows {
		t.Run(r.says, func(t *testing.T) {
			t.Parallel()
			_, err := compose.Canonical([]byte(r.src), compose.DefaultLimits())
			e := refusal(t, err)
			require.Equal(t, fleet.Invalid, e.Kind)
			require.Equal(t, r.field, e.Field)
			require.Equal(t, r.message, e.Message)
			require.NotContains(t, e.Error(), "secret")
			require.Nil(t, e.Err, "the tokenizer's error quotes the body")
			_, placed := compose.OffsetOf(err)
			require.True(t, placed)
		})
	}
}

// N106: where in the source each refusal is, for a message with line and column.
func TestOffsetOf(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		src  string
		want int64
	}{
		{` `, 0},
		{`{"a":[1,]}`, 7},
		{"{\"a\":1, // x\n}", 8},
		{"{\"a\":1 /* x */ ,\"b\":1}", 7},
		{"{\"a\": /* x */ 1}", 6},
		{"[1 # x\n]", 3},
		{"[1,# x\n]", 3},
		{`{"a":1]`, 6},
		{`{"a":{"b":[1,`, 13},
		{`{"a":[0, 1e400]}`, 9},
		{`{"a":{"b":1, "c":2, "b":3}}`, 20},
		{`{"a": "x\ud800"}`, 8},
		{"{\"a\":\"x\xff\"}", 7},
		{"{}\n\n{}", 4},
		{"{}\n // done", 4},
		{"{\n # x\n}", 3},
		{strings.Repeat("[", 201), 200},
	} {
		_, err := compose.Canonical([]byte(r.src), compose.DefaultLimits())
		at, ok := compose.OffsetOf(err)
		require.True(t, ok, r.src)
		require.Equal(t, r.want, at, r.src)
	}
	_, err := compose.Canonical([]byte(`{}`), compose.Limits{MaxBytes: 1})
	_, ok := compose.OffsetOf(err)
	require.False(t, ok, "a size has no place")
}

// N106
func TestLimits(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return strings.Repeat(`{"a":[`, n/2) + "1" + strings.Repeat(`]}`, n/2)
	}
	ok := func(src string, l compose.Limits) {
		_, err := compose.Canonical([]byte(src), l)
		require.NoError(t, err)
	}
	bad := func(src string, l compose.Limits) *fleet.Error {
		_, err := compose.Canonical([]byte(src), l)
		return refusal(t, err)
	}
	t.Run("allows 200 levels by default and not one more", func(t *testing.T) {
		t.Parallel()
		ok(nested(200), compose.Limits{})
		e := bad("["+nested(200)+"]", compose.Limits{})
		require.Equal(t, fleet.Invalid, e.Kind)
		require.Equal(t, "/0"+strings.Repeat("/a/0", 99)+"/a", e.Field)
		require.Equal(t, "nested deeper than 200 levels", e.Message)
	})
	t.Run("allows 2 million values by default and not one more", func(t *testing.T) {
		t.Parallel()
		ok("["+strings.Repeat("0,", 1_999_998)+"0]", compose.DefaultLimits())
		e := bad("["+strings.Repeat("0,", 1_999_999)+"0]", compose.DefaultLimits())
		require.Equal(t, fleet.Invalid, e.Kind)
		require.Equal(t, "/1999999", e.Field)
		require.Equal(t, "more than 2000000 values", e.Message)
	})
	t.Run("says how large a document is and may be", func(t *testing.T) {
		t.Parallel()
		ok(`"1234"`, compose.Limits{MaxBytes: 6})
		e := bad(`"12345"`, compose.Limits{MaxBytes: 6})
		require.Equal(t, fleet.TooLarge, e.Kind)
		require.Equal(t, "the JSON is 7 bytes long, allowed are 6", e.Message)
	})
	t.Run("holds the canonical form to the size too", func(t *testing.T) {
		t.Parallel()
		ok(`[1e20]`, compose.Limits{MaxBytes: 23})
		e := bad(`[1e20]`, compose.Limits{MaxBytes: 22})
		require.Equal(t, fleet.TooLarge, e.Kind)
		require.Equal(t, "the JSON is 23 bytes long, allowed are 22", e.Message)
	})
	t.Run("has the documented defaults", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, compose.Limits{MaxBytes: 64 << 20, MaxDepth: 200, MaxValues: 2_000_000}, compose.DefaultLimits())
	})
	t.Run("cuts a pointer that is as long as the document", func(t *testing.T) {
		t.Parallel()
		e := bad(fmt.Sprintf(`{"%s":1e400}`, strings.Repeat("é", 100_000)), compose.DefaultLimits())
		require.Less(t, len(e.Field), 1100)
		require.True(t, strings.HasSuffix(e.Field, "é…"))
	})
}
